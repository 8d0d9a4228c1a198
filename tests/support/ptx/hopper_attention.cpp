// tests/support/ptx/hopper_attention.cpp -- the attention forward of hopper_kernels.h.
// SPDX-License-Identifier: Apache-2.0
//
// Warp group 0 loads q once, and fills rings of two k and two v tiles; groups 1 and 2 own 64 query rows each. Tiles run
// from the last to the first, so that the masked tiles come first. The product of tile t - 1 with v is in flight during
// the softmax of tile t. p stays in registers, because the layout of sums is the layout of an A operand.
#include "tests/support/ptx/hopper_kernels.h"
#include "tests/support/ptx/ptx_template.h"

namespace seqtile::testing {
namespace {

const char* const kAttention = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry attention(.param .align 64 .b8 map_q[128], .param .align 64 .b8 map_k[128],
  .param .align 64 .b8 map_v[128], .param .align 64 .b8 map_o[128], .param .u64 param_lse, .param .u32 param_q,
  .param .u32 param_kv, .param .u32 param_group, .param .f32 param_scale)
.reqntid 384
{
.reg .pred %not_first, %is_consumer, %over, %ready, %keeps, %yes, %releases, %not_leader, %none;
.reg .b32 %t, %sb, %bar, %group, %head, %kv_head, %q_len, %kv_len, %heads_per_kv, %q0, %limit, %blocks, %it, %tile;
.reg .b32 %stage, %parity, %address, %to, %row, %lane, %warp, %id, %low, %x, %y, %line, %start, %rel0, %rel1, %rest;
.reg .b32 %row0, %row1, %limit0, %limit1, %w<4>, %p<$FRAGMENTS>;
.reg .f32 %scale, %m0, %m1, %l0, %l1, %a0, %a1, %n0, %n1, %u, %s<$SCORES>, %o<$OUTPUTS>;
.reg .b64 %q, %k, %v, %out, %lse, %wide, %dq, %dk, %dv, %dr, %fixed, %fixed_v;
mov.u32 %t, %tid.x;
mov.u32 %sb, smem;
add.u32 %bar, %sb, $BARRIERS;
setp.ne.u32 %not_first, %t, 0;
@%not_first bra INITIALISED;
$INIT
fence.mbarrier_init.release.cluster;
INITIALISED:
bar.sync 0;
mov.b64 %q, map_q;
mov.b64 %k, map_k;
mov.b64 %v, map_v;
mov.b64 %out, map_o;
ld.param.u64 %lse, [param_lse];
ld.param.u32 %q_len, [param_q];
ld.param.u32 %kv_len, [param_kv];
ld.param.u32 %heads_per_kv, [param_group];
ld.param.f32 %scale, [param_scale];
mov.u32 %q0, %ctaid.x;
shl.b32 %q0, %q0, 7;
mov.u32 %head, %ctaid.y;
div.u32 %kv_head, %head, %heads_per_kv;
$LIMIT
add.s32 %blocks, %limit, $BLOCK_N_LESS_1;
div.u32 %blocks, %blocks, $BLOCK_N;
mov.u32 %it, 0;
shr.u32 %group, %t, 7;
setp.ne.u32 %is_consumer, %group, 0;
@%is_consumer bra CONSUMER;

setmaxnreg.dec.sync.aligned.u32 24;
@%not_first bra END;
setp.eq.u32 %none, %blocks, 0;
@%none bra END;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], $Q_BYTES;
cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%sb], [%q, {0, %q0, 0, %head}], [%bar];
LOAD:
and.b32 %stage, %it, 1;
shr.u32 %parity, %it, 1;
and.b32 %parity, %parity, 1;
xor.b32 %parity, %parity, 1;
sub.u32 %tile, %blocks, %it;
sub.u32 %tile, %tile, 1;
mul.lo.u32 %row, %tile, $BLOCK_N;
shl.b32 %address, %stage, 3;
add.u32 %address, %address, %bar;
mad.lo.u32 %to, %stage, $TILE_BYTES, %sb;
add.u32 %x, %to, $K_START;
add.u32 %y, %to, $V_START;
WAIT_EMPTY_K:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%address+24], %parity;
@!%ready bra WAIT_EMPTY_K;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%address+8], $TILE_BYTES;
cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%x], [%k, {0, %row, 0, %kv_head}], [%address+8];
WAIT_EMPTY_V:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%address+56], %parity;
@!%ready bra WAIT_EMPTY_V;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%address+40], $TILE_BYTES;
cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%y], [%v, {0, %row, 0, %kv_head}], [%address+40];
add.u32 %it, %it, 1;
setp.lt.u32 %over, %it, %blocks;
@%over bra LOAD;
bra END;

