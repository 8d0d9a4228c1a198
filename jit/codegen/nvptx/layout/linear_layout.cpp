// jit/codegen/nvptx/layout/linear_layout.cpp -- see linear_layout.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/layout/linear_layout.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "jit/base/assert.h"

#include <fmt/format.h>

namespace seqtile::nvptx {
namespace {

void combine(Coordinates& into, const Coordinates& other) {
  for (int d = 0; d < kMaxRank; ++d) into[d] ^= other[d];
}

bool is_zero(const Coordinates& c) { return c == Coordinates{}; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

LinearLayout& LinearLayout::add(Input input, Coordinates contribution) {
  bases_[input].push_back(contribution);
  return *this;
}

LinearLayout& LinearLayout::repeat(Coordinates counts) {
  repeats_ = counts;
  return *this;
}

int LinearLayout::num_registers() const {
  return (1 << bases_[registers].size()) * repeats_[0] * repeats_[1] * repeats_[2];
}

Coordinates LinearLayout::core_shape() const {
  Coordinates bits{};
  for (const auto& bases : bases_)
    for (const Coordinates& base : bases)
      for (int d = 0; d < rank_; ++d) bits[d] |= base[d];
  Coordinates shape{1, 1, 1};
  for (int d = 0; d < rank_; ++d) shape[d] = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(bits[d]) + 1));
  return shape;
}

Coordinates LinearLayout::shape() const {
  Coordinates shape = core_shape();
  for (int d = 0; d < kMaxRank; ++d) shape[d] *= repeats_[d];
  return shape;
}

LinearLayout::Place LinearLayout::place(int reg) const {
  Place place;
  const auto& bases = bases_[registers];
  for (size_t bit = 0; bit < bases.size(); ++bit)
    if (reg >> bit & 1) combine(place.within, bases[bit]);
  int repetition = reg >> bases.size();
  const Coordinates core = core_shape();
  for (int d = kMaxRank - 1; d >= 0; --d) {
    place.origin[d] = repetition % repeats_[d] * core[d];
    repetition /= repeats_[d];
  }
  return place;
}

Coordinates LinearLayout::coordinates(int reg, int lane, int warp) const {
  Place at = place(reg);
  for (size_t bit = 0; bit < bases_[lanes].size(); ++bit)
    if (lane >> bit & 1) combine(at.within, bases_[lanes][bit]);
  for (size_t bit = 0; bit < bases_[warps].size(); ++bit)
    if (warp >> bit & 1) combine(at.within, bases_[warps][bit]);
  for (int d = 0; d < kMaxRank; ++d) at.within[d] += at.origin[d];
  return at.within;
}

int LinearLayout::representative(int reg) const {
  const auto& bases = bases_[registers];
  for (size_t bit = 0; bit < bases.size(); ++bit)
    if (is_zero(bases[bit])) reg &= ~(1 << bit);
  return reg;
}

LinearLayout LinearLayout::without(int axis) const {
  LinearLayout result = collapsed(axis);
  const auto drop = [&](Coordinates& c, int32_t filler) {
    for (int d = axis; d + 1 < kMaxRank; ++d) c[d] = c[d + 1];
    c[kMaxRank - 1] = filler;
  };
  for (auto& bases : result.bases_)
    for (Coordinates& base : bases) drop(base, 0);
  drop(result.repeats_, 1);
  --result.rank_;
  return result;
}

LinearLayout LinearLayout::collapsed(int axis) const {
  LinearLayout result = *this;
  for (auto& bases : result.bases_)
    for (Coordinates& base : bases) base[axis] = 0;
  result.repeats_[axis] = 1;
  return result;
}

LinearLayout LinearLayout::with(int axis) const {
  LinearLayout result = *this;
  const auto insert = [&](Coordinates& c, int32_t value) {
    for (int d = kMaxRank - 1; d > axis; --d) c[d] = c[d - 1];
    c[axis] = value;
  };
  for (auto& bases : result.bases_)
    for (Coordinates& base : bases) insert(base, 0);
  insert(result.repeats_, 1);
  ++result.rank_;
  return result;
}

LinearLayout LinearLayout::permuted(std::span<const int64_t> permutation) const {
  LinearLayout result = *this;
  const auto permute = [&](Coordinates& c) {
    const Coordinates old = c;
    for (size_t i = 0; i < permutation.size(); ++i) c[i] = old[static_cast<size_t>(permutation[i])];
  };
  for (auto& bases : result.bases_)
    for (Coordinates& base : bases) permute(base);
  permute(result.repeats_);
  return result;
}

LinearLayout LinearLayout::doubled(int axis) const {
  LinearLayout result = *this;
  for (auto& bases : result.bases_)
    for (Coordinates& base : bases) base[axis] *= 2;
  Coordinates lowest{};
  lowest[axis] = 1;
  result.bases_[registers].insert(result.bases_[registers].begin(), lowest);
  return result;
}

std::optional<LinearLayout> LinearLayout::halved(int axis) const {
  if (widest_vector(axis) < 2) return std::nullopt;
  LinearLayout result = *this;
  result.bases_[registers].erase(result.bases_[registers].begin());
  for (auto& bases : result.bases_)
    for (Coordinates& base : bases) {
      if (base[axis] & 1) return std::nullopt;
      base[axis] /= 2;
    }
  return result;
}

int LinearLayout::widest_vector(int axis) const {
  int width = 1;
  for (const Coordinates& base : bases_[registers]) {
    Coordinates next{};
    next[axis] = width;
    if (base != next) break;
    width *= 2;
  }
  return width;
}

bool LinearLayout::moves_along(Input input, int bit, int axis) const {
  Coordinates other = bases_[input][static_cast<size_t>(bit)];
  const bool moves = other[axis] != 0;
  other[axis] = 0;
  return moves && is_zero(other);
}

std::string LinearLayout::text() const {
  static constexpr const char* kNames[kInputs] = {"r", "l", "w"};
  std::string text;
  const auto put = [&](const Coordinates& c) {
    for (int d = 0; d < rank_; ++d) text += fmt::format("{}{}", d ? "," : " ", c[d]);
  };
  for (int i = 0; i < kInputs; ++i) {
    text += fmt::format("{}{}:", i ? " | " : "", kNames[i]);
    for (const Coordinates& base : bases_[i]) put(base);
  }
  text += " x";
  put(repeats_);
  return text;
}

LinearLayout blocked_layout(std::span<const int64_t> shape, int vector, int num_warps) {
  const int rank = static_cast<int>(shape.size()), last = rank - 1;
  const auto divisor = [&](int d) { return int64_t{1} << std::countr_zero(static_cast<uint64_t>(shape[d])); };
  Coordinates limits{1, 1, 1};  // of one repetition: powers of two that divide the sides
  int64_t others = 1;
  for (int d = 0; d < last; ++d) limits[d] = static_cast<int32_t>(divisor(d)), others *= divisor(d);
  // A row overhangs where its divisor leaves threads without work.
  const int64_t wanted = ceil_div(int64_t{kLanes} * num_warps * vector, others);
  const auto cover = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(shape[last])));
  limits[last] = static_cast<int32_t>(std::max(divisor(last), std::min(cover, wanted)));

  LinearLayout layout(rank);
  Coordinates next{1, 1, 1};  // the first coordinate bit of each dimension that is not taken
  const auto take = [&](LinearLayout::Input input, int count, int d) {
    for (; count > 1; count /= 2) {
      while (d >= 0 && next[d] >= limits[d]) --d;
      if (d < 0 && input == LinearLayout::registers) return;
      Coordinates base{};
      if (d >= 0) base[d] = next[d], next[d] *= 2;  // else the tile is replicated along this bit
      layout.add(input, base);
    }
  };
  take(LinearLayout::registers, static_cast<int>(std::min<int64_t>(vector, limits[last])), last);
  take(LinearLayout::lanes, kLanes, last);
  take(LinearLayout::warps, num_warps, last);
  Coordinates repeats{1, 1, 1};
  for (int d = 0; d < rank; ++d) repeats[d] = static_cast<int32_t>(ceil_div(shape[d], next[d]));
  return layout.repeat(repeats);
}

