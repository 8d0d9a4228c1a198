// jit/codegen/nvptx/exchange.cpp -- where a layout's elements are, and tiles that change their layout.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>

#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using llvm::Value;

const std::array<Value*, kMaxRank>& Program::thread_share(const LinearLayout& layout) {
  for (const auto& [known, share] : shares_)
    if (known == layout) return share;
  // At the kernel's entry, so that every later block may use it.
  const llvm::IRBuilder<>::InsertPointGuard guard(e_.b);
  llvm::BasicBlock& entry = e_.function->getEntryBlock();
  if (llvm::Instruction* end = entry.getTerminator()) e_.b.SetInsertPoint(end);
  else e_.b.SetInsertPoint(&entry);
  std::array<Value*, kMaxRank> share{};
  for (int d = 0; d < kMaxRank; ++d) {
    Value* sum = e_.i32(0);
    for (const auto input : {LinearLayout::lanes, LinearLayout::warps}) {
      const auto bases = layout.bases(input);
      Value* index = input == LinearLayout::lanes ? e_.lane : e_.warp;
      for (size_t bit = 0; bit < bases.size();) {
        // A run of bits that move on by powers of two is one shift.
        const int32_t first = bases[bit][d];
        size_t end = bit + 1;
        while (first != 0 && end < bases.size() && bases[end][d] == first << (end - bit)) ++end;
        if (first != 0) {
          Value* part = e_.b.CreateAnd(e_.b.CreateLShr(index, e_.i32(static_cast<int64_t>(bit))),
                                       e_.i32((int64_t{1} << (end - bit)) - 1));
          sum = e_.b.CreateXor(sum, e_.b.CreateMul(part, e_.i32(first)));
        }
        bit = end;
      }
    }
    share[d] = sum;
  }
  return shares_.emplace_back(layout, share).second;
}

Value* Program::coordinate(const LinearLayout& layout, int reg, int axis) {
  const auto place = layout.place(reg);
  Value* share = thread_share(layout)[static_cast<size_t>(axis)];
  // Register bits are disjoint from the threads' in all layouts here, so that exclusive or is addition.
  return e_.b.CreateAdd(share, e_.i32(int64_t{place.within[axis]} + place.origin[axis]));
}

Value* Program::is_inside(const LinearLayout& layout, const ir::Type& type, int reg) {
  Value* inside = nullptr;
  const Coordinates core = layout.core_shape();
  const auto place = layout.place(reg);
  for (int d = 0; d < type.rank; ++d) {
    if (place.origin[d] + core[d] <= type.shape[d]) continue;
    Value* here = e_.b.CreateICmpSLT(coordinate(layout, reg, d), e_.i32(type.shape[d]));
    inside = inside ? e_.b.CreateAnd(inside, here) : here;
  }
  return inside;
}

Value* Program::both(Value* a, Value* b) { return !a ? b : !b ? a : e_.b.CreateAnd(a, b); }

Value* Program::is_writer(const LinearLayout& layout) {
  Value* writer = nullptr;
  for (const auto input : {LinearLayout::lanes, LinearLayout::warps}) {
    int64_t replicated = 0;
    const auto bases = layout.bases(input);
    for (size_t bit = 0; bit < bases.size(); ++bit)
      if (bases[bit] == Coordinates{}) replicated |= int64_t{1} << bit;
    if (replicated == 0) continue;
    Value* digits = e_.b.CreateAnd(input == LinearLayout::lanes ? e_.lane : e_.warp, e_.i32(replicated));
    writer = both(writer, e_.b.CreateICmpEQ(digits, e_.i32(0)));
  }
  return writer;
}