CONSUMER:
setmaxnreg.inc.sync.aligned.u32 240;
sub.u32 %group, %group, 1;
add.u32 %id, %group, 1;
and.b32 %lane, %t, 31;
shr.u32 %warp, %t, 5;
and.b32 %warp, %warp, 3;
and.b32 %x, %t, 127;
setp.ne.u32 %not_leader, %x, 0;
setp.eq.u32 %yes, 0, 0;
setp.eq.u32 %releases, %lane, 0;
// rows of this lane's sums, and how many keys each of them sees
mad.lo.u32 %row0, %group, 64, %q0;
mad.lo.u32 %row0, %warp, 16, %row0;
shr.u32 %x, %lane, 2;
add.u32 %row0, %row0, %x;
add.u32 %row1, %row0, 8;
$ROW_LIMITS
mov.b64 %fixed, $DESCRIPTOR;
mov.b64 %fixed_v, $DESCRIPTOR_V;
mad.lo.u32 %low, %group, 8192, %sb;
and.b32 %low, %low, 0x3ffff;
shr.u32 %low, %low, 4;
cvt.u64.u32 %dq, %low;
or.b64 %dq, %dq, %fixed;
mov.f32 %m0, 0fFF800000;
mov.f32 %m1, 0fFF800000;
mov.f32 %l0, 0f00000000;
mov.f32 %l1, 0f00000000;
$ZERO
setp.eq.u32 %none, %blocks, 0;
@%none bra DONE;
WAIT_Q:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%bar], 0;
@!%ready bra WAIT_Q;
WAIT_FIRST_K:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%bar+8], 0;
@!%ready bra WAIT_FIRST_K;
mov.u32 %stage, 0;
$SCORES_OF_STAGE
wgmma.wait_group.sync.aligned 0;
@%releases mbarrier.arrive.release.cta.shared::cta.b64 _, [%bar+24];
$SOFTMAX
$PACK
mov.u32 %it, 1;
WAIT_FIRST_V:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%bar+40], 0;
@!%ready bra WAIT_FIRST_V;
NEXT:
setp.ge.u32 %over, %it, %blocks;
@%over bra LAST;
and.b32 %stage, %it, 1;
shr.u32 %parity, %it, 1;
and.b32 %parity, %parity, 1;
shl.b32 %address, %stage, 3;
add.u32 %address, %address, %bar;
WAIT_K:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%address+8], %parity;
@!%ready bra WAIT_K;
$SCORES_OF_STAGE
xor.b32 %stage, %stage, 1;
$OUTPUTS_OF_STAGE
wgmma.wait_group.sync.aligned 1;
@%releases mbarrier.arrive.release.cta.shared::cta.b64 _, [%address+24];
$SOFTMAX
WAIT_V:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%address+40], %parity;
@!%ready bra WAIT_V;
wgmma.wait_group.sync.aligned 0;
shl.b32 %x, %stage, 3;
add.u32 %x, %x, %bar;
@%releases mbarrier.arrive.release.cta.shared::cta.b64 _, [%x+56];
$RESCALE
$PACK
add.u32 %it, %it, 1;
bra NEXT;
LAST:
sub.u32 %stage, %it, 1;
and.b32 %stage, %stage, 1;
$OUTPUTS_OF_STAGE
wgmma.wait_group.sync.aligned 0;
DONE:
$NORMALISE
// all warps of the group have waited for the products that read q before its place is taken
bar.sync %id, 128;
$STORES
fence.proxy.async.shared::cta;
bar.sync %id, 128;
$STORE_LSE
@%not_leader bra END;
mad.lo.u32 %row, %group, 64, %q0;
$TENSOR_STORES
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
END:
ret;
}
)";

std::string number(int64_t value) { return std::to_string(value); }
std::string reg(const char* name, int index) { return name + std::to_string(index); }

