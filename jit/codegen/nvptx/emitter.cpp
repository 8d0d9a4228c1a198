// jit/codegen/nvptx/emitter.cpp -- see emitter.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/emitter.h"

#include <algorithm>

#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using llvm::Value;

namespace {

void annotate(llvm::Function* function, const char* name, int value) {
  llvm::LLVMContext& context = function->getContext();
  auto* type = llvm::Type::getInt32Ty(context);
  function->getParent()
      ->getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(
          context, {llvm::ValueAsMetadata::get(function), llvm::MDString::get(context, name),
                    llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(type, static_cast<uint64_t>(value)))}));
}

/// Tensor maps are used where they lie, in the parameters: by value and constant for the grid.
void add_tensor_maps(llvm::Function* function, const KernelShape& shape) {
  if (shape.num_maps == 0) return;
  llvm::LLVMContext& context = function->getContext();
  auto* bytes = llvm::ArrayType::get(llvm::Type::getInt8Ty(context), 128);
  std::vector<llvm::Metadata*> numbers;  // from 1
  const int first = shape.num_slots + shape.num_sides;
  for (int i = first; i < first + shape.num_maps; ++i) {
    function->addParamAttr(static_cast<unsigned>(i), llvm::Attribute::getWithByValType(context, bytes));
    function->addParamAttr(static_cast<unsigned>(i), llvm::Attribute::getWithAlignment(context, llvm::Align(64)));
    numbers.push_back(llvm::ConstantAsMetadata::get(
        llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<uint64_t>(i + 1))));
  }
  function->getParent()
      ->getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(
          context, {llvm::ValueAsMetadata::get(function), llvm::MDString::get(context, "grid_constant"),
                    llvm::MDNode::get(context, numbers)}));
}

}  // namespace

Emitter::Emitter(llvm::Module& m, const Target& t, const std::string& symbol, const KernelShape& shape)
    : module(m),
      context(m.getContext()),
      target(t),
      num_warps(shape.num_warps),
      is_hopper(t.has_wgmma),
      b(context),
      num_slots_(shape.num_slots),
      num_sides_(shape.num_sides) {
  const int64_t row_words = shape.num_slots + shape.num_sides;
  std::vector<llvm::Type*> params(static_cast<size_t>(row_words), b.getInt64Ty());
  params.resize(params.size() + static_cast<size_t>(shape.num_maps), b.getPtrTy());
  if (shape.num_ranks > 1) params = {b.getPtrTy()};
  function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), params, false),
                                    llvm::Function::ExternalLinkage, symbol, module);
  annotate(function, "kernel", 1);
  annotate(function, "reqntidx", 32 * (shape.num_warps + shape.num_more_warps));
  add_tensor_maps(function, shape);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
  thread = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  if (shape.num_ranks > 1) find_rank(shape.num_ranks, row_words);
  lane = b.CreateAnd(thread, i32(31));
  warp = b.CreateLShr(thread, i32(5));
  auto* bytes = llvm::ArrayType::get(b.getInt8Ty(), 0);
  shared_ = new llvm::GlobalVariable(module, bytes, false, llvm::GlobalValue::ExternalLinkage, nullptr,
                                     symbol + "_shared", nullptr, llvm::GlobalVariable::NotThreadLocal, kSharedSpace);
  shared_->setAlignment(llvm::Align(1024));  // as TMA's widest swizzle asks for
}

// Ranks have as many neighbouring blocks each. The table is read where it lies, among the parameters.
void Emitter::find_rank(int num_ranks, int64_t row_words) {
  llvm::Argument* table = function->getArg(0);
  auto* words = llvm::ArrayType::get(b.getInt64Ty(), static_cast<uint64_t>(num_ranks * row_words));
  table->addAttr(llvm::Attribute::getWithByValType(context, words));
  table->addAttr(llvm::Attribute::getWithAlignment(context, llvm::Align(8)));
  const auto [block, blocks] = block_and_count();
  Value* count = b.CreateUDiv(blocks, i32(num_ranks));
  Value* rank = b.CreateUDiv(block, count);
  Value* first = b.CreateMul(b.CreateZExt(rank, b.getInt64Ty()), i64(row_words));
  rank_ = {b.CreateInBoundsGEP(b.getInt64Ty(), table, first), b.CreateSub(block, b.CreateMul(rank, count)), count};
}

