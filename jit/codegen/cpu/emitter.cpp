// jit/codegen/cpu/emitter.cpp -- see emitter.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/emitter.h"

#include <numeric>

#include "jit/base/assert.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace seqtile::cpu {
namespace {

using llvm::Value;

constexpr int64_t kAlignment = 64;

/// `scalar` type, or a vector of it as wide as `like`.
llvm::Type* shaped(llvm::Type* scalar, const Value* like) {
  const int width = width_of(like);
  return width == 1 ? scalar : llvm::FixedVectorType::get(scalar, width);
}

}  // namespace

int width_of(const Value* value) {
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return type ? static_cast<int>(type->getNumElements()) : 1;
}

Emitter::Emitter(llvm::Module& m, const Target& t, const std::string& symbol)
    : module(m), context(m.getContext()), target(t), b(context), lanes(t.lanes_f32()) {
  llvm::Type* ptr = b.getPtrTy();
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {ptr, ptr, ptr, ptr}, false);
  function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
  set_attributes(function);
  for (int i = 0; i < 4; ++i) function->addParamAttr(i, llvm::Attribute::NoAlias);
  slots = function->getArg(0), pid = function->getArg(1), grid = function->getArg(2), arena = function->getArg(3);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
}

void Emitter::set_attributes(llvm::Function* fn) {
  fn->addFnAttr("target-cpu", target.cpu);
  fn->addFnAttr("target-features", target.features);
  fn->addFnAttr("no-builtins");
  fn->addFnAttr("prefer-vector-width", std::to_string(target.vector_bytes * 8));
  fn->addFnAttr("min-legal-vector-width", std::to_string(target.vector_bytes * 8));
  fn->addFnAttr(llvm::Attribute::NoUnwind);
}

llvm::Function* Emitter::private_function(const std::string& name, std::vector<llvm::Type*> params) {
  auto* type = llvm::FunctionType::get(b.getVoidTy(), params, false);
  auto* fn = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, module);
  set_attributes(fn);
  fn->addFnAttr(llvm::Attribute::NoInline);
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i]->isPointerTy()) fn->addParamAttr(static_cast<unsigned>(i), llvm::Attribute::NoAlias);
  return fn;
}

llvm::Type* Emitter::type_of(DType dtype) {
  switch (dtype) {
    case DType::i1: return b.getInt1Ty();
    case DType::i8: return b.getInt8Ty();
    case DType::i16:
    case DType::f16:
    case DType::bf16: return b.getInt16Ty();
    case DType::i32: return b.getInt32Ty();
    case DType::i64: return b.getInt64Ty();
    case DType::f32: return b.getFloatTy();
    case DType::f64: return b.getDoubleTy();
  }
  SEQTILE_ASSERT(false);
  return nullptr;
}

llvm::Type* Emitter::memory_type(DType dtype) { return dtype == DType::i1 ? b.getInt8Ty() : type_of(dtype); }

void Emitter::loop(Value* lo, Value* hi, int64_t step, const std::function<void(Value*)>& body) {
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(lo);
  const auto* last = llvm::dyn_cast<llvm::ConstantInt>(hi);
  if (first && last && last->getSExtValue() - first->getSExtValue() <= step) {  // at most one iteration
    if (last->getSExtValue() > first->getSExtValue()) body(lo);
    return;
  }
  loop(lo, hi, i64(step), {}, [&](Value* index, const std::vector<Value*>&) {
    body(index);
    return std::vector<Value*>{};
  });
}

int64_t Emitter::reserve(int64_t bytes) {
  const int64_t offset = arena_bytes_;
  arena_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Value* Emitter::arena_ptr(int64_t offset) { return b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), arena, offset); }

Value* Emitter::element_ptr(Value* base, Value* index, DType dtype) {
  return b.CreateInBoundsGEP(memory_type(dtype), base, index);
}

Value* Emitter::splat(Value* scalar, int count) {
  return count == 1 || width_of(scalar) > 1 ? scalar : b.CreateVectorSplat(count, scalar);
}

Value* Emitter::lane_ids(llvm::Type* integer, int count) {
  if (count == 1) return llvm::ConstantInt::get(integer, 0);
  std::vector<llvm::Constant*> ids;
  for (int i = 0; i < count; ++i) ids.push_back(llvm::ConstantInt::get(integer, i));
  return llvm::ConstantVector::get(ids);
}

