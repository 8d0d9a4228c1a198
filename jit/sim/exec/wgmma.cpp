// jit/sim/exec/wgmma.cpp -- the asynchronous product of a warp group: issue, wait, descriptors and layouts in shared
// memory.
// SPDX-License-Identifier: Apache-2.0
//
// A product is one operation of four warps, computed when the first of them waits. Its reads of shared memory stand in
// the shadow under the warp group. For a later writer they are over when the writer knows that all four warps have
// waited (or, with Checks::release_per_warp off, when one has). Rows of a K-major tile lie `pitch` bytes apart in
// groups of eight; the descriptor's strides lead from group to group. The swizzle works on the final address.

#include <algorithm>
#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"
#include "jit/sim/values/mma_core.h"

namespace seqtile::sim {
namespace {

/// The matrix descriptor's fields, in bytes.
struct Descriptor {
  explicit Descriptor(uint64_t bits)
      : base(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
        base_offset(static_cast<uint32_t>(bits >> 49 & 7)) {
    static constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::b128, Swizzle::b64, Swizzle::b32};
    swizzle = kModes[bits >> 62];
  }
  uint32_t pitch() const { return 16u << static_cast<uint32_t>(swizzle); }

  /// 16 bytes of row `row`, chunk `chunk` of a K-major tile.
  uint32_t k_major(uint32_t row, uint32_t chunk) const {
    const uint32_t along = swizzle == Swizzle::none ? leading : 16;
    return swizzled(base + row / 8 * stride + row % 8 * pitch() + chunk * along, swizzle);
  }
  /// Eight elements m..m+7 (m = 8 * block) at depth k of an MN-major tile of 16-bit elements.
  uint32_t mn_major(uint32_t block, uint32_t k) const {
    const uint32_t chunks = pitch() / 16;
    if (swizzle == Swizzle::none) return base + block * stride + k / 8 * leading + k % 8 * 16;
    return swizzled(base + block / chunks * leading + k / 8 * stride + k % 8 * pitch() + block % chunks * 16, swizzle);
  }

