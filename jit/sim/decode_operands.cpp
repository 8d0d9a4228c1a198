// jit/sim/decode_operands.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/decode_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/error.h"
#include "jit/sim/address.h"

namespace seqtile::sim {
namespace {

constexpr std::string_view kSpecialNames[] = {
#define SEQTILE_SPECIAL(name, text) text,
#include "jit/sim/special_registers.def"
#undef SEQTILE_SPECIAL
};

int64_t place(int64_t& total, const PtxVariable& variable) {
  const int64_t offset = (total + variable.align - 1) / variable.align * variable.align;
  total = offset + variable.bytes;
  return offset;
}

/// What a device gives a thread, a block and a module; said before anything is allocated.
void check_sizes(const PtxModule& module, const PtxKernel& kernel) {
  constexpr int64_t kMaxLocal = 512 << 10, kMaxShared = 227 << 10, kMaxGlobal = int64_t{1} << 30;
  int64_t local = 0, shared = 0, global = 0;
  for (const auto* list : {&module.variables, &kernel.variables})
    for (const PtxVariable& variable : *list) {
      int64_t& bytes = variable.space == PtxSpace::local ? local : variable.space == PtxSpace::shared ? shared : global;
      place(bytes, variable);
    }
  const auto check = [&](const char* what, int64_t bytes, int64_t most) {
    if (bytes > most)
      throw Error(ErrorCode::out_of_resources,
                  fmt::format("kernel {}: its {} variables need {} bytes, {} are available; declare smaller ones",
                              kernel.name, what, bytes, most));
  };
  check(".local", local, kMaxLocal);
  check(".shared", shared, kMaxShared);
  check(".global and .const", global, kMaxGlobal);
}

uint64_t immediate_bits(const PtxOperand& operand, bool is_wide) {
  if (operand.is_double && !is_wide)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits)));
  if (operand.is_float && is_wide)
    return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.bits))));
  return operand.bits;
}

}  // namespace

OperandTable::OperandTable(const PtxModule& module, const PtxKernel& kernel, Program& program)
    : module_(module), kernel_(kernel), program_(program) {
  check_sizes(module, kernel);
  for (const auto* list : {&module.variables, &kernel.variables})
    for (const PtxVariable& variable : *list)
      if (!variable.is_extern) place_variable(variable);
  // dynamic shared memory lies behind all static variables
  int64_t& bytes = program.static_shared_bytes;
  for (const PtxVariable& variable : module.variables) {
    if (!variable.is_extern) continue;
    bytes = (bytes + variable.align - 1) / variable.align * variable.align;
    symbols_[variable.name] = {kSharedBase + static_cast<uint64_t>(bytes), false};
  }
  for (const PtxVariable& param : kernel.params)
    symbols_[param.name] = {kParamWindow + static_cast<uint64_t>(param.offset), true};
  for (const PtxRegister& reg : kernel.registers) virtual_.is_wide.push_back(ptx_type_bytes(reg.type) == 8);
  virtual_.is_wide.push_back(false);  // the carry
  virtual_.num_registers = static_cast<uint32_t>(virtual_.is_wide.size());
}

void OperandTable::place_variable(const PtxVariable& variable) {
  if (variable.space == PtxSpace::shared) {
    symbols_[variable.name] = {kSharedBase + static_cast<uint64_t>(place(program_.static_shared_bytes, variable)),
                               false};
  } else if (variable.space == PtxSpace::local) {
    symbols_[variable.name] = {kLocalBase + static_cast<uint64_t>(place(program_.local_bytes, variable)), false};
  } else {
    auto storage = std::make_shared<std::vector<uint64_t>>((variable.bytes + 15) / 8);
    std::ranges::copy(variable.initial, reinterpret_cast<uint8_t*>(storage->data()));
    symbols_[variable.name] = {reinterpret_cast<uint64_t>(storage->data()), true};
    program_.globals.push_back(
        {std::string(variable.name), storage, variable.bytes, variable.space == PtxSpace::constant});
  }
}

void OperandTable::fail(const std::string& message) const {
  throw Error(ErrorCode::compile_failed, fmt::format("PTX line {}: {}: `{}`", current_->line, message,
                                                     module_.line(current_->line).substr(0, 96)));
}

uint32_t OperandTable::constant(uint64_t value, bool is_wide) {
  if (!is_wide) value = static_cast<uint32_t>(value);
  const auto [found, is_new] = constants_.try_emplace({value, is_wide}, static_cast<uint32_t>(virtual_.is_wide.size()));
  if (is_new) {
    virtual_.is_wide.push_back(is_wide);
    program_.constants.push_back({found->second, is_wide, value});
  }
  return found->second;
}