Value* Emitter::parameter(int index) {
  if (!rank_) return function->getArg(static_cast<unsigned>(index));
  return b.CreateLoad(b.getInt64Ty(),
                      b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), rank_->row, static_cast<uint64_t>(index)));
}

Value* Emitter::constant(DType dtype, double value) {
  if (is_float(dtype)) return llvm::ConstantFP::get(type_of(dtype), value);
  return llvm::ConstantInt::get(type_of(dtype), static_cast<uint64_t>(static_cast<int64_t>(value)), true);
}

llvm::Type* Emitter::type_of(DType dtype) {
  switch (dtype) {
    case DType::i1: return b.getInt1Ty();
    case DType::i8: return b.getInt8Ty();
    case DType::i16: return b.getInt16Ty();
    case DType::i32: return b.getInt32Ty();
    case DType::i64: return b.getInt64Ty();
    case DType::f16: return b.getHalfTy();
    case DType::bf16: return b.getBFloatTy();
    case DType::f32: return b.getFloatTy();
    case DType::f64: return b.getDoubleTy();
  }
  return nullptr;
}

Value* Emitter::warp_group() {
  Value* group = b.CreateLShr(warp, i32(2));
  return b.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {}, {i32(-1), group, i32(0), i32(31)});
}

Value* Emitter::program_id(int axis) {
  if (Value* known = program_[static_cast<size_t>(axis)]) return b.CreateZExt(known, b.getInt64Ty());
  constexpr llvm::Intrinsic::ID kIds[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x,
                                          llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
                                          llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z};
  return b.CreateZExt(b.CreateIntrinsic(kIds[axis], {}, {}), b.getInt64Ty());
}

Value* Emitter::num_programs(int axis) {
  if (num_sides_) return parameter(num_slots_ + axis);
  constexpr llvm::Intrinsic::ID kIds[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x,
                                          llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_y,
                                          llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_z};
  return b.CreateZExt(b.CreateIntrinsic(kIds[axis], {}, {}), b.getInt64Ty());
}

std::pair<Value*, Value*> Emitter::block_and_count() {
  if (rank_) return {rank_->block, rank_->count};
  return {b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {}),
          b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x, {}, {})};
}

void Emitter::set_program(Value* index) {
  for (size_t axis = 0; axis < 2; ++axis) {
    Value* side = b.CreateTrunc(num_programs(static_cast<int>(axis)), b.getInt32Ty());
    program_[axis] = b.CreateURem(index, side);
    index = b.CreateUDiv(index, side);
  }
  program_[2] = index;
}

std::vector<Value*> Emitter::loop(Value* lo, Value* hi, Value* step, std::vector<Value*> inits,
                                  const codegen::LoopBody& body) {
  ++loop_depth_;
  auto last = codegen::emit_loop(b, lo, hi, step, std::move(inits), body);
  --loop_depth_;
  return last;
}

void Emitter::keep_rolled() {
  llvm::BasicBlock* head = b.GetInsertBlock()->getSinglePredecessor();
  llvm::BasicBlock* latch = llvm::cast<llvm::PHINode>(&head->front())->getIncomingBlock(1);
  llvm::MDNode* disable = llvm::MDNode::get(context, llvm::MDString::get(context, "llvm.loop.unroll.disable"));
  llvm::MDNode* loop = llvm::MDNode::getDistinct(context, {nullptr, disable});
  loop->replaceOperandWith(0, loop);
  latch->getTerminator()->setMetadata(llvm::LLVMContext::MD_loop, loop);
}

void Emitter::loop_while(const std::vector<Value*>& inits, const std::function<Value*(std::vector<Value*>)>& test,
                         const std::function<std::vector<Value*>()>& body) {
  ++loop_depth_;
  codegen::emit_while(b, inits, test, body);
  --loop_depth_;
}

