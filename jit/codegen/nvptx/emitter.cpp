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
  std::vector<llvm::Type*> params(static_cast<size_t>(shape.num_slots + shape.num_sides), b.getInt64Ty());
  params.resize(params.size() + static_cast<size_t>(shape.num_maps), b.getPtrTy());
  function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), params, false),
                                    llvm::Function::ExternalLinkage, symbol, module);
  annotate(function, "kernel", 1);
  annotate(function, "reqntidx", 32 * (shape.num_warps + shape.num_more_warps));
  add_tensor_maps(function, shape);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
  thread = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  lane = b.CreateAnd(thread, i32(31));
  warp = b.CreateLShr(thread, i32(5));
  auto* bytes = llvm::ArrayType::get(b.getInt8Ty(), 0);
  shared_ = new llvm::GlobalVariable(module, bytes, false, llvm::GlobalValue::ExternalLinkage, nullptr,
                                     symbol + "_shared", nullptr, llvm::GlobalVariable::NotThreadLocal, kSharedSpace);
  shared_->setAlignment(llvm::Align(1024));  // as TMA's widest swizzle asks for
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
  if (num_sides_) return function->getArg(static_cast<unsigned>(num_slots_ + axis));
  constexpr llvm::Intrinsic::ID kIds[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x,
                                          llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_y,
                                          llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_z};
  return b.CreateZExt(b.CreateIntrinsic(kIds[axis], {}, {}), b.getInt64Ty());
}

std::pair<Value*, Value*> Emitter::block_and_count() {
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
  enter_loop();
  auto last = codegen::emit_loop(b, lo, hi, step, std::move(inits), body);
  leave_loop();
  return last;
}

std::vector<Value*> Emitter::choose(Value* condition, const std::function<std::vector<Value*>()>& body,
                                    const std::vector<Value*>& otherwise) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* inside = llvm::BasicBlock::Create(context, "then", function);
  auto* after = llvm::BasicBlock::Create(context, "endif", function);
  b.CreateCondBr(condition, inside, after);
  b.SetInsertPoint(inside);
  const std::vector<Value*> values = body();
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

Value* Emitter::element_pointer(Value* base, Value* index, DType dtype) {
  return b.CreateInBoundsGEP(memory_type(dtype), base, index);
}

namespace {

/// How `width` elements travel: as 32-bit words, or one narrower or wider element in a register of its own.
struct Words {
  Words(llvm::IRBuilder<>& b, DType dtype, int width) {
    const int64_t bytes = dtype_bytes(dtype) * width;
    count = static_cast<int>(bytes >= 4 && bytes != 8 ? bytes / 4 : bytes == 8 && dtype_bytes(dtype) < 8 ? 2 : 1);
    const int64_t each = bytes / count;
    type = b.getIntNTy(static_cast<unsigned>(std::max<int64_t>(each, 2) * 8));
    constraint = each <= 2 ? "h" : each == 4 ? "r" : "l";
    suffix = (count > 1 ? ".v" + std::to_string(count) : "") + ".b" + std::to_string(each * 8);
    narrow = each == 1;
  }
  int count;
  llvm::Type* type;
  std::string constraint, suffix;
  bool narrow;  ///< one byte in a 16-bit register
};

std::string operand_list(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i ? ", $" : "$") + std::to_string(first + i);
  return count > 1 ? "{" + text + "}" : text;
}

const char* space_of(const Value* pointer) {
  return pointer->getType()->getPointerAddressSpace() == kSharedSpace ? "shared" : "global";
}

}  // namespace