int panels(const HopperAttention& a) { return a.head_dim / 64; }
int q_bytes(const HopperAttention& a) { return panels(a) * HopperAttention::kBlockM * 128; }
int tile_bytes(const HopperAttention& a) { return panels(a) * a.block_n * 128; }
int barriers(const HopperAttention& a) { return q_bytes(a) + 4 * tile_bytes(a); }

/// Text for the descriptor of an operand at byte `start` of stage %stage.
std::string stage_descriptor(const HopperAttention& a, const std::string& to, int start, const std::string& fixed) {
  return "mad.lo.u32 %low, %stage, " + number(tile_bytes(a)) + ", %sb;\nadd.u32 %low, %low, " + number(start) +
         ";\nand.b32 %low, %low, 0x3ffff;\nshr.u32 %low, %low, 4;\ncvt.u64.u32 " + to + ", %low;\nor.b64 " + to + ", " +
         to + ", " + fixed + ";\n";
}

/// s = q k^T, without adding to s.
std::string scores(const HopperAttention& a) {
  std::string text = stage_descriptor(a, "%dk", q_bytes(a), "%fixed") + "wgmma.fence.sync.aligned;\n";
  for (int step = 0; step < a.head_dim / 16; ++step) {
    const int panel = step / 4, within = step % 4 * 2;
    text += "add.s64 %dr, %dq, " + number(panel * HopperAttention::kBlockM * 8 + within) + ";\nadd.s64 %wide, %dk, " +
            number(panel * a.block_n * 8 + within) + ";\n" + (step == 0 ? "setp.ne.b32 %none, 0, 0;\n" : "") +
            "wgmma.mma_async.sync.aligned.m64n" + number(a.block_n) + "k16.f32.bf16.bf16 {" +
            register_list("%s", a.block_n / 2) + "}, %dr, %wide, " + (step == 0 ? "%none" : "%yes") + ", 1, 1, 0, 0;\n";
  }
  return text + "wgmma.commit_group.sync.aligned;\n";
}

/// o += p v, with p from registers and v transposed by its descriptor.
std::string outputs(const HopperAttention& a) {
  std::string text =
      stage_descriptor(a, "%dv", q_bytes(a) + 2 * tile_bytes(a), "%fixed_v") + "wgmma.fence.sync.aligned;\n";
  for (int step = 0; step < a.block_n / 16; ++step)
    text += "add.s64 %wide, %dv, " + number(step * 128) + ";\nwgmma.mma_async.sync.aligned.m64n" + number(a.head_dim) +
            "k16.f32.bf16.bf16 {" + register_list("%o", a.head_dim / 2) + "}, {" + register_list("%p", 4, 4 * step) +
            "}, %wide, %yes, 1, 1, 1;\n";
  return text + "wgmma.commit_group.sync.aligned;\n";
}

/// Masks s, updates the maxima m and the sums l, and leaves exponentials in s and the factors of the earlier sums in
/// a0, a1.
std::string softmax(const HopperAttention& a) {
  std::string text = "sub.u32 %tile, %blocks, %it;\nsub.u32 %tile, %tile, 1;\nmul.lo.u32 %start, %tile, " +
                     number(a.block_n) + ";\nand.b32 %x, %lane, 3;\nshl.b32 %x, %x, 1;\nadd.u32 %start, %start, %x;\n";
  const int count = a.block_n / 2;
  for (const char* h : {"0", "1"}) {
    const std::string rest = std::string("%rel") + h, m = std::string("%m") + h, n = std::string("%n") + h,
                      l = std::string("%l") + h, alpha = std::string("%a") + h;
    const auto each = [&](auto f) {
      for (int i = 0; i < count; ++i)
        if ((i % 4 >= 2) == (h[0] == '1')) f(reg("%s", i), i / 4 * 8 + i % 2);
    };
    text += "sub.s32 " + rest + ", %limit" + h + ", %start;\nmov.f32 " + n + ", " + m + ";\n";
    each([&](const std::string& s, int column) {
      text += "setp.gt.s32 %keeps, " + rest + ", " + number(column) + ";\nselp.f32 " + s + ", " + s +
              ", 0fFF800000, %keeps;\nmax.f32 " + n + ", " + n + ", " + s + ";\n";
    });
    for (const char* distance : {"1", "2"})
      text += "shfl.sync.bfly.b32 %u, " + n + ", " + distance + ", 31, -1;\nmax.f32 " + n + ", " + n + ", %u;\n";
    // minus infinity stays out of the differences
    text += "mul.f32 %u, " + n + ", %scale;\nsetp.eq.f32 %keeps, " + n +
            ", 0fFF800000;\nselp.f32 %u, 0f00000000, %u, " + "%keeps;\nneg.f32 %u, %u;\nfma.rn.f32 " + alpha + ", " +
            m + ", %scale, %u;\nex2.approx.ftz.f32 " + alpha + ", " + alpha + ";\nmov.f32 " + m + ", " + n +
            ";\nmul.f32 " + l + ", " + l + ", " + alpha + ";\n";
    each([&](const std::string& s, int) {
      text += "fma.rn.f32 " + s + ", " + s + ", %scale, %u;\nex2.approx.ftz.f32 " + s + ", " + s + ";\nadd.f32 " + l +
              ", " + l + ", " + s + ";\n";
    });
  }
  return text;
}

