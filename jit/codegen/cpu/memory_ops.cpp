// jit/codegen/cpu/memory_ops.cpp -- element accesses, scatter, atomics and flags, random numbers.
// SPDX-License-Identifier: Apache-2.0
#include "jit/abi/channel_block.h"
#include "jit/codegen/cpu/program.h"
#include "jit/codegen/math.h"
#include "seqtile/abi.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::AtomicOrdering;
using llvm::Value;

namespace {

AtomicOrdering ordering(std::string_view order) {
  if (order == "relaxed") return AtomicOrdering::Monotonic;
  if (order == "acquire") return AtomicOrdering::Acquire;
  if (order == "release") return AtomicOrdering::Release;
  return AtomicOrdering::AcquireRelease;
}

llvm::AtomicRMWInst::BinOp atomic_operation(std::string_view kind, bool real) {
  if (kind == "add") return real ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add;
  if (kind == "max") return real ? llvm::AtomicRMWInst::FMax : llvm::AtomicRMWInst::Max;
  if (kind == "min") return real ? llvm::AtomicRMWInst::FMin : llvm::AtomicRMWInst::Min;
  return llvm::AtomicRMWInst::Xchg;
}

}  // namespace

Value* Program::element_address(const Op& op) {
  const ir::Value* view = op.operands[0];
  const ViewRef& ref = views_.at(view);
  Value* elements = e_.i64(0);
  for (int d = 0; d < view->type.rank; ++d)
    elements = e_.b.CreateAdd(elements, e_.b.CreateMul(scalars_.at(op.operands[1 + d]), ref.strides[d]));
  return e_.element_ptr(ref.base, elements, view->type.dtype);
}

void Program::lower_element(const Op& op) {
  if (op.kind == OpKind::scatter) return lower_scatter(op);
  flush();  // element accesses are ordered with the tile accesses around them
  const DType dtype = op.operands[0]->type.dtype;
  Value* address = element_address(op);
  if (op.kind == OpKind::load_scalar) {
    Value* value = e_.load(dtype, address, 1);
    scalars_[op.results[0]] = value;
  } else if (op.kind == OpKind::store_scalar) {
    e_.store(dtype, scalars_.at(op.operands.back()), address);
  } else {  // prefetch: read, keep in all levels, data
    llvm::Value* arguments[] = {address, e_.i32(0), e_.i32(3), e_.i32(1)};
    e_.b.CreateIntrinsic(llvm::Intrinsic::prefetch, {e_.b.getPtrTy()}, arguments);
  }
}

void Program::lower_scatter(const Op& op) {
  flush();
  const ir::Value *view = op.operands[0], *tile = op.operands[3];
  const ViewRef& ref = views_.at(view);
  const DType dtype = view->type.dtype;
  e_.loop(e_.i64(0), e_.i64(tile->type.shape[0]), 1, [&](Value* i) {
    row_memo_.clear(), memo_.clear();
    Value* row = e_.b.CreateSExtOrTrunc(eval(op.operands[1], Index{1, {Axis{i}}, nullptr}), e_.b.getInt64Ty());
    Value* row_ok = e_.b.CreateICmpULT(row, ref.sizes[0]);
    Value* base = e_.element_ptr(ref.base, e_.b.CreateMul(row, ref.strides[0]), dtype);
    e_.loop(e_.i64(0), limit(tile, 1).count, 1, [&](Value* c) {
      memo_.clear();
      Value* position = e_.b.CreateAdd(scalars_.at(op.operands[2]), c);
      Value* ok = e_.b.CreateAnd(row_ok, e_.b.CreateICmpULT(position, ref.sizes[1]));
      Value* value = eval(tile, Index{1, {Axis{i}, Axis{c}}, nullptr});
      e_.store(dtype, value, e_.element_ptr(base, e_.b.CreateMul(position, ref.strides[1]), dtype), ok);
    });
  });
  row_memo_.clear(), memo_.clear();
}