Value* Emitter::lanes_below(Value* count, int width) {
  Value* narrow = b.CreateTrunc(max_i64(i64(0), min_i64(count, i64(width))), b.getInt32Ty());
  return b.CreateICmpSLT(lane_ids(b.getInt32Ty(), width), splat(narrow, width));
}

Value* Emitter::load(DType dtype, Value* ptr, int width, Value* mask) {
  const llvm::Align align(dtype_bytes(dtype));
  llvm::Type* element = memory_type(dtype);
  llvm::Type* type = width == 1 ? element : llvm::FixedVectorType::get(element, width);
  Value* value;
  if (!mask) {
    value = b.CreateAlignedLoad(type, ptr, align);
  } else if (width == 1) {
    // A scalar under a condition: read from the arena where the element must not be touched.
    Value* safe = b.CreateSelect(mask, ptr, arena);
    value = b.CreateSelect(mask, b.CreateAlignedLoad(type, safe, align), llvm::Constant::getNullValue(type));
  } else {
    value = b.CreateMaskedLoad(type, ptr, align, splat(mask, width), llvm::Constant::getNullValue(type));
  }
  return dtype == DType::i1 ? b.CreateTrunc(value, shaped(b.getInt1Ty(), value)) : value;
}

void Emitter::store(DType dtype, Value* value, Value* ptr, Value* mask) {
  const llvm::Align align(dtype_bytes(dtype));
  if (dtype == DType::i1) value = b.CreateZExt(value, shaped(b.getInt8Ty(), value));
  const int width = width_of(value);
  if (!mask) {
    b.CreateAlignedStore(value, ptr, align);
  } else if (width == 1) {
    if_then(mask, [&] { b.CreateAlignedStore(value, ptr, align); });
  } else {
    b.CreateMaskedStore(value, ptr, align, splat(mask, width));
  }
}

Value* Emitter::zeros() {
  llvm::Type* type = llvm::FixedVectorType::get(b.getDoubleTy(), static_cast<unsigned>(lanes));
  auto* variable = llvm::cast<llvm::GlobalVariable>(module.getOrInsertGlobal("zeros", type));
  variable->setConstant(true);
  variable->setLinkage(llvm::GlobalValue::PrivateLinkage);
  variable->setInitializer(llvm::Constant::getNullValue(type));
  variable->setAlignment(llvm::Align(kAlignment));
  return variable;
}

void Emitter::stream(Value* value, Value* ptr) {
  auto* one = llvm::ConstantAsMetadata::get(b.getInt32(1));
  const auto store = [&](Value* part, int64_t offset) {
    const auto bytes = part->getType()->getPrimitiveSizeInBits().getFixedValue() / 8;
    llvm::StoreInst* s =
        b.CreateAlignedStore(part, b.CreateConstGEP1_64(b.getInt8Ty(), ptr, offset), llvm::Align(bytes));
    s->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context, {one}));
  };
  const auto* cast = llvm::dyn_cast<llvm::BitCastInst>(value);
  if (!cast || !cast->getSrcTy()->getScalarType()->isBFloatTy()) return store(value, 0);
  // LLVM 19 has no such store of a bfloat vector and quietly makes it an ordinary one: two halves, as words.
  const int words = lanes / 2;
  Value* whole = b.CreateBitCast(value, llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(words)));
  for (int half = 0; half < 2; ++half) {
    std::vector<int> order(static_cast<size_t>(words / 2));
    std::iota(order.begin(), order.end(), half * words / 2);
    store(b.CreateShuffleVector(whole, order), half * 2 * words);
  }
}

void Emitter::stream_fence() {
  if (target.triple.rfind("x86_64", 0) == 0) b.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
}

Value* Emitter::to_f32(Value* value, DType from) {
  llvm::Type* wide = shaped(b.getInt32Ty(), value);
  llvm::Type* real = shaped(b.getFloatTy(), value);
  const auto constant = [&](uint32_t bits) { return llvm::ConstantInt::get(wide, bits); };
  if (from == DType::bf16) return b.CreateBitCast(b.CreateShl(b.CreateZExt(value, wide), constant(16)), real);
  const bool native = target.has_fma;  // every target with FMA (F16C on x86) converts f16 in one instruction
  if (native) return b.CreateFPExt(b.CreateBitCast(value, shaped(b.getHalfTy(), value)), real);
  Value* bits = b.CreateZExt(value, wide);
  Value* magnitude = b.CreateShl(b.CreateAnd(bits, constant(0x7fff)), constant(13));
  // Scaling by 2^112 moves the exponent bias and makes subnormals right; infinity and NaN get their exponent back.
  Value* scaled = b.CreateFMul(b.CreateBitCast(magnitude, real), llvm::ConstantFP::get(real, 0x1p112));
  Value* special = b.CreateICmpUGE(magnitude, constant(0x7c00u << 13));
  Value* exponent = b.CreateSelect(special, constant(0x7f800000), constant(0));
  Value* sign = b.CreateShl(b.CreateAnd(bits, constant(0x8000)), constant(16));
  return b.CreateBitCast(b.CreateOr(b.CreateOr(b.CreateBitCast(scaled, wide), exponent), sign), real);
}