std::string pack(const HopperAttention& a) {
  std::string text;
  for (int i = 0; i < a.block_n / 4; ++i)
    text += "cvt.rn.bf16x2.f32 " + reg("%p", i) + ", " + reg("%s", 2 * i + 1) + ", " + reg("%s", 2 * i) + ";\n";
  return text;
}

std::string rescale(const HopperAttention& a, const char* by) {
  std::string text;
  for (int i = 0; i < a.head_dim / 2; ++i)
    text += "mul.f32 " + reg("%o", i) + ", " + reg("%o", i) + ", " + by + (i % 4 >= 2 ? "1" : "0") + ";\n";
  return text;
}

/// o /= l, and lse in m. Rows without keys give 0 and minus infinity.
std::string normalise(const HopperAttention& a) {
  std::string text;
  for (const char* h : {"0", "1"}) {
    const std::string l = std::string("%l") + h, m = std::string("%m") + h, alpha = std::string("%a") + h;
    for (const char* distance : {"1", "2"})
      text += "shfl.sync.bfly.b32 %u, " + l + ", " + distance + ", 31, -1;\nadd.f32 " + l + ", " + l + ", %u;\n";
    text += "setp.eq.f32 %keeps, " + l + ", 0f00000000;\nrcp.rn.f32 " + alpha + ", " + l + ";\nselp.f32 " + alpha +
            ", 0f00000000, " + alpha + ", %keeps;\nlg2.approx.ftz.f32 %u, " + l + ";\nfma.rn.f32 " + m + ", " + m +
            ", %scale, %u;\nmul.f32 " + m + ", " + m + ", 0f3F317218;\nselp.f32 " + m + ", 0fFF800000, " + m +
            ", %keeps;\n";
  }
  return text + rescale(a, "%a");
}

/// Stores the group's rows of o in the place of its rows of q.
std::string stores(const HopperAttention& a) {
  std::string text =
      "and.b32 %x, %lane, 15;\nmad.lo.u32 %line, %warp, 16, %x;\nmad.lo.u32 %line, %group, 64, %line;\n"
      "shl.b32 %line, %line, 7;\nadd.u32 %line, %line, %sb;\nshr.u32 %y, %lane, 4;\nand.b32 %x, %lane, 7;\n"
      "xor.b32 %y, %y, %x;\nshl.b32 %y, %y, 4;\n";
  for (int j = 0; j < a.head_dim / 8; j += 2) {
    for (int r = 0; r < 4; ++r) {
      const int low = (j + r / 2) * 4 + r % 2 * 2;
      text += "cvt.rn.bf16x2.f32 " + reg("%w", r) + ", " + reg("%o", low + 1) + ", " + reg("%o", low) + ";\n";
    }
    text += "xor.b32 %x, %y, " + number(j % 8 * 16) + ";\nadd.u32 %x, %x, %line;\n" +
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%x+" + number(j / 8 * HopperAttention::kBlockM * 128) +
            "], {%w0, %w1, %w2, %w3};\n";
  }
  return text;
}

