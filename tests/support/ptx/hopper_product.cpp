// tests/support/ptx/hopper_product.cpp -- the matrix product of hopper_kernels.h.
// SPDX-License-Identifier: Apache-2.0
//
// Warp group 0 loads a ring of stages; a stage is a panel of 128 rows of a and block_n rows of b, 64 deep, swizzled by
// 128 bytes. Groups 1 and 2 multiply 64 rows each. They release a stage once per warp, in all CTAs of the cluster,
// because b's parts come from all CTAs. The result goes through shared memory and leaves by a tensor store.
#include "tests/support/ptx/hopper_kernels.h"
#include "tests/support/ptx/ptx_template.h"

namespace seqtile::testing {
namespace {

const char* const kProduct = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry product(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128],
  .param .align 64 .b8 map_c[128], .param .u32 param_row_blocks, .param .u32 param_tiles, .param .u32 param_steps)
.reqntid 384
{
.reg .pred %not_first, %is_consumer, %over, %ready, %adds, %yes, %releases, %wraps, %not_leader;
.reg .b16 %mask;
.reg .b32 %t, %sb, %bar, %group, %rank, %row_blocks, %tiles, %steps, %tile, %clusters, %stage, %phase, %k, %full;
.reg .b32 %mb, %nb, %row, %col, %depth, %base, %to, %parity, %lane, %remote, %low, %warp, %c0, %line, %x, %y, %id;
.reg .b32 %w<4>;
.reg .b64 %a, %b, %c64, %da, %db, %fixed;
.reg .f32 %s<$ACCUMULATORS>;
mov.u32 %t, %tid.x;
mov.u32 %sb, smem;
add.u32 %bar, %sb, $BARRIERS;
setp.ne.u32 %not_first, %t, 0;
@%not_first bra INITIALISED;
$INIT
fence.mbarrier_init.release.cluster;
INITIALISED:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
mov.b64 %a, map_a;
mov.b64 %b, map_b;
mov.b64 %c64, map_c;
ld.param.u32 %row_blocks, [param_row_blocks];
ld.param.u32 %tiles, [param_tiles];
ld.param.u32 %steps, [param_steps];
mov.u32 %rank, %cluster_ctarank;
mov.u32 %tile, %clusterid.x;
mov.u32 %clusters, %nclusterid.x;
mov.u32 %stage, 0;
mov.u32 %phase, 0;
shr.u32 %group, %t, 7;
setp.ne.u32 %is_consumer, %group, 0;
@%is_consumer bra CONSUMER;

setmaxnreg.dec.sync.aligned.u32 40;
@%not_first bra END;
prefetch.tensormap [%a];
mov.u16 %mask, $MASK;
LOAD_TILE:
setp.ge.u32 %over, %tile, %tiles;
@%over bra END;
rem.u32 %mb, %tile, %row_blocks;
div.u32 %nb, %tile, %row_blocks;
mad.lo.u32 %mb, %mb, $CLUSTER, %rank;
mul.lo.u32 %row, %mb, 128;
mul.lo.u32 %col, %nb, $BLOCK_N;
mad.lo.u32 %col, %rank, $PART_N, %col;
mov.u32 %k, 0;
LOAD_STEP:
shl.b32 %full, %stage, 3;
add.u32 %full, %full, %bar;
xor.b32 %parity, %phase, 1;
WAIT_EMPTY:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %ready, [%full+$EMPTY], %parity;
@!%ready bra WAIT_EMPTY;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], $STAGE;
mad.lo.u32 %base, %stage, $STAGE, %sb;
shl.b32 %depth, %k, 6;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%base], [%a, {%depth, %row}], [%full];
mad.lo.u32 %to, %rank, $PART_BYTES, %base;
add.u32 %to, %to, $A_BYTES;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%to], [%b, {%depth, %col}], [%full], %mask;
add.u32 %stage, %stage, 1;
setp.eq.u32 %wraps, %stage, $STAGES;
selp.b32 %stage, 0, %stage, %wraps;
@%wraps xor.b32 %phase, %phase, 1;
add.u32 %k, %k, 1;
setp.lt.u32 %over, %k, %steps;
@%over bra LOAD_STEP;
add.u32 %tile, %tile, %clusters;
bra LOAD_TILE;

