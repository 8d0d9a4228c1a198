// jit/codegen/cpu/kernels/micro_kernel.cpp -- see micro_kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/kernels/micro_kernel.h"

#include <bit>

#include "jit/base/assert.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace seqtile::cpu {
namespace {

using llvm::Value;

constexpr int kPrefetchRows = 4;

llvm::FixedVectorType* f32_vector(Emitter& e, int width) {
  return llvm::FixedVectorType::get(e.b.getFloatTy(), static_cast<unsigned>(width));
}

Value* byte_ptr(Emitter& e, Value* base, int64_t bytes) {
  return e.b.CreateConstInBoundsGEP1_64(e.b.getInt8Ty(), base, static_cast<uint64_t>(bytes));
}

// One element (or pair, which may start at any element) of a, in every lane.
Value* broadcast_unit(Emitter& e, DType compute, Value* ptr) {
  llvm::Type* unit = compute == DType::f32 ? e.b.getFloatTy() : static_cast<llvm::Type*>(e.b.getInt32Ty());
  Value* loaded = e.b.CreateAlignedLoad(unit, ptr, llvm::Align(static_cast<uint64_t>(dtype_bytes(compute))));
  return e.b.CreateVectorSplat(static_cast<unsigned>(e.lanes), loaded);
}

Value* load_units(Emitter& e, DType compute, Value* ptr) {
  llvm::Type* unit = compute == DType::f32 ? e.b.getFloatTy() : static_cast<llvm::Type*>(e.b.getInt32Ty());
  return e.b.CreateAlignedLoad(llvm::FixedVectorType::get(unit, static_cast<unsigned>(e.lanes)), ptr, llvm::Align(4));
}

}  // namespace

Value* multiply_add(Emitter& e, DType compute, Value* acc, Value* a, Value* b) {
  if (compute == DType::f32) return e.b.CreateFAdd(e.b.CreateFMul(a, b), acc);
  auto* pairs = llvm::FixedVectorType::get(e.b.getBFloatTy(), static_cast<unsigned>(2 * e.lanes));
  SEQTILE_ASSERT(e.lanes == 16);
  return e.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                             {acc, e.b.CreateBitCast(a, pairs), e.b.CreateBitCast(b, pairs)});
}

Value* load_compute(Emitter& e, DType dtype, DType compute, Value* ptr, Value* mask) {
  const int count = vector_elements(e, compute);
  Value* loaded = e.load(dtype, ptr, count, mask);
  return compute == DType::f32 ? e.convert(loaded, dtype, DType::f32) : loaded;
}

void prefetch(Emitter& e, Value* address) {
  constexpr int kRead = 0, kLevel2 = 2, kData = 1;
  e.b.CreateIntrinsic(llvm::Intrinsic::prefetch, {e.b.getPtrTy()},
                      {address, e.i32(kRead), e.i32(kLevel2), e.i32(kData)});
}