std::string store_lse() {
  std::string text = "and.b32 %x, %lane, 3;\n";
  for (const char* h : {"0", "1"})
    text += std::string("setp.lt.u32 %keeps, %row") + h + ", %q_len;\nsetp.eq.and.u32 %keeps, %x, 0, %keeps;\n" +
            "mad.lo.u32 %y, %head, %q_len, %row" + h +
            ";\nmul.wide.u32 %wide, %y, 4;\nadd.s64 %wide, %wide, %lse;\n@%keeps st.global.f32 [%wide], %m" + h + ";\n";
  return text;
}

std::string tensor_stores(const HopperAttention& a) {
  std::string text;
  for (int p = 0; p < panels(a); ++p)
    text += "mad.lo.u32 %x, %group, 8192, %sb;\nadd.u32 %x, %x, " + number(p * HopperAttention::kBlockM * 128) +
            ";\ncp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%out, {0, %row, " + number(p) +
            ", %head}], [%x];\n";
  return text;
}

/// Computes the number of keys that the CTA needs; the rows of a lane see all of them, or those up to the diagonal.
std::string limit(const HopperAttention& a) {
  if (!a.is_causal) return "mov.u32 %limit, %kv_len;\n";
  return "sub.s32 %limit, %kv_len, %q_len;\nadd.s32 %limit, %limit, %q0;\nadd.s32 %limit, %limit, 128;\n"
         "min.s32 %limit, %limit, %kv_len;\nmax.s32 %limit, %limit, 0;\n";
}
std::string row_limits(const HopperAttention& a) {
  if (!a.is_causal) return "mov.u32 %limit0, %kv_len;\nmov.u32 %limit1, %kv_len;\n";
  std::string text = "sub.s32 %rest, %kv_len, %q_len;\nadd.s32 %rest, %rest, 1;\n";
  for (const std::string h : {"0", "1"})
    text += "add.s32 %limit" + h + ", %row" + h + ", %rest;\nmin.s32 %limit" + h + ", %limit" + h + ", %kv_len;\n";
  return text;
}

}  // namespace

int HopperAttention::shared_bytes() const { return barriers(*this) + 72; }

std::string HopperAttention::text() const {
  // barriers: q | full k 0, 1 | empty k 0, 1 | full v 0, 1 | empty v 0, 1
  std::string init, zero;
  for (int b = 0; b < 9; ++b)
    init += "mbarrier.init.shared::cta.b64 [%bar+" + number(8 * b) + "], " + ((b - 1) / 2 % 2 == 1 ? "8" : "1") + ";\n";
  for (int i = 0; i < head_dim / 2; ++i) zero += "mov.f32 " + reg("%o", i) + ", 0f00000000;\n";
  const int64_t swizzled = int64_t{1} << 62 | int64_t{64} << 32;
  return filled(kAttention, {{"FRAGMENTS", number(block_n / 4)},
                             {"SCORES", number(block_n / 2)},
                             {"OUTPUTS", number(head_dim / 2)},
                             {"BARRIERS", number(barriers(*this))},
                             {"INIT", init},
                             {"ZERO", zero},
                             {"LIMIT", limit(*this)},
                             {"ROW_LIMITS", row_limits(*this)},
                             {"BLOCK_N", number(block_n)},
                             {"BLOCK_N_LESS_1", number(block_n - 1)},
                             {"Q_BYTES", number(q_bytes(*this))},
                             {"TILE_BYTES", number(tile_bytes(*this))},
                             {"K_START", number(q_bytes(*this))},
                             {"V_START", number(q_bytes(*this) + 2 * tile_bytes(*this))},
                             {"DESCRIPTOR", number(swizzled | 1 << 16)},
                             {"DESCRIPTOR_V", number(swizzled | int64_t{block_n * 8} << 16)},
                             {"SCORES_OF_STAGE", scores(*this)},
                             {"OUTPUTS_OF_STAGE", outputs(*this)},
                             {"SOFTMAX", softmax(*this)},
                             {"PACK", pack(*this)},
                             {"RESCALE", rescale(*this, "%a")},
                             {"NORMALISE", normalise(*this)},
                             {"STORES", stores(*this)},
                             {"STORE_LSE", store_lse()},
                             {"TENSOR_STORES", tensor_stores(*this)}});
}

}  // namespace seqtile::testing