Value* Emitter::from_f32(Value* value, DType to) {
  llvm::Type* wide = shaped(b.getInt32Ty(), value);
  llvm::Type* narrow = shaped(b.getInt16Ty(), value);
  const auto constant = [&](uint32_t bits) { return llvm::ConstantInt::get(wide, bits); };
  Value* bits = b.CreateBitCast(value, wide);
  Value* is_nan = b.CreateFCmpUNO(value, value);
  if (to == DType::bf16) {
    if (target.has_bf16_dot && width_of(value) == 16)  // zeros instead of subnormals
      return b.CreateBitCast(b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {value}), narrow);
    Value* odd = b.CreateAnd(b.CreateLShr(bits, constant(16)), constant(1));
    Value* rounded = b.CreateAdd(b.CreateAdd(bits, constant(0x7fff)), odd);
    Value* quiet = b.CreateOr(bits, constant(0x400000));
    return b.CreateTrunc(b.CreateLShr(b.CreateSelect(is_nan, quiet, rounded), constant(16)), narrow);
  }
  if (target.has_fma) return b.CreateBitCast(b.CreateFPTrunc(value, shaped(b.getHalfTy(), value)), narrow);
  Value* sign = b.CreateAnd(b.CreateLShr(bits, constant(16)), constant(0x8000));
  Value* magnitude = b.CreateAnd(bits, constant(0x7fffffff));
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, constant(13)), constant(1));
  Value* normal = b.CreateLShr(
      b.CreateSub(b.CreateAdd(b.CreateAdd(magnitude, constant(0xfff)), odd), constant(112u << 23)), constant(13));
  // Below 2^-14 adding 0.5 aligns the mantissa so that the addition itself rounds to nearest even.
  llvm::Type* real = value->getType();
  Value* aligned = b.CreateFAdd(b.CreateBitCast(magnitude, real), llvm::ConstantFP::get(real, 0.5));
  Value* subnormal = b.CreateSub(b.CreateBitCast(aligned, wide), constant(0x3f000000));
  Value* result = b.CreateSelect(b.CreateICmpULT(magnitude, constant(113u << 23)), subnormal, normal);
  result = b.CreateSelect(b.CreateICmpUGE(magnitude, constant(0x477ff000)), constant(0x7c00), result);
  result = b.CreateSelect(is_nan, constant(0x7e00), result);
  return b.CreateTrunc(b.CreateOr(result, sign), narrow);
}

Value* Emitter::convert(Value* value, DType from, DType to) {
  if (from == to) return value;
  const auto is_short = [](DType d) { return d == DType::f16 || d == DType::bf16; };
  if (is_short(from)) return convert(to_f32(value, from), DType::f32, to);
  if (is_short(to)) return from_f32(convert(value, from, DType::f32), to);
  llvm::Type* type = shaped(type_of(to), value);
  if (is_float(from) && is_float(to)) return b.CreateFPCast(value, type);
  if (to == DType::i1)
    return is_float(from) ? b.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()))
                          : b.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  if (is_float(from)) return b.CreateFPToSI(value, type);
  if (is_float(to)) return from == DType::i1 ? b.CreateUIToFP(value, type) : b.CreateSIToFP(value, type);
  return from == DType::i1 ? b.CreateZExt(value, type) : b.CreateSExtOrTrunc(value, type);
}

Value* Emitter::load_f32(DType dtype, Value* ptr, int width, Value* mask) {
  return convert(load(dtype, ptr, width, mask), dtype, DType::f32);
}

Value* Emitter::min_i64(Value* x, Value* y) { return b.CreateSelect(b.CreateICmpSLT(x, y), x, y); }
Value* Emitter::max_i64(Value* x, Value* y) { return b.CreateSelect(b.CreateICmpSGT(x, y), x, y); }

}  // namespace seqtile::cpu