// Where a [rows, columns] tile lies that one layout writes to shared memory and another reads: the swizzle and padding
// that give a warp the fewest bank conflicts, and of those the smallest.
Staged Program::exchanged(const LinearLayout& from, const LinearLayout& to, int64_t bytes) const {
  const auto conflicts = [&](const LinearLayout& layout, const SharedLayout& memory) {
    const int width = std::min<int>(layout.widest_vector(1), static_cast<int>(16 / bytes));
    int sum = 0;
    for (int reg = 0; reg < std::min(layout.num_registers(), 4 * width); reg += width) {
      std::array<int64_t, kLanes> offsets;
      for (int lane = 0; lane < kLanes; ++lane) {
        const Coordinates at = layout.coordinates(reg, lane, 0);
        offsets[static_cast<size_t>(lane)] = memory.offset(at[0], at[1] * bytes);
      }
      sum += bank_conflicts(offsets, static_cast<int>(width * bytes));
    }
    return sum;
  };
  constexpr int64_t kChunk = 16, kBanks = 128;
  const Coordinates a = from.shape(), b = to.shape();
  const int64_t row_bytes = (std::max(a[1], b[1]) * bytes + kChunk - 1) / kChunk * kChunk;
  SharedLayout best(row_bytes);
  int least = std::numeric_limits<int>::max();
  for (int64_t padding = 0; padding < kBanks; padding += kChunk)
    for (const int chunks : {1, 2}) {
      const SharedLayout memory(row_bytes + padding, chunks);
      if (const int found = conflicts(from, memory) + conflicts(to, memory); found < least)
        least = found, best = memory;
    }
  return {best, std::max(a[0], b[0]), best.row_bytes() / bytes, bytes};
}

// Through shared memory, row-major.
std::vector<Value*> Program::convert(const Held& from, const LinearLayout& to, const ir::Type& type) {
  const Conversion way = conversion(from.layout, to);
  if (way == Conversion::none) return from.registers;
  if (way == Conversion::permute_registers) {
    std::vector<Value*> permuted;
    for (const int source : register_sources(from.layout, to))
      permuted.push_back(from.registers[static_cast<size_t>(source)]);
    return permuted;
  }

  const Coordinates a = from.layout.shape(), b = to.shape();
  const int last = type.rank - 1;
  const int64_t bytes = dtype_bytes(type.dtype);
  std::array<int64_t, kMaxRank> strides{};
  int64_t elements = 1;
  for (int d = last; d >= 0; --d) {
    strides[d] = elements;
    elements *= std::max(a[d], b[d]);
  }
  const std::optional<Staged> rows = type.rank == 2 ? std::optional(exchanged(from.layout, to, bytes)) : std::nullopt;
  Value* base = e_.scratch(rows ? rows->bytes() : elements * bytes);
  const auto pointer = [&](const LinearLayout& layout, int reg) {
    if (rows) return staged_pointer(*rows, coordinate(layout, reg, 0), coordinate(layout, reg, 1));
    Value* offset = e_.i32(0);
    for (int d = 0; d < type.rank; ++d)
      offset = e_.b.CreateAdd(offset, e_.b.CreateMul(coordinate(layout, reg, d), e_.i32(strides[d])));
    return e_.element_pointer(base, offset, type.dtype);
  };
  const auto width_of = [&](const LinearLayout& layout) {
    return std::min<int>(layout.widest_vector(last), static_cast<int>(16 / bytes));
  };
  e_.sync_before_scratch();
  for (int reg = 0, width = width_of(from.layout); reg < from.layout.num_registers(); reg += width) {
    if (from.layout.representative(reg) != reg) continue;
    const auto first = from.registers.begin() + reg;
    e_.store(type.dtype, pointer(from.layout, reg), {first, first + width}, is_writer(from.layout));
  }
  e_.sync();
  // Elements that only the result's overhang covers were not written.
  bool is_covered = true;
  for (int d = 0; d < type.rank; ++d) is_covered &= b[d] <= a[d];
  Value* none = llvm::Constant::getNullValue(e_.type_of(type.dtype));
  std::vector<Value*> result;
  for (int reg = 0, width = is_covered ? width_of(to) : std::gcd(width_of(to), static_cast<int>(type.shape[last]));
       reg < to.num_registers(); reg += width) {
    if (const int same = to.representative(reg); same != reg) {
      for (int i = 0; i < width; ++i) result.push_back(result[static_cast<size_t>(same + i)]);
      continue;
    }
    Value* inside = is_covered ? nullptr : is_inside(to, type, reg);
    for (Value* value : e_.load(type.dtype, pointer(to, reg), width, inside, none)) result.push_back(value);
  }
  return result;
}

}  // namespace seqtile::nvptx