std::vector<Value*> Emitter::choose(Value* condition, const std::function<std::vector<Value*>()>& body,
                                    const std::vector<Value*>& otherwise) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* inside = llvm::BasicBlock::Create(context, "then", function);
  auto* after = llvm::BasicBlock::Create(context, "endif", function);
  b.CreateCondBr(condition, inside, after);
  b.SetInsertPoint(inside);
  const int syncs_before = num_syncs_;
  const std::vector<Value*> values = body();
  num_syncs_ = syncs_before;
  llvm::BasicBlock* end = b.GetInsertBlock();
  b.CreateBr(after);
  b.SetInsertPoint(after);
  std::vector<Value*> merged;
  for (size_t i = 0; i < values.size(); ++i) {
    auto* phi = b.CreatePHI(values[i]->getType(), 2);
    phi->addIncoming(otherwise[i], before);
    phi->addIncoming(values[i], end);
    merged.push_back(phi);
  }
  return merged;
}

void Emitter::if_then(Value* condition, const std::function<void()>& body) {
  const int before = num_syncs_;
  codegen::emit_if(b, condition, body);
  num_syncs_ = before;
}

Value* Emitter::opaque(Value* value) {
  auto* type = llvm::FunctionType::get(b.getInt64Ty(), {b.getInt64Ty()}, false);
  return b.CreateCall(llvm::InlineAsm::get(type, "", "=l,0", false), {value});
}

Value* Emitter::assembly(llvm::Type* result, const std::string& text, const std::string& constraints,
                         const std::vector<Value*>& operands) {
  std::vector<llvm::Type*> types;
  for (const Value* operand : operands) types.push_back(operand->getType());
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints, true);
  auto* call = b.CreateCall(code, operands);
  call->addFnAttr(llvm::Attribute::Convergent);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  return call;
}

Value* Emitter::shuffle(Shuffle mode, Value* value, Value* other) {
  llvm::Type* type = value->getType();
  const unsigned bits = type->getPrimitiveSizeInBits();
  const auto id =
      mode == Shuffle::bfly ? llvm::Intrinsic::nvvm_shfl_sync_bfly_i32 : llvm::Intrinsic::nvvm_shfl_sync_idx_i32;
  const auto move = [&](Value* word) { return b.CreateIntrinsic(id, {}, {i32(-1), word, other, i32(31)}); };
  Value* plain = b.CreateBitCast(value, b.getIntNTy(bits));
  if (bits == 64) {
    Value *low = b.CreateTrunc(plain, b.getInt32Ty()), *high = b.CreateTrunc(b.CreateLShr(plain, 32), b.getInt32Ty());
    low = b.CreateZExt(move(low), plain->getType()), high = b.CreateZExt(move(high), plain->getType());
    return b.CreateBitCast(b.CreateOr(low, b.CreateShl(high, 32)), type);
  }
  return b.CreateBitCast(b.CreateTrunc(move(b.CreateZExt(plain, b.getInt32Ty())), plain->getType()), type);
}

Value* Emitter::tensor_map(int index) {
  return b.CreatePtrToInt(function->getArg(static_cast<unsigned>(num_slots_ + num_sides_ + index)), b.getInt64Ty());
}

void Emitter::sync() {
  if (syncs_all_) b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
  else assembly(b.getVoidTy(), "bar.sync 1, " + std::to_string(32 * num_warps) + ";", "~{memory}", {});
  ++num_syncs_;
}

void Emitter::reserve(int64_t bytes) { reserved_bytes_ = std::max(reserved_bytes_, bytes); }

Value* Emitter::reserved(int64_t offset, Value* more) {
  Value* at = more ? b.CreateAdd(more, i32(offset)) : i32(offset);
  return b.CreateInBoundsGEP(b.getInt8Ty(), shared_, at);
}

Value* Emitter::scratch(int64_t bytes) {
  scratch_bytes_ = std::max(scratch_bytes_, bytes);
  return reserved_bytes_ == 0 ? shared_ : reserved(reserved_bytes_, nullptr);
}

void Emitter::sync_before_scratch(bool is_needed) {
  if (is_needed || is_scratch_used_ || loop_depth_ > 0) await_stores(), sync();
  is_scratch_used_ = true;
}

void Emitter::scratch_is_stored(int64_t alignment) {
  is_scratch_stored_ = true;
  reserved_bytes_ = (reserved_bytes_ + alignment - 1) / alignment * alignment;
}

void Emitter::await_stores() {
  if (is_scratch_stored_) assembly(b.getVoidTy(), "cp.async.bulk.wait_group.read 0;", "~{memory}", {});
}

void Emitter::finish_shared() {
  if (shared_bytes() == 0) shared_->eraseFromParent(), shared_ = nullptr;
}

}  // namespace seqtile::nvptx
