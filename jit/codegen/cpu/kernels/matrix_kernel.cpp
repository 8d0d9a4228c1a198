// jit/codegen/cpu/kernels/matrix_kernel.cpp -- the outer-product kernel in matrix registers (AMX); see micro_kernel.h.
// SPDX-License-Identifier: Apache-2.0
//
// A matrix register has 16 rows of 16 units. A row of a panel is a row of one, so is a row of a: both are read where
// they lie, and one instruction multiplies 16 steps of k of 16 rows with 16 columns.
#include <array>
#include <functional>

#include "jit/base/assert.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace seqtile::cpu {

using llvm::Value;

void configure_matrix_registers(Emitter& e) {
  constexpr size_t kColumnBytes = 16, kRows = 48;  // palette 1: where the sizes of register r are, 2 and 1 bytes each
  std::array<uint8_t, 64> shapes{1};
  for (size_t r = 0; r < kMatrixRegisters; ++r)
    shapes[kColumnBytes + 2 * r] = 4 * kMatrixRows, shapes[kRows + r] = kMatrixRows;
  llvm::Constant* text = llvm::ConstantDataArray::get(e.context, shapes);
  auto* variable = llvm::cast<llvm::GlobalVariable>(e.module.getOrInsertGlobal("matrix_shapes", text->getType()));
  variable->setConstant(true);
  variable->setLinkage(llvm::GlobalValue::PrivateLinkage);
  variable->setInitializer(text);
  variable->setAlignment(llvm::Align(64));
  e.b.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {variable});
}

void release_matrix_registers(Emitter& e) { e.b.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {}); }

llvm::Function* emit_matrix_kernel(Emitter& e, const OuterKernel& kernel, const std::string& name) {
  llvm::IRBuilderBase::InsertPointGuard guard(e.b);
  llvm::Type *ptr = e.b.getPtrTy(), *index = e.b.getInt64Ty();
  llvm::Function* fn = e.private_function(name, {ptr, index, ptr, ptr, index, e.b.getInt1Ty()});
  Value *a = fn->getArg(0), *panel = fn->getArg(2), *c = fn->getArg(3);
  Value *steps = fn->getArg(4), *accumulate = fn->getArg(5);
  e.b.SetInsertPoint(llvm::BasicBlock::Create(e.context, "entry", fn));
  Value* a_stride = kernel.a_stride ? e.i64(kernel.a_stride * 4) : fn->getArg(1);

  const int rows = kernel.mr / kMatrixRows, columns = kernel.nv * kernel.weights;
  SEQTILE_ASSERT(kernel.compute == DType::bf16 && kernel.a_step == 1 && kernel.mr % kMatrixRows == 0 &&
                 e.lanes == kMatrixRows && matrix_registers(kernel.mr, columns) <= kMatrixRegisters);
  const auto reg = [&](int number) { return e.b.getInt8(static_cast<uint8_t>(number)); };
  const auto sum = [&](int i, int v) { return reg(i * columns + v); };
  const auto left = [&](int i) { return reg(rows * columns + i); };
  const auto right = [&](int v) { return reg(rows * columns + rows + v); };
  const auto at = [&](Value* base, Value* bytes) { return e.b.CreateInBoundsGEP(e.b.getInt8Ty(), base, bytes); };
  const auto load = [&](Value* target, Value* address, Value* stride) {
    e.b.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {}, {target, address, stride});
  };
  const auto each_sum = [&](const std::function<void(Value * number, Value * address)>& body) {
    for (int i = 0; i < rows; ++i)
      for (int v = 0; v < columns; ++v) {
        const int64_t element = i * kMatrixRows * kernel.c_stride + (v / kernel.nv) * kernel.c_weight_stride +
                                (v % kernel.nv) * kMatrixRows;
        body(sum(i, v), at(c, e.i64(4 * element)));
      }
  };

  Value* c_stride = e.i64(kernel.c_stride * 4);
  each_sum([&](Value* number, Value*) { e.b.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {number}); });
  e.if_then(accumulate, [&] { each_sum([&](Value* number, Value* address) { load(number, address, c_stride); }); });
  Value* panel_stride = e.i64(int64_t{kernel.panel_nv ? kernel.panel_nv : columns} * kMatrixRows * 4);
  e.loop(e.i64(0), steps, kMatrixRows, [&](Value* k) {
    Value *panel_k = at(panel, e.b.CreateMul(k, panel_stride)), *a_k = at(a, e.b.CreateMul(k, e.i64(4)));
    for (int v = 0; v < columns; ++v) load(right(v), at(panel_k, e.i64(int64_t{v} * kMatrixRows * 4)), panel_stride);
    for (int i = 0; i < rows; ++i) {
      load(left(i), at(a_k, e.b.CreateMul(a_stride, e.i64(int64_t{i} * kMatrixRows))), a_stride);
      for (int v = 0; v < columns; ++v)
        e.b.CreateIntrinsic(llvm::Intrinsic::x86_tdpbf16ps, {}, {sum(i, v), left(i), right(v)});
    }
  });
  each_sum([&](Value* number, Value* address) {
    e.b.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {}, {number, address, c_stride});
  });
  e.b.CreateRetVoid();
  return fn;
}

}  // namespace seqtile::cpu
