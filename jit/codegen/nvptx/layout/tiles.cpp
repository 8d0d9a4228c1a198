// jit/codegen/nvptx/layout/tiles.cpp -- computes tiles in the layout that they are asked for; see program.h.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "jit/codegen/math.h"
#include "jit/codegen/nvptx/program.h"
#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::nvptx {

using ir::Op;
using ir::OpGroup;
using ir::OpKind;
using llvm::Value;

namespace {

/// Registers of one thread beyond which a tile no longer fits beside others.
constexpr int kMostRegisters = 256;

/// For each register of `result`, the register of `operand` that holds the place which `map` makes of its own.
template <typename Map>
std::vector<int> matching_registers(const LinearLayout& result, const LinearLayout& operand, const Map& map) {
  std::map<std::pair<Coordinates, Coordinates>, int> holder;
  for (int reg = 0; reg < operand.num_registers(); ++reg) {
    const auto place = operand.place(reg);
    holder.emplace(std::pair{place.within, place.origin}, reg);
  }
  std::vector<int> registers;
  for (int reg = 0; reg < result.num_registers(); ++reg) {
    const auto place = result.place(reg);
    registers.push_back(holder.at({map(place.within), map(place.origin)}));
  }
  return registers;
}

std::vector<Value*> picked(const std::vector<Value*>& values, const std::vector<int>& from) {
  std::vector<Value*> result;
  for (const int reg : from) result.push_back(values[static_cast<size_t>(reg)]);
  return result;
}

}  // namespace

const Held* Program::held(const ir::Value* tile, const LinearLayout& layout) const {
  const auto found = held_.find(tile);
  if (found == held_.end()) return nullptr;
  for (const Held& each : found->second)
    if (each.layout == layout) return &each;
  return nullptr;
}

const Held& Program::hold(const ir::Value* tile, LinearLayout layout, std::vector<Value*> registers) {
  held_order_.push_back(tile);
  return held_[tile].emplace_back(Held{std::move(layout), std::move(registers)});
}

const Held& Program::pull(const ir::Value* tile) {
  const LinearLayout layout = preferred(tile);
  pull(tile, layout);
  return *held(tile, layout);
}

const std::vector<Value*>& Program::pull(const ir::Value* tile, const LinearLayout& layout) {
  if (const Held* ready = held(tile, layout)) return ready->registers;
  if (layout.num_registers() > kMostRegisters)
    throw Error(
        ErrorCode::compile_failed,
        fmt::format("kernel {}: a {} needs {} values a thread with {} warps, {} fit; take smaller tiles or more warps",
                    function_.name(), to_string(tile->type), layout.num_registers(), e_.num_warps, kMostRegisters));
  // Where threads have the same elements in another order, nothing is computed again.
  for (const Held& other : held_[tile])
    if (conversion(other.layout, layout) == Conversion::permute_registers)
      return hold(tile, layout, convert(other, layout, tile->type)).registers;
  return hold(tile, layout, compute(tile, layout)).registers;
}