LinearLayout mma_layout(int64_t m, int64_t n, int warps_m, int warps_n) {
  LinearLayout layout(2);
  layout.add(LinearLayout::registers, {0, 1}).add(LinearLayout::registers, {8, 0});
  layout.add(LinearLayout::lanes, {0, 2}).add(LinearLayout::lanes, {0, 4});
  layout.add(LinearLayout::lanes, {1, 0}).add(LinearLayout::lanes, {2, 0}).add(LinearLayout::lanes, {4, 0});
  int32_t row = 16, column = 8;
  for (; warps_n > 1; warps_n /= 2, column *= 2) layout.add(LinearLayout::warps, {0, column});
  for (; warps_m > 1; warps_m /= 2, row *= 2) layout.add(LinearLayout::warps, {row, 0});
  return layout.repeat({static_cast<int32_t>(ceil_div(m, row)), static_cast<int32_t>(ceil_div(n, column)), 1});
}

LinearLayout mma_operand_layout(int64_t m, int64_t k, int warps_m, int warps_n) {
  LinearLayout layout(2);
  layout.add(LinearLayout::registers, {0, 1}).add(LinearLayout::registers, {8, 0}).add(LinearLayout::registers, {0, 8});
  layout.add(LinearLayout::lanes, {0, 2}).add(LinearLayout::lanes, {0, 4});
  layout.add(LinearLayout::lanes, {1, 0}).add(LinearLayout::lanes, {2, 0}).add(LinearLayout::lanes, {4, 0});
  int32_t row = 16;
  for (; warps_n > 1; warps_n /= 2) layout.add(LinearLayout::warps, {});
  for (; warps_m > 1; warps_m /= 2, row *= 2) layout.add(LinearLayout::warps, {row, 0});
  return layout.repeat({static_cast<int32_t>(ceil_div(m, row)), static_cast<int32_t>(ceil_div(k, 16)), 1});
}