  uint32_t base, leading, stride, base_offset;
  Swizzle swizzle;
};

struct WgmmaOperands {
  const uint32_t* accumulators;
  const uint32_t* fragment;                                  ///< of RS
  uint32_t a, b, scale, scale_a, scale_b, trans_a, trans_b;  ///< kNoRegister where the form has none
  bool is_rs;
};

WgmmaOperands operands_of(const Program& program, const Instruction& i) {
  const uint32_t* o = program.operands(i);
  const uint32_t n = i.num_destinations, b = n + (i.flag ? 4 : 1);
  const bool has_scales = i.num_operands > b + 2, has_transposes = i.num_operands > b + 4;
  return {o,
          o + n,
          o[n],
          o[b],
          o[b + 1],
          has_scales ? o[b + 2] : kNoRegister,
          has_scales ? o[b + 3] : kNoRegister,
          has_transposes && !i.flag ? o[b + 4] : kNoRegister,
          has_transposes ? o[b + (i.flag ? 4 : 5)] : kNoRegister,
          i.flag};
}

}  // namespace

void Cohort::issue_wgmma(Warp& warp, const Instruction& i) {
  const WgmmaOperands o = operands_of(*warp.grid->program, i);
  const Site site{&warp, i.line, -1};
  for (const uint32_t scale : {o.scale_a, o.scale_b})
    if (scale != kNoRegister && lanes(warp, scale)[0] != 1 && lanes(warp, scale)[0] != ~0u)
      report(ReportKind::wgmma, site, "the scale of an operand is neither 1 nor -1");
  const WideLane* const a = wide_lanes(warp, o.a);
  const WideLane* const b = wide_lanes(warp, o.b);
  for (int lane = 1; lane < kWarpLanes; ++lane)
    if ((!o.is_rs && a[lane] != a[0]) || b[lane] != b[0]) {
      report(ReportKind::wgmma, {&warp, i.line, lane}, "the descriptor differs from lane 0's");
      break;
    }
  if (cta_of(warp).num_warps % 4 != 0)
    return report(ReportKind::wgmma, site, "the CTA is not made of groups of four warps");
  const bool accumulates = !i.flag2 && lanes(warp, o.scale)[0] != 0;
  warp.wgmmas.push_back({static_cast<uint32_t>(&i - warp.grid->program->code.data()), o.is_rs ? 0 : uint64_t{a[0]},
                         b[0], accumulates, false, ++warp.wgmma_sequence, tracks_shared() ? snapshot(warp) : nullptr});
  if (!checks_flight_) return;
  check_wgmma_issue(warp, i);
  mark_busy(warp, warp.wgmmas.back(), 1);
}

void Cohort::check_wgmma_issue(Warp& warp, const Instruction& i) {
  const uint32_t* ids = warp.grid->program->virtual_pool.data() + i.pool;
  const uint32_t accumulators = i.num_destinations, all = accumulators + (i.flag ? 4u : 0u);
  bool is_late = warp.wgmma_fences == 0, overlaps = false;
  for (uint32_t k = 0; k < all; ++k) {
    if (ids[k] == kNoRegister) continue;
    is_late |= warp.written_after_fence[ids[k]] == warp.wgmma_fences + 1;
    overlaps |= (k < accumulators ? warp.busy_fragment : warp.busy_accumulator)[ids[k]] != 0;
  }
  const Site site{&warp, i.line, -1};
  if (is_late)
    report(ReportKind::missing_fence, site, "a register of this wgmma was written after the last wgmma.fence");
  if (overlaps)
    report(ReportKind::missing_wait, site, "an A fragment is an accumulator of a wgmma in flight, or the reverse");
}

void Cohort::mark_busy(Warp& warp, const WgmmaOp& op, int change) {
  if (!checks_flight_) return;
  const Instruction& i = code(warp, op.pc);
  const uint32_t* ids = warp.grid->program->virtual_pool.data() + i.pool;
  for (uint32_t k = 0; k < i.num_destinations + (i.flag ? 4u : 0u); ++k)
    if (ids[k] != kNoRegister)
      (k < i.num_destinations ? warp.busy_accumulator : warp.busy_fragment)[ids[k]] += static_cast<uint8_t>(change);
}

Flow Cohort::wgmma_wait(Warp& warp, const Instruction& i) {
  const uint32_t keep = lanes(warp, i.slot[0])[0];
  if (warp.wgmma_groups.size() <= keep) return Flow::next;
  Warp* const group = &warps_[cta_of(warp).first_warp + (warp.index & ~3)];
  const auto until = static_cast<uint32_t>(warp.wgmma_base + warp.wgmma_groups.size() - keep);
  // the operation is one of four warps: it can be done when all have issued it
  for (int w = 0; w < 4; ++w)
    if (!group[w].is_done && group[w].wgmma_base + group[w].wgmma_groups.size() < until) return Flow::retry;
  while (warp.wgmma_base < until && !is_stopped_) finish_wgmma_group(warp, i);
  return Flow::next;
}

/// Computes the oldest group of operations, unless another warp of the group already has, and retires it for this warp.
void Cohort::finish_wgmma_group(Warp& warp, const Instruction& i) {
  const int first = cta_of(warp).first_warp + (warp.index & ~3);
  Warp* const group = &warps_[first];
  std::vector<WgmmaOp>& mine = warp.wgmma_groups.front();
  for (size_t q = 0; q < mine.size(); ++q) {
    if (mine[q].done) continue;
    std::array<WgmmaOp*, 4> ops;
    for (int w = 0; w < 4; ++w) {
      auto& groups = group[w].wgmma_groups;
      const size_t at = warp.wgmma_base - group[w].wgmma_base;
      if (group[w].is_done || at >= groups.size() || q >= groups[at].size()) {
        report(ReportKind::wgmma, {&warp, i.line, -1}, "the warps of the group committed different operations");
        is_stopped_ = true;
        return;
      }
      ops[w] = &groups[at][q];
    }
    compute_wgmma(group, ops);
    for (WgmmaOp* op : ops) op->done = true;
    ++events_;
  }
  if (tracks_shared() && !mine.empty()) {
    for (int w = 0; w < 4; ++w) {
      if (context_.options.checks.release_per_warp && w != (warp.index & 3)) continue;
      uint32_t& waited = warp.clock[wait_thread(first + w)];
      waited = std::max(waited, mine.back().sequence);
    }
    warp.snapshot = nullptr;
  }
  for (const WgmmaOp& op : mine) mark_busy(warp, op, -1);
  warp.wgmma_groups.pop_front();
  ++warp.wgmma_base;
}

/// The knowledge that all four warps had when they issued the product: B is read for each of them.
Clock Cohort::common_clock(const std::array<WgmmaOp*, 4>& ops) {
  Clock clock = *ops[0]->issued;
  for (const WgmmaOp* op : ops)
    for (size_t t = 0; t < clock.size(); ++t) clock[t] = std::min(clock[t], (*op->issued)[t]);
  return clock;
}

/// Reads 16-byte pieces of the operands in shared memory and spreads them for the product.
struct Cohort::WgmmaReader {
  Cohort& cohort;
  Cta& cta;
  const Site& site;
  const Clock& clock;
  uint32_t thread;

