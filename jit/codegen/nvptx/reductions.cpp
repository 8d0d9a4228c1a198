// jit/codegen/nvptx/reductions.cpp -- reductions along one dimension: registers, then lanes, then warps.
// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats are reduced in f32. argreduce carries the index beside the value; every thread comes to the same
// result because the order of the candidates is total: numbers before NaN, then the value, then the lower index.
#include <limits>
#include <map>

#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

using Partial = std::vector<Value*>;

Value* identity(Emitter& e, std::string_view kind, DType dtype) {
  llvm::Type* type = e.type_of(dtype);
  if (is_float(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return llvm::ConstantFP::get(type, kind == "max"    ? -kInfinity
                                       : kind == "min"  ? kInfinity
                                       : kind == "prod" ? 1.0
                                                        : 0.0);
  }
  const unsigned bits = type->getIntegerBitWidth();
  if (kind == "max") return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(bits));
  if (kind == "min") return llvm::ConstantInt::get(type, llvm::APInt::getSignedMaxValue(bits));
  return llvm::ConstantInt::get(type, kind == "prod" ? 1 : 0);
}

/// The start of a reduction: a value that loses against every element.
Partial losing(Emitter& e, const Op& op, DType dtype) {
  if (op.kind == OpKind::reduce) return {identity(e, op.string_attr("kind"), dtype)};
  Value* nothing =
      is_float(dtype) ? llvm::ConstantFP::getNaN(e.type_of(dtype)) : identity(e, op.string_attr("kind"), dtype);
  return {nothing, e.i32(std::numeric_limits<int32_t>::max())};
}

/// Whether `x` comes before `y` by value alone.
Value* beats(llvm::IRBuilder<>& b, bool takes_max, Value* x, Value* y) {
  if (!x->getType()->isFloatingPointTy()) return takes_max ? b.CreateICmpSGT(x, y) : b.CreateICmpSLT(x, y);
  Value* is_beyond = takes_max ? b.CreateFCmpUGT(x, y) : b.CreateFCmpULT(x, y);  // holds where one is NaN
  return b.CreateAnd(is_beyond, b.CreateFCmpORD(x, x));
}

std::vector<DType> partial_types(const Op& op) {
  const DType dtype = accumulator_of(op.operands[0]->type.dtype);
  if (op.kind == OpKind::reduce) return {dtype};
  return {dtype, DType::i32};
}

}  // namespace

DType accumulator_of(DType dtype) { return is_float(dtype) && dtype_bytes(dtype) == 2 ? DType::f32 : dtype; }

Value* combine_values(Emitter& e, std::string_view kind, Value* a, Value* b) {
  const bool real = a->getType()->isFloatingPointTy();
  if (kind == "sum") return real ? e.b.CreateFAdd(a, b) : e.b.CreateAdd(a, b);
  if (kind == "prod") return real ? e.b.CreateFMul(a, b) : e.b.CreateMul(a, b);
  if (kind == "any") return e.b.CreateOr(a, b);
  const auto id = real ? (kind == "max" ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum)
                       : (kind == "max" ? llvm::Intrinsic::smax : llvm::Intrinsic::smin);
  return e.b.CreateBinaryIntrinsic(id, a, b);
}

Program::Partial Program::combine(const Op& op, const Partial& a, const Partial& b) {
  const std::string_view kind = op.string_attr("kind");
  if (op.kind == OpKind::reduce) return {combine_values(e_, kind, a[0], b[0])};
  Value* b_wins = beats(e_.b, kind == "max", b[0], a[0]);
  Value* is_lower =
      e_.b.CreateAnd(e_.b.CreateNot(beats(e_.b, kind == "max", a[0], b[0])), e_.b.CreateICmpSLT(b[1], a[1]));
  b_wins = e_.b.CreateOr(b_wins, is_lower);
  return {e_.b.CreateSelect(b_wins, b[0], a[0]), e_.b.CreateSelect(b_wins, b[1], a[1])};
}

void Program::lower_reduce(const Op& op) {
  const LinearLayout whole = preferred(op.operands[0]);
  const LinearLayout kept = whole.without(static_cast<int>(op.int_attr("axis")));
  const std::vector<Partial> partial = reduce_across_warps(op, whole, reduce_in_warp(op, whole));
  const std::vector<DType> types = partial_types(op);
  for (size_t part = 0; part < op.results.size(); ++part) {
    const ir::Value* result = op.results[part];
    std::vector<Value*> registers;
    for (const Partial& each : partial) registers.push_back(e_.convert(each[part], types[part], result->type.dtype));
    if (result->type.is_scalar()) {
      scalars_[result] = registers[0];
      continue;
    }
    preferred_.insert_or_assign(result, kept);
    hold(result, kept, std::move(registers));
  }
}