llvm::Function* emit_outer_kernel(Emitter& e, const OuterKernel& kernel, const std::string& name) {
  llvm::IRBuilderBase::InsertPointGuard guard(e.b);
  llvm::Type *ptr = e.b.getPtrTy(), *index = e.b.getInt64Ty();
  llvm::Function* fn = e.private_function(name, {ptr, index, ptr, ptr, index, e.b.getInt1Ty()});
  Value *a = fn->getArg(0), *a_stride = fn->getArg(1), *panel = fn->getArg(2), *c = fn->getArg(3);
  Value *steps = fn->getArg(4), *accumulate = fn->getArg(5);
  e.b.SetInsertPoint(llvm::BasicBlock::Create(e.context, "entry", fn));
  std::vector<Value*> rows;
  for (int i = 0; i < kernel.mr; ++i)
    rows.push_back(kernel.a_stride ? byte_ptr(e, a, i * kernel.a_stride * 4)
                                   : e.b.CreateInBoundsGEP(e.b.getInt8Ty(), a, e.b.CreateMul(a_stride, e.i64(i))));

  const int vectors = kernel.nv * kernel.weights;
  llvm::Type* a_units = e.b.getInt32Ty();
  if (kernel.a_step > 1) a_units = llvm::ArrayType::get(a_units, static_cast<uint64_t>(kernel.a_step));
  const int64_t panel_bytes = int64_t{kernel.panel_nv ? kernel.panel_nv : vectors} * e.lanes * 4;  // one step of k
  const auto step = [&](Value* k, int64_t u, std::vector<Value*>& acc) {
    Value* b_k =
        e.b.CreateInBoundsGEP(llvm::ArrayType::get(e.b.getInt8Ty(), static_cast<uint64_t>(panel_bytes)), panel, k);
    std::vector<Value*> row;
    for (int v = 0; v < vectors; ++v)
      row.push_back(load_units(e, kernel.compute, byte_ptr(e, b_k, u * panel_bytes + int64_t{v} * e.lanes * 4)));
    for (int i = 0; i < kernel.mr; ++i) {
      Value* at = e.b.CreateInBoundsGEP(a_units, rows[static_cast<size_t>(i)], k);
      Value* element = broadcast_unit(e, kernel.compute, byte_ptr(e, at, u * kernel.a_step * 4));
      for (int v = 0; v < vectors; ++v) {
        Value*& sum = acc[static_cast<size_t>(i * vectors + v)];
        sum = multiply_add(e, kernel.compute, sum, element, row[static_cast<size_t>(v)]);
      }
    }
  };
  std::vector<Value*> acc(static_cast<size_t>(kernel.mr * vectors),
                          llvm::Constant::getNullValue(f32_vector(e, e.lanes)));
  const int64_t unroll = acc.size() >= 16 ? 2 : 4;  // a step of many products hides the loop by itself
  Value* main = e.b.CreateAnd(steps, e.i64(-unroll));
  acc = e.loop(e.i64(0), main, e.i64(unroll), acc, [&](Value* k, std::vector<Value*> sums) {
    for (int64_t u = 0; u < unroll; ++u) step(k, u, sums);
    return sums;
  });
  acc = e.loop(main, steps, e.i64(1), acc, [&](Value* k, std::vector<Value*> sums) {
    step(k, 0, sums);
    return sums;
  });
  for (int i = 0; i < kernel.mr; ++i)
    for (int v = 0; v < vectors; ++v) {
      const int64_t element =
          i * kernel.c_stride + (v / kernel.nv) * kernel.c_weight_stride + (v % kernel.nv) * e.lanes;
      Value* address = byte_ptr(e, c, element * 4);
      Value* old = e.b.CreateAlignedLoad(f32_vector(e, e.lanes), address, llvm::Align(4));
      Value* sum = acc[static_cast<size_t>(i * vectors + v)];
      Value* base = e.b.CreateSelect(accumulate, old, llvm::Constant::getNullValue(old->getType()));
      e.b.CreateAlignedStore(e.b.CreateFAdd(sum, base), address, llvm::Align(4));
    }
  e.b.CreateRetVoid();
  return fn;
}

namespace {

// Sums of the lanes of every vector, as one vector of vectors.size() elements: stage s takes blocks of 2^s lanes from
// two vectors in turn and adds their halves, so that lane j mod count of the result belongs to vector j.
Value* lane_sums(Emitter& e, std::vector<Value*> vectors) {
  const size_t wanted = vectors.size();
  while (!std::has_single_bit(vectors.size())) vectors.push_back(llvm::Constant::getNullValue(vectors[0]->getType()));
  int block = 1;
  for (; vectors.size() > 1; block *= 2) {
    std::vector<int> low, high;
    for (int l = 0; l < e.lanes; ++l) {
      const int group = l / (2 * block), within = l % (2 * block);
      const int source = group * 2 * block + within % block + (within < block ? 0 : e.lanes);
      low.push_back(source), high.push_back(source + block);
    }
    std::vector<Value*> next;
    for (size_t i = 0; i < vectors.size(); i += 2)
      next.push_back(e.b.CreateFAdd(e.b.CreateShuffleVector(vectors[i], vectors[i + 1], low),
                                    e.b.CreateShuffleVector(vectors[i], vectors[i + 1], high)));
    vectors = std::move(next);
  }
  Value* sum = vectors[0];
  for (int width = e.lanes; width > block; width /= 2) {
    std::vector<int> low, high;
    for (int l = 0; l < width / 2; ++l) low.push_back(l), high.push_back(width / 2 + l);
    sum = e.b.CreateFAdd(e.b.CreateShuffleVector(sum, low), e.b.CreateShuffleVector(sum, high));
  }
  std::vector<int> first;
  for (size_t l = 0; l < wanted; ++l) first.push_back(static_cast<int>(l));
  return e.b.CreateShuffleVector(sum, first);
}

}  // namespace