bool is_held_once(const LinearLayout& layout) {
  for (const auto input : {LinearLayout::lanes, LinearLayout::warps})
    for (const Coordinates& base : layout.bases(input))
      if (is_zero(base)) return false;
  return true;
}

std::vector<int> register_sources(const LinearLayout& from, const LinearLayout& to) {
  // Thread shares that differ only by registers' bits are the same elements in another order.
  std::map<Coordinates, int> holder;
  for (int reg = 0; reg < from.num_registers(); ++reg) holder.emplace(from.coordinates(reg, 0, 0), reg);
  std::vector<int> sources;
  for (int reg = 0; reg < to.num_registers(); ++reg) {
    const auto at = holder.find(to.coordinates(reg, 0, 0));
    if (at == holder.end()) return {};
    sources.push_back(at->second);
  }
  return sources;
}

Conversion conversion(const LinearLayout& from, const LinearLayout& to) {
  if (from == to) return Conversion::none;
  for (const auto input : {LinearLayout::lanes, LinearLayout::warps}) {
    const auto a = from.bases(input), b = to.bases(input);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) return Conversion::shared_memory;
  }
  return register_sources(from, to).empty() ? Conversion::shared_memory : Conversion::permute_registers;
}

SharedLayout::SharedLayout(int64_t row_bytes, int chunks) : row_bytes_(row_bytes) {
  constexpr int64_t kChunk = 16, kBanks = 128;
  SEQTILE_ASSERT(row_bytes > 0 && row_bytes % kChunk == 0 && (chunks == 1 || chunks == 2));
  const int64_t atom = std::min(kBanks, row_bytes & -row_bytes);
  row_shift_ = std::countr_zero(static_cast<uint64_t>(kBanks / atom));
  byte_shift_ = std::countr_zero(static_cast<uint64_t>(kChunk * chunks));
  byte_mask_ = atom - kChunk;
}

int bank_conflicts(std::span<const int64_t> offsets, int vector_bytes) {
  constexpr int kBanks = 32, kBankBytes = 4;
  // 128 bytes go at once: all lanes at 4 bytes, half a warp at 8, a quarter at 16.
  const size_t group = static_cast<size_t>(std::max(1, kBanks * kBankBytes / std::max(vector_bytes, kBankBytes)));
  int extra = 0;
  for (size_t first = 0; first < offsets.size(); first += group) {
    std::array<std::set<int64_t>, kBanks> words;
    for (size_t i = first; i < std::min(first + group, offsets.size()); ++i)
      for (int byte = 0; byte < vector_bytes; byte += kBankBytes) {
        const int64_t word = (offsets[i] + byte) / kBankBytes;
        words[static_cast<size_t>(word % kBanks)].insert(word);
      }
    size_t passes = 1;
    for (const auto& bank : words) passes = std::max(passes, bank.size());
    extra += static_cast<int>(passes) - 1;
  }
  return extra;
}

}  // namespace seqtile::nvptx