std::vector<Value*> Program::compute(const ir::Value* tile, const LinearLayout& layout) {
  const Op* op = tile->def;
  if (op) {
    if (op->info().group == OpGroup::unary || op->info().group == OpGroup::binary) {
      if (auto values = masked(*op, layout)) return *std::move(values);
      return elementwise(*op, layout);
    }
    switch (op->kind) {
      case OpKind::full:
        return std::vector<Value*>(static_cast<size_t>(layout.num_registers()), scalars_.at(op->operands[0]));
      case OpKind::iota: {
        std::vector<Value*> values;
        for (int reg = 0; reg < layout.num_registers(); ++reg)
          values.push_back(layout.representative(reg) == reg ? coordinate(layout, reg, 0)
                                                             : values[static_cast<size_t>(layout.representative(reg))]);
        return values;
      }
      case OpKind::rand: {
        std::vector<Value*> values = pull(op->operands[1], layout);
        for (Value*& value : values) value = codegen::emit_philox(e_.b, scalars_.at(op->operands[0]), value);
        return values;
      }
      case OpKind::expand:
      case OpKind::broadcast:
      case OpKind::trans: return broadcast(*op, layout);
      case OpKind::split: return pull_half(*op, tile->index, layout);
      case OpKind::join: return join(*op, layout);
      case OpKind::reshape:
      case OpKind::concat: return rearrange(*op, layout);
      case OpKind::load:
      case OpKind::gather:
        // A load that has happened already is not repeated: memory may have changed.
        if (std::find(open_loads_.begin(), open_loads_.end(), op) != open_loads_.end())
          return op->kind == OpKind::load ? load(*op, layout) : gather(*op, layout);
        break;
      default: break;
    }
  }
  const auto found = held_.find(tile);
  if (found == held_.end() || found->second.empty()) {
    if (op) fail(*op, "has no lowering");
    throw Error(ErrorCode::internal, "kernel " + function_.name() + ": a carried tile has no value");
  }
  return convert(found->second.front(), layout, tile->type);
}

// The tile in layout `to` by way of `from`, in which it is computed.
std::vector<Value*> Program::pull_converted(const ir::Value* tile, const LinearLayout& from, const LinearLayout& to) {
  return convert({from, pull(tile, from)}, to, tile->type);
}

std::vector<Value*> Program::elementwise(const Op& op, const LinearLayout& layout) {
  std::vector<const std::vector<Value*>*> operands;
  for (const ir::Value* operand : op.operands)
    operands.push_back(operand->type.is_tile() ? &pull(operand, layout) : nullptr);
  const DType to = op.results[0]->type.dtype;
  const bool narrows = op.kind == OpKind::cast && op.operands[0]->type.is_tile() &&
                       op.operands[0]->type.dtype == DType::f32 && is_float(to) && dtype_bytes(to) == 2;
  std::vector<Value*> values;
  for (int reg = 0; reg < layout.num_registers(); ++reg) {
    if (const int same = layout.representative(reg); same != reg) {
      values.push_back(values[static_cast<size_t>(same)]);
      continue;
    }
    if (narrows && reg + 1 < layout.num_registers() && layout.representative(reg + 1) == reg + 1) {
      const auto first = operands[0]->begin() + reg;
      for (Value* value : e_.narrowed(first[0], first[1], to)) values.push_back(value);
      ++reg;
      continue;
    }
    std::vector<Value*> elements;
    for (size_t i = 0; i < operands.size(); ++i)
      elements.push_back(operands[i] ? (*operands[i])[static_cast<size_t>(reg)] : scalars_.at(op.operands[i]));
    values.push_back(arithmetic(op, elements));
  }
  return values;
}