uint32_t OperandTable::special(Special what, bool is_wide) {
  const auto [found, is_new] =
      specials_.try_emplace({static_cast<int>(what), is_wide}, static_cast<uint32_t>(virtual_.is_wide.size()));
  if (is_new) {
    virtual_.is_wide.push_back(is_wide);
    program_.specials.push_back({found->second, what, is_wide});
  }
  return found->second;
}

uint32_t OperandTable::special(std::string_view name, bool is_wide) {
  if (name == "%clusterid") name = "%clusterid.x";
  const bool is_of_clusters = name.find("cluster") != std::string_view::npos;
  if (is_of_clusters && module_.target < PtxTarget::sm_90)
    fail(describe_lack(fmt::format("register {}", name), PtxTarget::sm_90, module_.target));
  for (size_t i = 0; i < std::size(kSpecialNames); ++i)
    if (kSpecialNames[i] == name) return special(static_cast<Special>(i), is_wide);
  fail("register '" + std::string(name) + "' is not known");
}

int OperandTable::register_bytes(const PtxOperand& operand) const {
  return operand.kind == PtxOperand::Kind::reg ? ptx_type_bytes(kernel_.registers[operand.reg].type) : 0;
}

bool OperandTable::is_wide_address(const PtxOperand& operand) const {
  if (operand.kind == PtxOperand::Kind::symbol) return symbols_.at(operand.text).second;
  return register_bytes(operand) == 8;
}

void OperandTable::check_register(const PtxOperand& operand, char letter) const {
  const PtxRegister& reg = kernel_.registers[operand.reg];
  const int bytes = ptx_type_bytes(reg.type);
  const bool is_predicate = reg.type == PtxType::pred;
  const bool fits = letter == 'p'   ? is_predicate
                    : letter == 'x' ? bytes == 8
                    : letter == 'w' ? bytes <= 4 && !is_predicate
                                    : !is_predicate;
  if (!fits)
    fail(fmt::format("register {} of type .{} does not fit {}", reg.full_name(), ptx_type_name(reg.type),
                     current_->opcode));
}

uint32_t OperandTable::id_of(const PtxOperand& operand, char letter, bool is_wide_value) {
  if (operand.is_negated && letter != 'n') fail("a negated operand is not supported");
  if (letter == 'n') letter = 'p';
  const bool is_wide = letter == 'x' || ((letter == 'v' || letter == 'a') && is_wide_value);
  switch (operand.kind) {
    case PtxOperand::Kind::reg: check_register(operand, letter); return operand.reg;
    case PtxOperand::Kind::immediate:
      return constant(letter == 'p' ? (operand.bits != 0 ? ~0u : 0u) : immediate_bits(operand, is_wide), is_wide);
    case PtxOperand::Kind::special: return special(operand.text, is_wide);
    case PtxOperand::Kind::symbol: {
      const auto [address, needs_wide] = symbols_.at(operand.text);
      return constant(address + static_cast<uint64_t>(operand.offset), letter == 'a' ? needs_wide : is_wide);
    }
    case PtxOperand::Kind::sink: return kNoRegister;
    default: fail("an operand of another kind is expected");
  }
}

void OperandTable::add(const Instruction& decoded, const PtxOperand& operand, char letter, bool is_wide_value) {
  const uint32_t id = id_of(operand, letter, is_wide_value);
  const size_t position = program_.pool.size() - decoded.pool;
  if (id == kNoRegister) {
    if (position >= decoded.num_destinations) fail("'_' cannot be read");
    sinks_.push_back(program_.pool.size());
  } else if (position < decoded.num_destinations && id >= virtual_.num_registers) {
    fail("a register is expected as destination");
  }
  program_.pool.push_back(id);
}

void OperandTable::add_special(Special what) { program_.pool.push_back(special(what, false)); }

void OperandTable::add_carry() { program_.pool.push_back(virtual_.num_registers - 1); }

void OperandTable::insert_sink(Instruction& decoded) {
  for (size_t& position : sinks_)
    if (position >= decoded.pool) ++position;
  sinks_.push_back(decoded.pool);
  program_.pool.insert(program_.pool.begin() + decoded.pool, kNoRegister);
  decoded.num_destinations = 1;
}

const VirtualProgram& OperandTable::finish() {
  if (sinks_.empty()) return virtual_;
  const auto id = static_cast<uint32_t>(virtual_.is_wide.size());
  virtual_.is_wide.push_back(true);
  for (const size_t position : sinks_) program_.pool[position] = id;
  return virtual_;
}

}  // namespace seqtile::sim