llvm::Function* emit_dot_kernel(Emitter& e, const DotKernel& kernel, const std::string& name) {
  llvm::IRBuilderBase::InsertPointGuard guard(e.b);
  llvm::Type *ptr = e.b.getPtrTy(), *index = e.b.getInt64Ty();
  llvm::Function* fn = e.private_function(name, {ptr, ptr, index, index, ptr, index, index, e.b.getInt1Ty()});
  Value *a = fn->getArg(0), *w = fn->getArg(1), *w_stride = fn->getArg(2), *last = fn->getArg(3), *c = fn->getArg(4);
  Value *vectors = fn->getArg(5), *tail = fn->getArg(6), *accumulate = fn->getArg(7);
  e.b.SetInsertPoint(llvm::BasicBlock::Create(e.context, "entry", fn));

  const int width = vector_elements(e, kernel.compute);
  std::vector<Value*> rows;
  for (int j = 0; j < kernel.nr; ++j)
    rows.push_back(e.element_ptr(w, e.b.CreateMul(e.min_i64(e.i64(j), last), w_stride), kernel.w_dtype));
  Value* next_rows = e.b.CreateMul(w_stride, e.i64(kernel.nr * dtype_bytes(kernel.w_dtype)));
  const auto step = [&](Value* k, Value* mask, std::vector<Value*>& acc) {
    std::vector<Value*> weights;
    for (Value* row : rows) {
      Value* at = e.element_ptr(row, k, kernel.w_dtype);
      weights.push_back(load_compute(e, kernel.w_dtype, kernel.compute, at, mask));
      // The same place of the next rows: by the time this block of rows is done they are in L2. With few
      // multiplications for each load the hardware keeps up by itself, and the extra instructions cost 10 % (one row of
      // a).
      if (!mask && kernel.mr >= kPrefetchRows) prefetch(e, e.b.CreateInBoundsGEP(e.b.getInt8Ty(), at, next_rows));
    }
    for (int i = 0; i < kernel.mr; ++i) {
      Value* row = byte_ptr(e, a, i * kernel.a_stride * dtype_bytes(kernel.compute));
      Value* x = load_compute(e, kernel.compute, kernel.compute, e.element_ptr(row, k, kernel.compute), nullptr);
      for (int j = 0; j < kernel.nr; ++j) {
        Value*& sum = acc[static_cast<size_t>(i * kernel.nr + j)];
        sum = multiply_add(e, kernel.compute, sum, x, weights[static_cast<size_t>(j)]);
      }
    }
  };
  std::vector<Value*> acc(static_cast<size_t>(kernel.mr * kernel.nr),
                          llvm::Constant::getNullValue(f32_vector(e, e.lanes)));
  Value* end = e.b.CreateMul(vectors, e.i64(width));
  acc = e.loop(e.i64(0), end, e.i64(width), acc, [&](Value* k, std::vector<Value*> sums) {
    step(k, nullptr, sums);
    return sums;
  });
  if (kernel.has_tail)
    acc = e.loop(e.i64(0), e.min_i64(tail, e.i64(1)), e.i64(1), acc, [&](Value*, std::vector<Value*> sums) {
      step(end, e.lanes_below(tail, width), sums);
      return sums;
    });
  for (int i = 0; i < kernel.mr; ++i) {
    const auto first = acc.begin() + i * kernel.nr;
    Value* sums = lane_sums(e, {first, first + kernel.nr});
    Value* address = byte_ptr(e, c, i * kernel.c_stride * 4);
    Value* valid = e.b.CreateICmpSLE(e.lane_ids(e.b.getInt64Ty(), kernel.nr), e.splat(last, kernel.nr));
    if (kernel.nr == 1) valid = e.b.CreateVectorSplat(1, valid);
    Value* zero = llvm::Constant::getNullValue(sums->getType());
    Value* old = e.b.CreateAlignedLoad(sums->getType(), address, llvm::Align(4));
    sums = e.b.CreateFAdd(e.b.CreateSelect(valid, sums, zero), e.b.CreateSelect(accumulate, old, zero));
    e.b.CreateAlignedStore(sums, address, llvm::Align(4));
  }
  e.b.CreateRetVoid();
  return fn;
}

}  // namespace seqtile::cpu