CONSUMER:
setmaxnreg.inc.sync.aligned.u32 232;
sub.u32 %group, %group, 1;
and.b32 %lane, %t, 31;
and.b32 %id, %t, 127;
setp.ne.u32 %not_leader, %id, 0;
add.u32 %id, %group, 1;
shr.u32 %warp, %t, 5;
and.b32 %warp, %warp, 3;
// where this lane's row of a stmatrix goes: matrices in the order rows 0-7, rows 8-15, then the next eight columns
and.b32 %x, %lane, 15;
mad.lo.u32 %line, %warp, 16, %x;
shl.b32 %line, %line, 7;
mad.lo.u32 %c0, %group, $GROUP_C_BYTES, %sb;
add.u32 %c0, %c0, $C_START;
add.u32 %line, %line, %c0;
shr.u32 %y, %lane, 4;
and.b32 %x, %lane, 7;
xor.b32 %y, %y, %x;
shl.b32 %y, %y, 4;
setp.lt.u32 %releases, %lane, $CLUSTER;
setp.eq.u32 %yes, 0, 0;
mov.b64 %fixed, $DESCRIPTOR;
TILE:
setp.ge.u32 %over, %tile, %tiles;
@%over bra STORED;
rem.u32 %mb, %tile, %row_blocks;
div.u32 %nb, %tile, %row_blocks;
mad.lo.u32 %mb, %mb, $CLUSTER, %rank;
mov.u32 %k, 0;
STEP:
shl.b32 %full, %stage, 3;
add.u32 %full, %full, %bar;
WAIT_FULL:
mbarrier.try_wait.parity.shared::cta.b64 %ready, [%full], %phase;
@!%ready bra WAIT_FULL;
mad.lo.u32 %base, %stage, $STAGE, %sb;
mad.lo.u32 %low, %group, 8192, %base;
and.b32 %low, %low, 0x3ffff;
shr.u32 %low, %low, 4;
cvt.u64.u32 %da, %low;
or.b64 %da, %da, %fixed;
add.u32 %low, %base, $A_BYTES;
and.b32 %low, %low, 0x3ffff;
shr.u32 %low, %low, 4;
cvt.u64.u32 %db, %low;
or.b64 %db, %db, %fixed;
setp.ne.u32 %adds, %k, 0;
wgmma.fence.sync.aligned;
$PRODUCTS
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mapa.shared::cluster.u32 %remote, %full, %lane;
@%releases mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%remote+$EMPTY];
add.u32 %stage, %stage, 1;
setp.eq.u32 %wraps, %stage, $STAGES;
selp.b32 %stage, 0, %stage, %wraps;
@%wraps xor.b32 %phase, %phase, 1;
add.u32 %k, %k, 1;
setp.lt.u32 %over, %k, %steps;
@%over bra STEP;
// the store of the tile before must have read its source
@!%not_leader cp.async.bulk.wait_group.read 0;
bar.sync %id, 128;
$STORES
fence.proxy.async.shared::cta;
bar.sync %id, 128;
@%not_leader bra NEXT;
shl.b32 %row, %mb, 7;
mad.lo.u32 %row, %group, 64, %row;
mul.lo.u32 %col, %nb, $BLOCK_N;
$TENSOR_STORES
cp.async.bulk.commit_group;
NEXT:
add.u32 %tile, %tile, %clusters;
bra TILE;
STORED:
@!%not_leader cp.async.bulk.wait_group.read 0;
END:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
ret;
}
)";

constexpr int kPanelBytes = 64 * 128;  ///< a panel of c: 64 rows of 64 elements
constexpr int kABytes = 128 * 128;

int stage_bytes(const HopperProduct& p) { return kABytes + p.block_n * 128; }
int c_start(const HopperProduct& p) { return p.stages * stage_bytes(p); }
int group_c_bytes(const HopperProduct& p) { return p.block_n / 64 * kPanelBytes; }
int barriers(const HopperProduct& p) { return c_start(p) + 2 * group_c_bytes(p); }

}  // namespace

int HopperProduct::shared_bytes() const { return barriers(*this) + 16 * stages; }

std::string HopperProduct::text() const {
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string init, products, stores, tensor_stores;
  for (int s = 0; s < stages; ++s)
    init += "mbarrier.init.shared::cta.b64 [%bar+" + number(8 * s) + "], 1;\nmbarrier.init.shared::cta.b64 [%bar+" +
            number(8 * (stages + s)) + "], " + number(8 * cluster) + ";\n";
  for (int q = 0; q < kBlockK / 16; ++q) {
    if (q > 0) products += "add.s64 %da, %da, 2;\nadd.s64 %db, %db, 2;\n";
    products += "wgmma.mma_async.sync.aligned.m64n" + number(block_n) + "k16.f32.bf16.bf16 {" +
                register_list("%s", block_n / 2) + "}, %da, %db, " + (q == 0 ? "%adds" : "%yes") + ", 1, 1, 0, 0;\n";
  }
  for (int j = 0; j < block_n / 8; j += 2) {
    for (int r = 0; r < 4; ++r) {
      const int low = (j + r / 2) * 4 + r % 2 * 2;
      stores += "cvt.rn.bf16x2.f32 %w" + number(r) + ", %s" + number(low + 1) + ", %s" + number(low) + ";\n";
    }
    stores += "xor.b32 %x, %y, " + number(j % 8 * 16) + ";\nadd.u32 %x, %x, %line;\n" +
              "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%x+" + number(j / 8 * kPanelBytes) +
              "], {%w0, %w1, %w2, %w3};\n";
  }
  for (int p = 0; p < block_n / 64; ++p)
    tensor_stores += "add.u32 %x, %c0, " + number(p * kPanelBytes) + ";\nadd.u32 %low, %col, " + number(64 * p) +
                     ";\ncp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%c64, {%low, %row}], [%x];\n";
  return filled(kProduct, {{"ACCUMULATORS", number(block_n / 2)},
                           {"BARRIERS", number(barriers(*this))},
                           {"INIT", init},
                           {"MASK", number((1 << cluster) - 1)},
                           {"CLUSTER", number(cluster)},
                           {"BLOCK_N", number(block_n)},
                           {"PART_N", number(block_n / cluster)},
                           {"PART_BYTES", number(block_n / cluster * 128)},
                           {"EMPTY", number(8 * stages)},
                           {"STAGE", number(stage_bytes(*this))},
                           {"A_BYTES", number(kABytes)},
                           {"STAGES", number(stages)},
                           {"GROUP_C_BYTES", number(group_c_bytes(*this))},
                           {"C_START", number(c_start(*this))},
                           {"DESCRIPTOR", number(int64_t{1} << 62 | int64_t{64} << 32 | 1 << 16)},
                           {"PRODUCTS", products},
                           {"STORES", stores},
                           {"TENSOR_STORES", tensor_stores}});
}

}  // namespace seqtile::testing
