// jit/codegen/nvptx/reductions.cpp -- reductions along one dimension: registers, then lanes, then warps.
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>

#include "jit/codegen/nvptx/program.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

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

/// The value of the lane whose number differs by `mask`.
Value* from_lane(Emitter& e, Value* value, int mask) {
  llvm::Type* type = value->getType();
  const unsigned bits = type->getPrimitiveSizeInBits();
  Value* word = bits == 32 ? e.b.CreateBitCast(value, e.b.getInt32Ty())
                           : e.b.CreateZExt(e.b.CreateBitCast(value, e.b.getIntNTy(bits)), e.b.getInt32Ty());
  word = e.b.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {}, {e.i32(-1), word, e.i32(mask), e.i32(31)});
  return bits == 32 ? e.b.CreateBitCast(word, type)
                    : e.b.CreateBitCast(e.b.CreateTrunc(word, e.b.getIntNTy(bits)), type);
}

}  // namespace

Value* Program::combine(const Op& op, Value* a, Value* b) {
  const std::string_view kind = op.string_attr("kind");
  const DType dtype = op.results[0]->type.dtype;
  const bool real = is_float(dtype);
  const auto wide = [&](Value* v) { return real ? e_.convert(v, dtype, dtype == DType::f64 ? dtype : DType::f32) : v; };
  a = wide(a), b = wide(b);
  Value* result = nullptr;
  if (kind == "sum") result = real ? e_.b.CreateFAdd(a, b) : e_.b.CreateAdd(a, b);
  if (kind == "prod") result = real ? e_.b.CreateFMul(a, b) : e_.b.CreateMul(a, b);
  if (kind == "any") result = e_.b.CreateOr(a, b);
  if (kind == "max" || kind == "min") {
    const auto id = real ? (kind == "max" ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum)
                         : (kind == "max" ? llvm::Intrinsic::smax : llvm::Intrinsic::smin);
    result = e_.b.CreateBinaryIntrinsic(id, a, b);
  }
  if (!result) fail(op, "has no lowering for kind " + std::string(kind));
  return real ? e_.convert(result, dtype == DType::f64 ? dtype : DType::f32, dtype) : result;
}

void Program::lower_reduce(const Op& op) {
  const ir::Value *source = op.operands[0], *result = op.results[0];
  const auto axis = static_cast<int>(op.int_attr("axis"));
  if (dtype_bytes(source->type.dtype) > 4) fail(op, "has no lowering for 64-bit elements");
  const LinearLayout whole = preferred(source), kept = whole.without(axis);
  const std::vector<Value*> values = pull(source, whole);
  Value* none = identity(e_, op.string_attr("kind"), source->type.dtype);

  // Registers that differ along the axis only belong to one result.
  std::map<std::pair<Coordinates, Coordinates>, Value*> sums;
  const auto key = [&](LinearLayout::Place place) {
    place.within[axis] = place.origin[axis] = 0;
    return std::pair{place.within, place.origin};
  };
  for (int reg = 0; reg < whole.num_registers(); ++reg) {
    if (whole.representative(reg) != reg) continue;
    Value* value = values[static_cast<size_t>(reg)];
    if (Value* inside = is_inside(whole, source->type, reg)) value = e_.b.CreateSelect(inside, value, none);
    auto [at, is_new] = sums.emplace(key(whole.place(reg)), value);
    if (!is_new) at->second = combine(op, at->second, value);
  }
  for (auto& [place, sum] : sums)
    for (int bit = 0; bit < 5; ++bit)
      if (whole.moves_along(LinearLayout::lanes, bit, axis)) sum = combine(op, sum, from_lane(e_, sum, 1 << bit));

  std::vector<Value*> partial;
  for (int reg = 0; reg < kept.num_registers(); ++reg) {
    LinearLayout::Place place = kept.place(reg);
    const auto insert = [&](Coordinates& c) {
      for (int d = kMaxRank - 1; d > axis; --d) c[d] = c[d - 1];
      c[axis] = 0;
    };
    insert(place.within), insert(place.origin);
    partial.push_back(sums.at({place.within, place.origin}));
  }
  const LinearLayout layout = kept;
  if (result->type.is_scalar()) {
    scalars_[result] = reduce_across_warps(op, whole, partial)[0];
    return;
  }
  preferred_.insert_or_assign(result, layout);
  hold(result, layout, reduce_across_warps(op, whole, partial));
}

// Each warp along the axis leaves its partial results in shared memory; every thread combines those of its rows.
std::vector<Value*> Program::reduce_across_warps(const Op& op, const LinearLayout& whole, std::vector<Value*> partial) {
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const auto warp_bits = static_cast<int>(whole.bases(LinearLayout::warps).size());
  std::vector<int> along;
  for (int bit = 0; bit < warp_bits; ++bit)
    if (whole.moves_along(LinearLayout::warps, bit, axis)) along.push_back(bit);
  if (along.empty()) return partial;

  const DType dtype = op.operands[0]->type.dtype;
  const LinearLayout kept = whole.without(axis);
  std::vector<size_t> distinct;
  for (size_t reg = 0; reg < partial.size(); ++reg)
    if (kept.representative(static_cast<int>(reg)) == static_cast<int>(reg)) distinct.push_back(reg);
  const int64_t threads = int64_t{e_.num_warps} * kLanes;
  Value* base = e_.scratch(static_cast<int64_t>(distinct.size()) * threads * dtype_bytes(dtype));
  const auto pointer = [&](size_t i, Value* thread) {
    return e_.element_pointer(base, e_.b.CreateAdd(thread, e_.i32(static_cast<int64_t>(i) * threads)), dtype);
  };
  e_.sync_before_scratch();
  for (size_t i = 0; i < distinct.size(); ++i) e_.store(dtype, pointer(i, e_.thread), {partial[distinct[i]]}, nullptr);
  e_.sync();
  std::vector<Value*> sums(distinct.size());
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
      Value* value = e_.load(dtype, pointer(i, thread), 1, nullptr, nullptr)[0];
      sums[i] = sums[i] ? combine(op, sums[i], value) : value;
    }
  }
  for (size_t i = 0; i < distinct.size(); ++i) partial[distinct[i]] = sums[i];
  for (size_t reg = 0; reg < partial.size(); ++reg)
    partial[reg] = partial[static_cast<size_t>(kept.representative(static_cast<int>(reg)))];
  return partial;
}

}  // namespace seqtile::nvptx
