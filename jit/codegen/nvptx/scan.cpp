// jit/codegen/nvptx/scan.cpp -- inclusive prefix sums and maxima along one dimension.
// SPDX-License-Identifier: Apache-2.0
//
// The tile is asked for in a layout whose axis lies along a thread's registers, then the lanes, then repetitions, so
// that the whole of a line is in one warp. Then bit by bit of the position, from the lowest on: elements with the bit
// take in what the last element without it, and with all lower bits, has come to. Four elements:
//
//   a b c d  ->  a ab c cd  (bit 0: from 0, 2)  ->  a ab abc abcd  (bit 1: from 1)
#include <algorithm>
#include <bit>

#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using llvm::Value;

namespace {

constexpr int kNeighbours = 4;  ///< registers that a thread holds along the axis before lanes do

LinearLayout scan_layout(const ir::Type& type, int axis, int num_warps) {
  LinearLayout layout(type.rank);
  Coordinates next{1, 1, 1};
  const auto sides = [&](int d) { return static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(type.shape[d]))); };
  const auto take = [&](LinearLayout::Input input, int d) {
    Coordinates base{};
    base[d] = next[d], next[d] *= 2;
    layout.add(input, base);
  };
  while (next[axis] < std::min(kNeighbours, sides(axis))) take(LinearLayout::registers, axis);
  // Bits that the axis does not need go to the dimensions around it, the innermost first, or hold the same elements.
  const auto lay = [&](LinearLayout::Input input, int count, bool along_axis) {
    for (; count > 1; count /= 2) {
      int d = along_axis && next[axis] < sides(axis) ? axis : type.rank - 1;
      while (d >= 0 && next[d] >= (d == axis && !along_axis ? 1 : sides(d))) --d;
      if (d >= 0) take(input, d);
      else layout.add(input, {});
    }
  };
  lay(LinearLayout::lanes, kLanes, true);
  lay(LinearLayout::warps, num_warps, false);
  Coordinates repeats{1, 1, 1};
  for (int d = 0; d < type.rank; ++d) repeats[d] = static_cast<int32_t>((type.shape[d] + next[d] - 1) / next[d]);
  return layout.repeat(repeats);
}

}  // namespace

void Program::lower_scan(const Op& op) {
  const ir::Type& type = op.operands[0]->type;
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const std::string_view kind = op.string_attr("kind");
  const LinearLayout layout = scan_layout(type, axis, e_.num_warps);
  const DType wide = accumulator_of(type.dtype);
  std::vector<Value*> values = pull(op.operands[0], layout);
  for (Value*& value : values) value = e_.convert(value, type.dtype, wide);

  const size_t neighbours = size_t{1} << layout.bases(LinearLayout::registers).size();
  for (size_t bit = 1; bit < neighbours; bit *= 2)
    for (size_t reg = 0; reg < values.size(); ++reg)
      if (reg & bit) values[reg] = combine_values(e_, kind, values[(reg & ~bit) | (bit - 1)], values[reg]);
  scan_in_lanes(op, layout, values);

  for (Value*& value : values) value = e_.convert(value, wide, type.dtype);
  preferred_.insert_or_assign(op.results[0], layout);
  hold(op.results[0], layout, std::move(values));
}

// Between the lanes of a line, then from one repetition along the axis to the next.
void Program::scan_in_lanes(const Op& op, const LinearLayout& layout, std::vector<Value*>& values) {
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const std::string_view kind = op.string_attr("kind");
  const size_t neighbours = size_t{1} << layout.bases(LinearLayout::registers).size();
  int64_t below = 0;  // lane bits along the axis that are done
  for (int bit = 0; bit < 5; ++bit) {
    if (!layout.moves_along(LinearLayout::lanes, bit, axis)) continue;
    const int64_t mask = int64_t{1} << bit;
    Value* has_bit = e_.b.CreateICmpNE(e_.b.CreateAnd(e_.lane, e_.i32(mask)), e_.i32(0));
    Value* source = e_.b.CreateOr(e_.b.CreateAnd(e_.lane, e_.i32(~mask)), e_.i32(below));
    for (size_t first = 0; first < values.size(); first += neighbours) {
      Value* before = e_.shuffle(Emitter::Shuffle::idx, values[first + neighbours - 1], source);
      for (size_t reg = first; reg < first + neighbours; ++reg)
        values[reg] = e_.b.CreateSelect(has_bit, combine_values(e_, kind, before, values[reg]), values[reg]);
    }
    below |= mask;
  }
  const auto repetitions = static_cast<size_t>(layout.repeats()[axis]);
  size_t stride = neighbours;  // from one repetition along the axis to the next
  for (int d = axis + 1; d < kMaxRank; ++d) stride *= static_cast<size_t>(layout.repeats()[d]);
  Value* last = e_.b.CreateOr(e_.lane, e_.i32(below));
  for (size_t first = 0; first < values.size(); first += neighbours) {
    if (first / stride % repetitions == 0) continue;
    Value* before = e_.shuffle(Emitter::Shuffle::idx, values[first - stride + neighbours - 1], last);
    for (size_t reg = first; reg < first + neighbours; ++reg)
      values[reg] = combine_values(e_, kind, before, values[reg]);
  }
}

}  // namespace seqtile::nvptx
