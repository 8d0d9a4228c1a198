// jit/sim/exec/matrix_ops.cpp -- ldmatrix, stmatrix and mma.sync.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "jit/sim/exec/cohort.h"
#include "jit/sim/values/mma_core.h"

namespace seqtile::sim {
namespace {

void transpose(const uint16_t (&from)[8][8], uint32_t* to) {
  for (int row = 0; row < 8; ++row)
    for (int pair = 0; pair < 4; ++pair)
      to[row * 4 + pair] = from[2 * pair][row] | uint32_t{from[2 * pair + 1][row]} << 16;
}

}  // namespace

/// A row of ldmatrix and stmatrix belongs to several lanes.
SharedAccess Cohort::collective(const Warp& warp, const Site& site) {
  return {static_cast<uint32_t>(warp.id), warp.clock, site, AccessKind::plain, kSeveralLanes};
}

void Cohort::load_matrix(Warp& warp, const Instruction& i) {
  Cta& cta = cta_of(warp);
  uint32_t result[4][32];
  uint64_t addresses[32] = {};
  for (int m = 0; m < i.vector; ++m) {
    uint16_t rows[8][8];
    for (int r = 0; r < 8; ++r) {
      const int lane = m * 8 + r;
      const Site site{&warp, i.line, lane};
      const auto address = static_cast<uint32_t>(lane_address(warp, i, i.slot[i.vector], lane, i.offset));
      addresses[lane] = address;
      const std::byte* from = shared(cta, address, 16, 16, site);
      std::memcpy(rows[r], from, 16);
      if (from != refused_ && tracks_shared()) shared_read(cta, address, 16, collective(warp, site));
    }
    if (i.flag) transpose(rows, result[m]);
    else std::memcpy(result[m], rows, sizeof(rows));
  }
  for (int m = 0; m < i.vector; ++m) std::memcpy(lanes(warp, i.slot[m]), result[m], sizeof(result[m]));
  if (context_.options.profile)
    count_bank_conflicts(addresses, i.vector == 4 ? kAllLanes : (1u << (8 * i.vector)) - 1, 16);
}

void Cohort::store_matrix(Warp& warp, const Instruction& i) {
  Cta& cta = cta_of(warp);
  uint64_t addresses[32] = {};
  ++events_;
  for (int m = 0; m < i.vector; ++m) {
    uint16_t rows[8][8];
    uint32_t words[32];
    std::memcpy(words, lanes(warp, i.slot[1 + m]), sizeof(words));
    std::memcpy(rows, words, sizeof(rows));
    if (i.flag) transpose(rows, words), std::memcpy(rows, words, sizeof(rows));
    for (int r = 0; r < 8; ++r) {
      const int lane = m * 8 + r;
      const Site site{&warp, i.line, lane};
      const auto address = static_cast<uint32_t>(lane_address(warp, i, i.slot[0], lane, i.offset));
      addresses[lane] = address;
      std::byte* to = shared(cta, address, 16, 16, site);
      if (to != refused_ && tracks_shared()) shared_write(cta, address, 16, collective(warp, site));
      std::memcpy(to, rows[r], 16);
    }
  }
  if (context_.options.profile)
    count_bank_conflicts(addresses, i.vector == 4 ? kAllLanes : (1u << (8 * i.vector)) - 1, 16);
}

void Cohort::mma(Warp& warp, const Instruction& i) {
  const uint32_t* operands = warp.grid->program->operands(i);
  const int num_d = i.num_destinations, num_c = num_d;
  const int num_a_b = i.num_operands - num_d - num_c, num_b = num_a_b / 3, num_a = num_a_b - num_b;
  const uint32_t *a[4], *b[2], *c[4] = {};
  for (int r = 0; r < num_a; ++r) a[r] = lanes(warp, operands[num_d + r]);
  for (int r = 0; r < num_b; ++r) b[r] = lanes(warp, operands[num_d + num_a + r]);
  for (int r = 0; r < num_c; ++r) c[r] = lanes(warp, operands[num_d + num_a + num_b + r]);
  ++counters_.mma;
  SpreadA left;
  SpreadB right;
  spread_a(i.type, a, num_a, i.vector, left);
  spread_b(i.type2, b, num_b, i.vector, right);
  uint32_t* d[4] = {};
  for (int r = 0; r < num_d; ++r) d[r] = lanes(warp, operands[r]);
  multiply(accumulator_of(i.type, i.width, i.flag2), d, c, left, right, i.vector);
}

}  // namespace seqtile::sim