// expand, broadcast and trans move no element between threads: the operand is asked for in the matching layout.
std::vector<Value*> Program::broadcast(const Op& op, const LinearLayout& layout) {
  const ir::Value* source = op.operands[0];
  if (op.kind == OpKind::trans) {
    const auto& perm = std::get<std::vector<int64_t>>(op.attributes.at("perm"));
    std::vector<int64_t> inverse(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
    const LinearLayout operand = layout.permuted(inverse);
    const auto map = [&](Coordinates c) {
      Coordinates turned{};
      for (size_t i = 0; i < perm.size(); ++i) turned[static_cast<size_t>(perm[i])] = c[i];
      return turned;
    };
    return picked(pull(source, operand), matching_registers(layout, operand, map));
  }
  if (op.kind == OpKind::expand) {
    const auto axis = static_cast<int>(op.int_attr("axis"));
    const LinearLayout operand = layout.without(axis);
    const auto map = [&](Coordinates c) {
      for (int d = axis; d + 1 < kMaxRank; ++d) c[d] = c[d + 1];
      c[kMaxRank - 1] = 0;
      return c;
    };
    return picked(pull(source, operand), matching_registers(layout, operand, map));
  }
  LinearLayout operand = layout;
  std::array<bool, kMaxRank> stretched{};
  for (int d = 0; d < source->type.rank; ++d) {
    stretched[d] = source->type.shape[d] == 1 && op.results[0]->type.shape[d] != 1;
    if (stretched[d]) operand = operand.collapsed(d);
  }
  const auto map = [&](Coordinates c) {
    for (int d = 0; d < kMaxRank; ++d)
      if (stretched[d]) c[d] = 0;
    return c;
  };
  return picked(pull(source, operand), matching_registers(layout, operand, map));
}

// The even or odd columns of a tile.
std::vector<Value*> Program::pull_half(const Op& op, int half, const LinearLayout& layout) {
  const auto& whole = pull(op.operands[0], layout.doubled(layout.rank() - 1));
  std::vector<Value*> values;
  for (size_t reg = static_cast<size_t>(half); reg < whole.size(); reg += 2) values.push_back(whole[reg]);
  return values;
}

std::vector<Value*> Program::join(const Op& op, const LinearLayout& layout) {
  const auto half = layout.halved(layout.rank() - 1);
  if (!half) {  // in a layout that keeps pairs together, then into this one
    const ir::Type& type = op.results[0]->type;
    const LinearLayout pairs = default_layout(op.operands[0]->type).doubled(type.rank - 1);
    return convert({pairs, pull(op.results[0], pairs)}, layout, type);
  }
  const std::vector<Value*> even = pull(op.operands[0], *half), odd = pull(op.operands[1], *half);
  std::vector<Value*> values;
  for (size_t i = 0; i < even.size(); ++i) values.push_back(even[i]), values.push_back(odd[i]);
  return values;
}

// reshape and concat: through shared memory, where the result lies row-major.
std::vector<Value*> Program::rearrange(const Op& op, const LinearLayout& layout) {
  const ir::Type& type = op.results[0]->type;
  const int64_t columns = type.shape[type.rank - 1];
  std::vector<Held> sources;  // conversions on the way to them use the scratch memory too
  for (const ir::Value* operand : op.operands) sources.push_back({preferred(operand), pull(operand).registers});
  Value* base = e_.scratch(type.num_elements() * dtype_bytes(type.dtype));
  e_.sync_before_scratch();
  int64_t first = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const ir::Type& from = op.operands[i]->type;
    const int64_t width = from.shape[from.rank - 1];
    const auto& [source, values] = sources[i];
    for (int reg = 0; reg < source.num_registers(); ++reg) {
      if (source.representative(reg) != reg) continue;
      Value* offset =
          e_.b.CreateAdd(flat_index(source, from, reg, op.kind == OpKind::concat ? columns : width), e_.i32(first));
      e_.store(type.dtype, e_.element_pointer(base, offset, type.dtype), {values[static_cast<size_t>(reg)]},
               both(is_inside(source, from, reg), is_writer(source)));
    }
    first += width;
  }
  e_.sync();
  std::vector<Value*> result;
  Value* none = llvm::Constant::getNullValue(e_.type_of(type.dtype));
  for (int reg = 0; reg < layout.num_registers(); ++reg) {
    const int same = layout.representative(reg);
    Value* pointer = e_.element_pointer(base, flat_index(layout, type, reg, columns), type.dtype);
    result.push_back(same != reg ? result[static_cast<size_t>(same)]
                                 : e_.load(type.dtype, pointer, 1, is_inside(layout, type, reg), none)[0]);
  }
  return result;
}

// Row-major position of register `reg` among rows of `columns` elements.
Value* Program::flat_index(const LinearLayout& layout, const ir::Type& type, int reg, int64_t columns) {
  Value* index = e_.i32(0);
  for (int d = 0; d < type.rank; ++d) {
    const int64_t side = d + 1 == type.rank ? columns : type.shape[d];
    index = e_.b.CreateAdd(e_.b.CreateMul(index, e_.i32(side)), coordinate(layout, reg, d));
  }
  return index;
}

}  // namespace seqtile::nvptx