  const std::byte* read(uint32_t address) const {
    const uint32_t offset = address - kSharedBase;
    const bool is_inside = offset % 16 == 0 && uint64_t{offset} + 16 <= cta.shared.size();
    const std::byte* from = is_inside ? cta.shared.data() + offset : cohort.shared(cta, address, 16, 16, site);
    if (from != cohort.refused_ && cohort.tracks_shared())
      cohort.shared_read(cta, address, 16, {thread, clock, site, AccessKind::async});
    return from;
  }
  /// Eight rows as ldmatrix would load them.
  void rows(uint32_t* to, const Descriptor& d, uint32_t row, uint32_t chunk) const {
    for (uint32_t r = 0; r < 8; ++r) std::memcpy(to + r * 4, read(d.k_major(row + r, chunk)), 16);
  }
  void spread_right(SpreadB& to, const Descriptor& d, PtxType type, int k, uint32_t block, bool is_transposed) const {
    if (is_transposed) {
      for (uint32_t step = 0; step < 16; ++step) {
        uint16_t row[8];
        std::memcpy(row, read(d.mn_major(block, step)), 16);
        for (int q = 0; q < 8; ++q) to.value[step][q & 1][q >> 1] = mma_element(type, row[q], 0);
      }
      return;
    }
    alignas(64) uint32_t words[2][32];
    const uint32_t* const regs[2] = {words[0], words[1]};
    for (uint32_t r = 0; r < 2; ++r) rows(words[r], d, block * 8, r);
    spread_b(type, regs, 2, k, to);
  }
  /// The 16 rows of one warp.
  void spread_left(SpreadA& to, const Descriptor& d, PtxType type, int k, uint32_t warp, bool is_transposed) const {
    if (is_transposed) {
      for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t step = 0; step < 16; ++step) {
          uint16_t column[8];
          std::memcpy(column, read(d.mn_major(warp * 2 + half, step)), 16);
          for (int lane = 0; lane < 32; ++lane) to.value[half][step][lane] = mma_element(type, column[lane >> 2], 0);
        }
      return;
    }
    alignas(64) uint32_t words[4][32];
    const uint32_t* const regs[4] = {words[0], words[1], words[2], words[3]};
    for (uint32_t r = 0; r < 4; ++r) rows(words[r], d, warp * 16 + (r & 1) * 8, r >> 1);
    spread_a(type, regs, 4, k, to);
  }
};

void Cohort::check_wgmma_group(Warp* group, const std::array<WgmmaOp*, 4>& ops, const Site& site) {
  for (int w = 1; w < 4; ++w)
    if (ops[w]->pc != ops[0]->pc || ops[w]->a != ops[0]->a || ops[w]->b != ops[0]->b ||
        ops[w]->accumulate != ops[0]->accumulate)
      report(ReportKind::wgmma, {&group[w], site.line, -1}, "the operands differ from those of the group's first warp");
  const bool is_rs = code(*group, ops[0]->pc).flag;
  if (Descriptor(ops[0]->b).base_offset != 0 || (!is_rs && Descriptor(ops[0]->a).base_offset != 0))
    report(ReportKind::wgmma, site, "a base offset in the descriptor is not supported");
}

void Cohort::compute_wgmma(Warp* group, const std::array<WgmmaOp*, 4>& ops) {
  const Instruction& i = code(*group, ops[0]->pc);
  const WgmmaOperands o = operands_of(*group->grid->program, i);
  const Site site{group, i.line, -1};
  check_wgmma_group(group, ops, site);
  Clock clock;
  const uint32_t thread = wait_thread(group->id);
  const auto enter = [&](const Clock& known) {  // the reader's own time is the operation's number
    clock = known;
    for (uint32_t w = 0; w < 4; ++w) clock[thread + w] = ops[0]->sequence;
  };
  if (tracks_shared()) enter(common_clock(ops));
  const WgmmaReader reader{*this, cta_of(*group), site, clock, thread};
  const auto is_set = [&](uint32_t slot) { return slot != kNoRegister && lanes(*group, slot)[0] != 0; };
  const Descriptor b(ops[0]->b), a(ops[0]->a);
  const int k = 32 / ptx_type_bytes(i.type);
  static thread_local std::vector<SpreadB> right(32);
  static thread_local SpreadA left;
  for (uint32_t j = 0; j < i.vector; ++j) reader.spread_right(right[j], b, i.type2, k, j, is_set(o.trans_b));
  const auto is_negative = [&](uint32_t slot) { return slot != kNoRegister && lanes(*group, slot)[0] == ~0u; };
  const Accumulator kind = accumulator_of(i.type, i.width, i.aux != 0);
  const uint32_t per_block = i.num_destinations / i.vector;
  for (uint32_t w = 0; w < 4; ++w) {
    if (o.is_rs) {
      const uint32_t* regs[4];
      for (int r = 0; r < 4; ++r) regs[r] = lanes(group[w], o.fragment[r]);
      spread_a(i.type, regs, 4, k, left);
    } else {  // its 16 rows are read for this warp alone
      if (tracks_shared()) enter(*ops[w]->issued);
      reader.spread_left(left, a, i.type, k, w, is_set(o.trans_a));
    }
    if (is_negative(o.scale_a) != is_negative(o.scale_b)) negate(left, k);
    for (uint32_t j = 0; j < i.vector; ++j) {
      uint32_t* d[4] = {};
      for (uint32_t r = 0; r < per_block; ++r) d[r] = lanes(group[w], o.accumulators[j * per_block + r]);
      multiply(kind, d, ops[0]->accumulate ? d : nullptr, left, right[j], k);
    }
  }
  ++counters_.wgmma;
}

}  // namespace seqtile::sim