// The elements of the words that `values` were packed into, and back.
namespace {

/// A vector of two; the one that both have been taken from, where there is one.
Value* pair_of(llvm::IRBuilder<>& b, Value* low, Value* high) {
  const auto taken = [](Value* value, uint64_t index) -> Value* {
    auto* extract = llvm::dyn_cast<llvm::ExtractElementInst>(value);
    auto* place = extract ? llvm::dyn_cast<llvm::ConstantInt>(extract->getIndexOperand()) : nullptr;
    return place && place->getZExtValue() == index ? extract->getVectorOperand() : nullptr;
  };
  auto* type = llvm::FixedVectorType::get(low->getType(), 2);
  if (Value* whole = taken(low, 0); whole && whole == taken(high, 1) && whole->getType() == type) return whole;
  Value* pair = b.CreateInsertElement(llvm::PoisonValue::get(type), low, uint64_t{0});
  return b.CreateInsertElement(pair, high, uint64_t{1});
}

}  // namespace

std::vector<Value*> Emitter::repacked(const std::vector<Value*>& values, llvm::Type* element, int count) {
  if (values.size() == static_cast<size_t>(count) && values[0]->getType() == element) return values;
  if (element->isIntegerTy(32) && values.size() == 2 * static_cast<size_t>(count)) {
    std::vector<Value*> words;
    for (size_t i = 0; i < values.size(); i += 2)
      words.push_back(b.CreateBitCast(pair_of(b, values[i], values[i + 1]), element));
    return words;
  }
  llvm::Type* from = values[0]->getType();
  const auto width = static_cast<unsigned>(values.size());
  Value* all = width == 1 ? values[0] : llvm::PoisonValue::get(llvm::FixedVectorType::get(from, width));
  for (unsigned i = 0; width > 1 && i < width; ++i) all = b.CreateInsertElement(all, values[i], uint64_t{i});
  all = b.CreateBitCast(all, count == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(count)));
  std::vector<Value*> result;
  for (int i = 0; i < count; ++i)
    result.push_back(count == 1 ? all : b.CreateExtractElement(all, static_cast<uint64_t>(i)));
  return result;
}

// Conditional accesses are predicated instructions: a branch around each would keep them from being in flight together.
std::vector<Value*> Emitter::load(DType dtype, Value* pointer, int width, Value* condition, Value* fill) {
  llvm::Type* element = memory_type(dtype);
  std::vector<Value*> values;
  if (!condition) {
    llvm::Type* type = width == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(width));
    Value* all = b.CreateAlignedLoad(type, pointer, llvm::Align(static_cast<uint64_t>(dtype_bytes(dtype) * width)));
    for (int i = 0; i < width; ++i)
      values.push_back(width == 1 ? all : b.CreateExtractElement(all, static_cast<uint64_t>(i)));
  } else {
    const Words words(b, dtype, width);
    if (dtype == DType::i1) fill = b.CreateZExt(fill, element);
    std::vector<Value*> operands;
    if (words.narrow) operands = {b.CreateZExt(b.CreateBitCast(fill, b.getInt8Ty()), words.type)};
    else operands = repacked(std::vector<Value*>(static_cast<size_t>(width), fill), words.type, words.count);
    std::string text, constraints;
    for (int i = 0; i < words.count; ++i) {
      text += "mov.b" + std::to_string(words.type->getIntegerBitWidth()) + " $" + std::to_string(i) + ", $" +
              std::to_string(words.count + i) + "; ";
      constraints += "=&" + words.constraint + ",";
    }
    for (int i = 0; i < words.count; ++i) constraints += words.constraint + ",";
    text += "@$" + std::to_string(2 * words.count + 1) + " ld." + space_of(pointer) + words.suffix + " " +
            operand_list(0, words.count) + ", [$" + std::to_string(2 * words.count) + "];";
    constraints += pointer->getType()->getPointerAddressSpace() == kSharedSpace ? "r,b,~{memory}" : "l,b,~{memory}";
    operands.push_back(address_of(pointer));
    operands.push_back(condition);
    llvm::Type* result =
        words.count == 1
            ? words.type
            : llvm::StructType::get(context, std::vector<llvm::Type*>(static_cast<size_t>(words.count), words.type));
    Value* loaded = assembly(result, text, constraints, operands);
    std::vector<Value*> all;
    for (int i = 0; i < words.count; ++i)
      all.push_back(words.count == 1 ? loaded : b.CreateExtractValue(loaded, static_cast<unsigned>(i)));
    if (words.narrow) all = {b.CreateTrunc(all[0], b.getInt8Ty())};
    values = repacked(all, element, width);
  }
  if (dtype == DType::i1)
    for (Value*& value : values) value = b.CreateICmpNE(value, llvm::Constant::getNullValue(element));
  return values;
}