// For each register of the result what this warp's lanes have along the axis.
std::vector<Program::Partial> Program::reduce_in_warp(const Op& op, const LinearLayout& whole) {
  const ir::Type& type = op.operands[0]->type;
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const DType dtype = accumulator_of(type.dtype);
  const std::vector<Value*> values = pull(op.operands[0], whole);
  const Partial none = losing(e_, op, dtype);

  // Registers that differ along the axis only belong to one result.
  std::map<std::pair<Coordinates, Coordinates>, Partial> sums;
  const auto key = [&](LinearLayout::Place place) {
    place.within[axis] = place.origin[axis] = 0;
    return std::pair{place.within, place.origin};
  };
  for (int reg = 0; reg < whole.num_registers(); ++reg) {
    if (whole.representative(reg) != reg) continue;
    Partial element{e_.convert(values[static_cast<size_t>(reg)], type.dtype, dtype)};
    if (op.kind == OpKind::argreduce) element.push_back(coordinate(whole, reg, axis));
    if (Value* inside = is_inside(whole, type, reg))
      for (size_t i = 0; i < element.size(); ++i) element[i] = e_.b.CreateSelect(inside, element[i], none[i]);
    auto [at, is_new] = sums.emplace(key(whole.place(reg)), element);
    if (!is_new) at->second = combine(op, at->second, element);
  }
  for (auto& [place, sum] : sums)
    for (int bit = 0; bit < 5; ++bit) {
      if (!whole.moves_along(LinearLayout::lanes, bit, axis)) continue;
      Partial other;
      for (Value* part : sum) other.push_back(e_.shuffle(Emitter::Shuffle::bfly, part, e_.i32(int64_t{1} << bit)));
      sum = combine(op, sum, other);
    }

  const LinearLayout kept = whole.without(axis);
  std::vector<Partial> partial;
  for (int reg = 0; reg < kept.num_registers(); ++reg) {
    LinearLayout::Place place = kept.place(reg);
    const auto insert = [&](Coordinates& c) {
      for (int d = kMaxRank - 1; d > axis; --d) c[d] = c[d - 1];
      c[axis] = 0;
    };
    insert(place.within), insert(place.origin);
    partial.push_back(sums.at({place.within, place.origin}));
  }
  return partial;
}

// Each warp along the axis leaves its partial results in shared memory; every thread combines those of its rows.
std::vector<Program::Partial> Program::reduce_across_warps(const Op& op, const LinearLayout& whole,
                                                           std::vector<Partial> partial) {
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const auto warp_bits = static_cast<int>(whole.bases(LinearLayout::warps).size());
  std::vector<int> along;
  for (int bit = 0; bit < warp_bits; ++bit)
    if (whole.moves_along(LinearLayout::warps, bit, axis)) along.push_back(bit);
  if (along.empty()) return partial;

  const std::vector<DType> types = partial_types(op);
  const LinearLayout kept = whole.without(axis);
  std::vector<size_t> distinct;
  for (size_t reg = 0; reg < partial.size(); ++reg)
    if (kept.representative(static_cast<int>(reg)) == static_cast<int>(reg)) distinct.push_back(reg);
  const int64_t threads = int64_t{e_.num_warps} * kLanes, count = static_cast<int64_t>(distinct.size()) * threads;
  const auto pointer = [&](size_t part, size_t i, Value* thread) {
    const int64_t first = part == 0 ? 0 : count * dtype_bytes(types[0]) / dtype_bytes(types[part]);
    Value* index = e_.b.CreateAdd(thread, e_.i32(first + static_cast<int64_t>(i) * threads));
    return e_.element_pointer(e_.scratch(0), index, types[part]);
  };
  int64_t bytes = 0;
  for (const DType type : types) bytes += count * dtype_bytes(type);
  e_.scratch(bytes);
  e_.sync_before_scratch();
  for (size_t i = 0; i < distinct.size(); ++i)
    for (size_t part = 0; part < types.size(); ++part)
      e_.store(types[part], pointer(part, i, e_.thread), {partial[distinct[i]][part]}, nullptr);
  e_.sync();
  std::vector<Partial> sums(distinct.size());
  for (int other = 0; other < 1 << along.size(); ++other) {
    // The same lane of the warp whose number has these bits along the axis.
    int64_t mask = 0, bits = 0;
    for (size_t i = 0; i < along.size(); ++i) {
      mask |= int64_t{1} << along[i];
      if (other >> i & 1) bits |= int64_t{1} << along[i];
    }
    Value* warp = e_.b.CreateOr(e_.b.CreateAnd(e_.warp, e_.i32(~mask)), e_.i32(bits));
    Value* thread = e_.b.CreateOr(e_.b.CreateShl(warp, e_.i32(5)), e_.lane);
    for (size_t i = 0; i < distinct.size(); ++i) {
      Partial value;
      for (size_t part = 0; part < types.size(); ++part)
        value.push_back(e_.load(types[part], pointer(part, i, thread), 1, nullptr, nullptr)[0]);
      sums[i] = sums[i].empty() ? value : combine(op, sums[i], value);
    }
  }
  for (size_t i = 0; i < distinct.size(); ++i) partial[distinct[i]] = sums[i];
  for (size_t reg = 0; reg < partial.size(); ++reg)
    partial[reg] = partial[static_cast<size_t>(kept.representative(static_cast<int>(reg)))];
  return partial;
}

}  // namespace seqtile::nvptx
