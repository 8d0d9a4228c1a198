// jit/codegen/cpu/kernels/transpose_kernel.cpp -- rows of memory to panels of vectors along the rows; see
// micro_kernel.h.
// SPDX-License-Identifier: Apache-2.0
//
// Four units of k at a time: vector i holds them of rows i, 4 + i, 8 + i, .. in its 128-bit lanes, joined while they
// are loaded, so that two rounds of unpacking within lanes leave each unit of k with its rows in order:
//
//   {r0: k0 k1 k2 k3 | r4: ..}  {r1 | r5 ..}  {r2 | ..}  {r3 | ..}  ->  k0: {r0 r1 r2 r3 | r4 r5 ..}, k1: ..
#include <array>

#include "jit/base/assert.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"

namespace seqtile::cpu {
namespace {

using llvm::Value;

constexpr int kQuad = 4;  // units in a 128-bit lane

/// One vector of equal pieces of 64 or 128 bits.
Value* join(Emitter& e, const std::vector<Value*>& pieces) {
  auto* piece = llvm::cast<llvm::FixedVectorType>(pieces[0]->getType());
  const unsigned count = static_cast<unsigned>(pieces.size()), elements = piece->getNumElements();
  if (piece->getPrimitiveSizeInBits().getFixedValue() == 64) {  // as words: LLVM widens narrow vectors one by one
    Value* words = llvm::PoisonValue::get(llvm::FixedVectorType::get(e.b.getInt64Ty(), count));
    for (unsigned i = 0; i < count; ++i)
      words = e.b.CreateInsertElement(words, e.b.CreateBitCast(pieces[i], e.b.getInt64Ty()), uint64_t{i});
    return e.b.CreateBitCast(words, llvm::FixedVectorType::get(piece->getElementType(), count * elements));
  }
  std::vector<Value*> parts = pieces;
  for (; parts.size() > 1; parts.resize(parts.size() / 2))
    for (size_t i = 0; i < parts.size() / 2; ++i) {
      std::vector<int> order(2 * static_cast<size_t>(width_of(parts[2 * i])));
      for (size_t u = 0; u < order.size(); ++u) order[u] = static_cast<int>(u);
      parts[i] = e.b.CreateShuffleVector(parts[2 * i], parts[2 * i + 1], order);
    }
  return parts[0];
}

/// Transposes the 4 x 4 blocks that lie in equal 128-bit lanes of four vectors.
std::array<Value*, kQuad> transpose_lanes(Emitter& e, const std::array<Value*, kQuad>& r) {
  const auto in_lanes = [&](Value* a, Value* b, std::array<int, 4> pattern) {  // 0..3 from a, 4..7 from b, per lane
    std::vector<int> units;
    for (int g = 0; g < e.lanes / kQuad; ++g)
      for (int p : pattern) units.push_back(g * kQuad + p % kQuad + (p >= kQuad ? e.lanes : 0));
    return e.b.CreateShuffleVector(a, b, units);
  };
  Value *low01 = in_lanes(r[0], r[1], {0, 4, 1, 5}), *high01 = in_lanes(r[0], r[1], {2, 6, 3, 7});
  Value *low23 = in_lanes(r[2], r[3], {0, 4, 1, 5}), *high23 = in_lanes(r[2], r[3], {2, 6, 3, 7});
  return {in_lanes(low01, low23, {0, 1, 4, 5}), in_lanes(low01, low23, {2, 3, 6, 7}),
          in_lanes(high01, high23, {0, 1, 4, 5}), in_lanes(high01, high23, {2, 3, 6, 7})};
}

}  // namespace

llvm::Function* emit_transpose_kernel(Emitter& e, const TransposeKernel& kernel, const std::string& name) {
  llvm::IRBuilderBase::InsertPointGuard guard(e.b);
  llvm::Type *ptr = e.b.getPtrTy(), *index = e.b.getInt64Ty();
  llvm::Function* fn = e.private_function(name, {ptr, index, index, index, index, ptr, index});
  Value *source = fn->getArg(0), *stride = fn->getArg(1), *last = fn->getArg(2), *valid = fn->getArg(3);
  Value *total = fn->getArg(4), *panel = fn->getArg(5), *step_bytes = fn->getArg(6);
  e.b.SetInsertPoint(llvm::BasicBlock::Create(e.context, "entry", fn));

  const int64_t per_unit = elements_per_unit(kernel.compute);
  const int width = static_cast<int>(kQuad * per_unit), groups = e.lanes / kQuad;
  SEQTILE_ASSERT(groups * kQuad == e.lanes);
  const auto offset = [&](Value* base, Value* bytes) { return e.b.CreateInBoundsGEP(e.b.getInt8Ty(), base, bytes); };
  std::vector<Value*> sources;
  for (int i = 0; i < e.lanes; ++i) {
    Value* row = kernel.checks_rows ? e.min_i64(e.i64(i), last) : e.i64(i);
    sources.push_back(offset(source, e.b.CreateMul(row, stride)));
  }
  auto* units = llvm::FixedVectorType::get(e.b.getFloatTy(), static_cast<unsigned>(e.lanes));
  std::array<Value*, kQuad> exists{};  // of each vector, the lanes whose row there is
  for (int i = 0; i < kQuad; ++i) {
    std::vector<llvm::Constant*> rows;
    for (int u = 0; u < e.lanes; ++u) rows.push_back(e.b.getInt32(static_cast<uint32_t>(u / kQuad * kQuad + i)));
    Value* bound = e.b.CreateTrunc(e.min_i64(e.max_i64(last, e.i64(-1)), e.i64(e.lanes)), e.b.getInt32Ty());
    exists[static_cast<size_t>(i)] = e.b.CreateICmpSLE(llvm::ConstantVector::get(rows), e.splat(bound, e.lanes));
  }
  const auto block = [&](Value* k, Value* mask) {
    std::array<Value*, kQuad> rows{};
    for (int i = 0; i < kQuad; ++i) {
      std::vector<Value*> pieces;
      for (int g = 0; g < groups; ++g) {
        Value* at = e.element_ptr(sources[static_cast<size_t>(g * kQuad + i)], k, kernel.dtype);
        pieces.push_back(e.load(kernel.dtype, at, width, mask));
      }
      Value* row = join(e, pieces);
      if (kernel.compute == DType::f32) row = e.convert(row, kernel.dtype, DType::f32);
      row = e.b.CreateBitCast(row, units);
      if (kernel.checks_rows)
        row = e.b.CreateSelect(exists[static_cast<size_t>(i)], row, llvm::Constant::getNullValue(units));
      rows[static_cast<size_t>(i)] = row;
    }
    Value* target = offset(panel, e.b.CreateMul(e.b.CreateUDiv(k, e.i64(per_unit)), step_bytes));
    const std::array<Value*, kQuad> columns = transpose_lanes(e, rows);
    for (int i = 0; i < kQuad; ++i)
      e.b.CreateAlignedStore(columns[static_cast<size_t>(i)], offset(target, e.b.CreateMul(e.i64(i), step_bytes)),
                             llvm::Align(4));
  };
  Value* whole = kernel.has_tail ? e.b.CreateAnd(valid, e.i64(-width)) : total;
  e.loop(e.i64(0), whole, width, [&](Value* k) { block(k, nullptr); });
  if (kernel.has_tail)
    e.loop(whole, total, width, [&](Value* k) { block(k, e.lanes_below(e.b.CreateSub(valid, k), width)); });
  e.b.CreateRetVoid();
  return fn;
}

}  // namespace seqtile::cpu