void Emitter::store(DType dtype, Value* pointer, std::vector<Value*> values, Value* condition) {
  llvm::Type* element = memory_type(dtype);
  const auto width = static_cast<int>(values.size());
  if (dtype == DType::i1)
    for (Value*& value : values) value = b.CreateZExt(value, element);
  if (!condition) {
    Value* all = width == 1 ? values[0]
                            : llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(width)));
    for (int i = 0; width > 1 && i < width; ++i)
      all = b.CreateInsertElement(all, values[static_cast<size_t>(i)], static_cast<uint64_t>(i));
    b.CreateAlignedStore(all, pointer, llvm::Align(static_cast<uint64_t>(dtype_bytes(dtype) * width)));
    return;
  }
  const Words words(b, dtype, width);
  std::vector<Value*> operands;
  if (words.narrow) operands = {b.CreateZExt(b.CreateBitCast(values[0], b.getInt8Ty()), words.type)};
  else operands = repacked(values, words.type, words.count);
  std::string constraints;
  for (int i = 0; i < words.count; ++i) constraints += words.constraint + ",";
  const std::string text = "@$" + std::to_string(words.count + 1) + " st." + space_of(pointer) + words.suffix + " [$" +
                           std::to_string(words.count) + "], " + operand_list(0, words.count) + ";";
  constraints += pointer->getType()->getPointerAddressSpace() == kSharedSpace ? "r,b,~{memory}" : "l,b,~{memory}";
  operands.push_back(address_of(pointer));
  operands.push_back(condition);
  assembly(b.getVoidTy(), text, constraints, operands);
}

Value* Emitter::address_of(Value* pointer) {
  return b.CreatePtrToInt(
      pointer, pointer->getType()->getPointerAddressSpace() == kSharedSpace ? b.getInt32Ty() : b.getInt64Ty());
}

std::array<Value*, 2> Emitter::narrowed(Value* low, Value* high, DType to) {
  const auto id = to == DType::bf16 ? llvm::Intrinsic::nvvm_ff2bf16x2_rn : llvm::Intrinsic::nvvm_ff2f16x2_rn;
  Value* both = b.CreateIntrinsic(id, {}, {high, low});
  return {b.CreateExtractElement(both, uint64_t{0}), b.CreateExtractElement(both, uint64_t{1})};
}

Value* Emitter::convert(Value* value, DType from, DType to) {
  if (from == to) return value;
  llvm::Type* type = type_of(to);
  if (is_float(from) && is_float(to)) {
    // To and from the 16-bit formats by way of f32: sm_80 has nothing else for bf16.
    if (dtype_bytes(from) == 2 || dtype_bytes(to) == 2) value = b.CreateFPCast(value, b.getFloatTy());
    return b.CreateFPCast(value, type);
  }
  if (is_float(from)) {
    if (dtype_bytes(from) == 2) value = b.CreateFPExt(value, b.getFloatTy());
    if (to == DType::i1) return b.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()));
    return b.CreateFPToSI(value, type);
  }
  if (is_float(to)) {
    llvm::Type* wide = dtype_bytes(to) == 2 ? b.getFloatTy() : type;
    value = from == DType::i1 ? b.CreateUIToFP(value, wide) : b.CreateSIToFP(value, wide);
    return b.CreateFPCast(value, type);
  }
  if (to == DType::i1) return b.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  return from == DType::i1 ? b.CreateZExt(value, type) : b.CreateSExtOrTrunc(value, type);
}

}  // namespace seqtile::nvptx
