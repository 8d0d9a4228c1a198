// jit/codegen/nvptx/layout/elements.cpp -- elements of tiles as an emitter moves them: packed, loaded, stored,
// converted.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "jit/codegen/nvptx/emitter.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using llvm::Value;

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