void Program::lower_sync(const Op& op) {
  flush();
  if (op.kind == OpKind::griddep) return;  // programs of one launch follow the launch before on the host
  if (op.kind == OpKind::fence) {
    e_.b.CreateFence(AtomicOrdering::SequentiallyConsistent);
    return;
  }
  if (op.kind == OpKind::await) return lower_await(op);
  if (op.kind == OpKind::clock) return lower_clock(op);
  const DType dtype = op.operands[0]->type.dtype;
  const llvm::MaybeAlign align(static_cast<uint64_t>(dtype_bytes(dtype)));
  Value* address = element_address(op);
  if (op.kind == OpKind::atomic_load) {
    llvm::LoadInst* seen = e_.b.CreateAlignedLoad(e_.type_of(dtype), address, align);
    seen->setAtomic(ordering(op.string_attr("order")));
    scalars_[op.results[0]] = seen;
    return;
  }
  Value* operand = scalars_.at(op.operands.back());
  const std::string_view kind = op.string_attr("kind");
  if (op.kind == OpKind::atomic) {
    Value* old = e_.b.CreateAtomicRMW(atomic_operation(kind, is_float(dtype)), address, operand, align,
                                      ordering(op.string_attr("order")));
    scalars_[op.results[0]] = old;
  } else if (op.kind == OpKind::cas) {
    Value* expected = scalars_.at(op.operands[op.operands.size() - 2]);
    Value* pair = e_.b.CreateAtomicCmpXchg(address, expected, operand, align, ordering(op.string_attr("order")),
                                           AtomicOrdering::Acquire);
    scalars_[op.results[0]] = e_.b.CreateExtractValue(pair, 0);
  } else if (op.kind == OpKind::signal) {
    if (kind == "add") {
      e_.b.CreateAtomicRMW(llvm::AtomicRMWInst::Add, address, operand, align, AtomicOrdering::Release);
    } else {
      e_.b.CreateAlignedStore(operand, address, align)->setAtomic(AtomicOrdering::Release);
    }
  } else {  // wait_ge
    llvm::Function* fn = e_.b.GetInsertBlock()->getParent();
    auto* spin = llvm::BasicBlock::Create(e_.context, "wait", fn);
    auto* after = llvm::BasicBlock::Create(e_.context, "arrived", fn);
    e_.b.CreateBr(spin);
    e_.b.SetInsertPoint(spin);
    llvm::LoadInst* seen = e_.b.CreateAlignedLoad(e_.type_of(dtype), address, align);
    seen->setAtomic(AtomicOrdering::Acquire);
    e_.b.CreateCondBr(e_.b.CreateICmpSGE(seen, operand), after, spin);
    e_.b.SetInsertPoint(after);
  }
}

// The channel's fabric gives the wait function: threads and processes sleep in different ways.
void Program::lower_await(const Op& op) {
  Value* block = views_.at(op.operands.back()).base;
  Value* word = e_.b.CreateConstInBoundsGEP1_64(e_.b.getInt64Ty(), block, channel::wait_function);
  Value* function = e_.b.CreateIntToPtr(e_.b.CreateLoad(e_.b.getInt64Ty(), word), e_.b.getPtrTy());
  auto* type = llvm::FunctionType::get(e_.b.getInt64Ty(), {e_.b.getPtrTy(), e_.b.getPtrTy(), e_.b.getInt64Ty()}, false);
  Value* expected = scalars_.at(op.operands[op.operands.size() - 2]);
  Value* outcome = e_.b.CreateCall(type, function, {block, element_address(op), expected});
  scalars_[op.results[0]] = outcome;
}

void Program::lower_clock(const Op& op) {
  Value* address = e_.b.CreateLoad(e_.b.getInt64Ty(), element_address(op));
  auto* type = llvm::FunctionType::get(e_.b.getInt64Ty(), false);
  Value* time = e_.b.CreateCall(type, e_.b.CreateIntToPtr(address, e_.b.getPtrTy()), {});
  scalars_[op.results[0]] = time;
}

void Program::lower_rand(const Op& op) {
  const ir::Value *counters = op.operands[1], *result = op.results[0];
  const Buffer buffer = reserve_tile(counters->type);
  copy_to(counters, buffer);
  Buffer output = buffer;
  output.dtype = DType::f32;
  Value* seed = scalars_.at(op.operands[0]);
  int64_t elements = 1;
  for (int d = 0; d < counters->type.rank; ++d)
    elements = std::max(elements, buffer.strides[d] * counters->type.shape[d]);
  e_.loop(e_.i64(0), e_.i64(elements), 1, [&](Value* i) {
    Value* counter = e_.load(DType::i32, e_.element_ptr(e_.arena_ptr(buffer.offset), i, DType::i32), 1);
    Value* unit = codegen::emit_philox(e_.b, seed, counter);
    e_.store(DType::f32, unit, e_.element_ptr(e_.arena_ptr(output.offset), i, DType::f32));
  });
  buffers_[result] = output;
}

}  // namespace seqtile::cpu
