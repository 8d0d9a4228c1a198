// jit/sim/matrix_ops.cpp -- ldmatrix, stmatrix and mma.sync.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "jit/sim/cohort.h"
#include "jit/sim/mma_core.h"

namespace seqtile::sim {
namespace {

typedef float LaneFloat __attribute__((may_alias));
typedef uint16_t LaneHalf __attribute__((may_alias));

void transpose(const uint16_t (&from)[8][8], uint32_t* to) {
  for (int row = 0; row < 8; ++row)
    for (int pair = 0; pair < 4; ++pair)
      to[row * 4 + pair] = from[2 * pair][row] | uint32_t{from[2 * pair + 1][row]} << 16;
}

/// s8 and u8 with exact 32-bit sums, which wrap or (`saturate`) stick to the ends.
void multiply_integers(const Instruction& i, const uint32_t* const* a, const uint32_t* const* b,
                       const uint32_t* const* c, uint32_t (&d)[4][32]) {
  const auto element = [](uint32_t word, int index, PtxType type) -> int32_t {
    const uint32_t byte = word >> (8 * index) & 0xff;
    return type == PtxType::s8 ? static_cast<int8_t>(byte) : static_cast<int32_t>(byte);
  };
  for (int r = 0; r < 4; ++r)
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane >> 2, column = 2 * (lane & 3) + (r & 1);
      int64_t sum = static_cast<int32_t>(c[r][lane]);
      for (int k = 0; k < 32; ++k) {
        const int t = (k & 15) / 4, j = k & 3;
        sum += element(a[(r >> 1) + 2 * (k >> 4)][4 * row + t], j, i.type) *
               element(b[k >> 4][4 * column + t], j, i.type2);
      }
      if (i.flag2) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
      d[r][lane] = static_cast<uint32_t>(sum);
    }
}

}  // namespace

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
      const std::byte* from = shared(cta, address, 16, site);
      std::memcpy(rows[r], from, 16);
      if (from != refused_ && tracks_shared())
        shared_read(cta, address, 16, static_cast<uint32_t>(warp.id), warp.clock, site, false);
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
      std::byte* to = shared(cta, address, 16, site);
      if (to != refused_ && tracks_shared())
        shared_write(cta, address, 16, static_cast<uint32_t>(warp.id), warp.clock, site, false);
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
  const uint32_t *a[4], *b[2], *c[4];
  for (int r = 0; r < num_a; ++r) a[r] = lanes(warp, operands[num_d + r]);
  for (int r = 0; r < num_b; ++r) b[r] = lanes(warp, operands[num_d + num_a + r]);
  for (int r = 0; r < num_c; ++r) c[r] = lanes(warp, operands[num_d + num_a + num_b + r]);
  ++counters_.mma;
  if (i.type == PtxType::s8 || i.type == PtxType::u8) {
    uint32_t d[4][32];
    multiply_integers(i, a, b, c, d);
    for (int r = 0; r < 4; ++r) std::memcpy(lanes(warp, operands[r]), d[r], sizeof(d[r]));
    return;
  }
  SpreadA spread_left;
  SpreadB spread_right;
  spread_a(i.type, a, num_a, i.vector, spread_left);
  spread_b(i.type2, b, num_b, i.vector, spread_right);
  alignas(64) float sums[4][32];
  float* d[4];
  const float* start[4];
  for (int r = 0; r < 4; ++r) {
    d[r] = i.flag ? sums[r] : reinterpret_cast<LaneFloat*>(lanes(warp, operands[r]));
    start[r] = i.flag ? sums[r] : reinterpret_cast<const LaneFloat*>(c[r]);
    if (i.flag)  // half accumulators: two in a register
      for (int lane = 0; lane < 32; ++lane) sums[r][lane] = half_to_float(c[r >> 1][lane] >> (16 * (r & 1)) & 0xffff);
  }
  mma_functions().multiply(d, start, spread_left, spread_right, i.vector);
  if (!i.flag) return;
  for (int r = 0; r < 2; ++r)
    for (int lane = 0; lane < 32; ++lane)
      lanes(warp, operands[r])[lane] = float_to_half(sums[2 * r][lane]) | float_to_half(sums[2 * r + 1][lane]) << 16;
}

}  // namespace seqtile::sim
