// jit/sim/decode/decode_operands.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/decode/decode_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "jit/ptx/address.h"
#include "jit/ptx/ptx_declarations.h"
#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

constexpr std::string_view kSpecialNames[] = {
#define SEQTILE_SPECIAL(name, text) text,
#include "jit/ptx/special_registers.def"
#undef SEQTILE_SPECIAL
};

int64_t place(int64_t& total, const PtxVariable& variable) {
  const int64_t offset = (total + variable.align - 1) / variable.align * variable.align;
  total = offset + variable.bytes;
  return offset;
}

constexpr int64_t kMaxLocal = 512 << 10, kMaxShared = 227 << 10, kMaxGlobal = int64_t{1} << 30;
constexpr int64_t kFrameAlign = 16;
/// Frames of recursive functions, beside those of one chain of calls without recursion.
constexpr int64_t kRecursionBytes = 16 << 10;

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// The names of variables of the module, among others, that an operand uses.
void add_names(const PtxOperand& operand, std::set<std::string_view>& into) {
  if (operand.kind == PtxOperand::Kind::symbol && operand.variable < 0) into.insert(operand.text);
  for (const PtxOperand& element : operand.elements) add_names(element, into);
}

/// The variables of the module that the functions, or the first values of such variables, name.
std::set<std::string_view> used_names(const PtxModule& module, const std::vector<ReachedFunction>& reached) {
  std::set<std::string_view> names;
  for (const ReachedFunction& function : reached)
    for (const PtxInstruction& instruction : function.text->instructions)
      for (const PtxOperand& operand : instruction.operands) add_names(operand, names);
  for (size_t before = 0; before != names.size();) {
    before = names.size();
    for (const PtxVariable& variable : module.variables)
      if (names.contains(variable.name))
        for (const PtxRelocation& relocation : variable.relocations) names.insert(relocation.name);
  }
  return names;
}

}  // namespace

OperandTable::OperandTable(const PtxModule& module, const std::vector<ReachedFunction>& reached, Program& program)
    : module_(module), reached_(reached), program_(program), parameters_(reached.size()), variables_(reached.size()) {
  for (const ReachedFunction& function : reached) {
    Function& made = program.functions.emplace_back();
    made.name = function.text->name;
    made.is_recursive = function.is_recursive;
    made.first_register = static_cast<uint32_t>(virtual_.is_wide.size());
    for (const PtxRegister& reg : function.text->registers) virtual_.is_wide.push_back(ptx_type_bytes(reg.type) == 8);
    made.end_register = static_cast<uint32_t>(virtual_.is_wide.size());
  }
  virtual_.is_wide.push_back(false);  // the carry
  virtual_.num_registers = static_cast<uint32_t>(virtual_.is_wide.size());
  place_module_variables();
  for (size_t f = 0; f < reached.size(); ++f) lay_out(f);
  size_stack();
  // dynamic shared memory lies behind all static variables
  int64_t& bytes = program.static_shared_bytes;
  for (const PtxVariable& variable : module.variables) {
    if (!module_symbols_.contains(variable.name) || variable.space != PtxSpace::shared || !variable.is_extern) continue;
    bytes = round_up(bytes, variable.align);
    program.dynamic_shared = variable.name;
    module_symbols_[variable.name] = {kSharedBase + static_cast<uint64_t>(bytes), false, false, 0};
  }
  relocate();
}

/// Sizes beyond the limits of a device are reported before anything is allocated.
void OperandTable::place_module_variables() {
  const std::set<std::string_view> names = used_names(module_, reached_);
  int64_t shared = 0, global = 0;
  const auto count = [&](const PtxVariable& variable) {
    if (variable.space == PtxSpace::shared) place(shared, variable);
    if (variable.space == PtxSpace::global || variable.space == PtxSpace::constant) place(global, variable);
  };
  for (const PtxVariable& variable : module_.variables)
    if (names.contains(variable.name)) count(variable);
  for (const ReachedFunction& function : reached_)
    for (const PtxVariable& variable : function.text->variables) count(variable);
  check_size(".shared", shared, kMaxShared);
  check_size(".global and .const", global, kMaxGlobal);
  for (const PtxVariable& variable : module_.variables) {
    if (!names.contains(variable.name)) continue;
    if (variable.is_extern) module_symbols_[variable.name] = {};
    else module_symbols_[variable.name] = place_variable(variable);
    if (!variable.is_extern || variable.space == PtxSpace::shared) continue;
    throw Error(ErrorCode::compile_failed, fmt::format("kernel {}: variable '{}' is only declared in the text; link "
                                                       "what defines it into the text",
                                                       reached_.back().text->name, variable.name));
  }
}

void OperandTable::check_size(const char* what, int64_t bytes, int64_t most) const {
  if (bytes > most)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("kernel {}: its {} variables need {} bytes, {} are available; declare smaller ones",
                            reached_.back().text->name, what, bytes, most));
}

/// Gives a function's variables, parameters and results their places.
void OperandTable::lay_out(size_t index) {
  const PtxKernel& text = *reached_[index].text;
  Function& function = program_.functions[index];
  int64_t& frame = function.frame_bytes;
  const auto of_frame = [&](const PtxVariable& variable) {
    const uint64_t window = variable.space == PtxSpace::param ? kLocalWindow : 0;
    return Symbol{window | (kLocalBase + static_cast<uint64_t>(place(frame, variable))), window != 0, text.is_function,
                  variable.bytes};
  };
  for (const auto* list : {&text.results, &text.params})
    for (const PtxVariable& param : *list)
      parameters_[index][param.name] =
          text.is_function ? of_frame(param)
                           : Symbol{kParamWindow + static_cast<uint64_t>(param.offset), true, false, param.bytes};
  for (const PtxVariable& variable : text.variables) {
    const bool is_in_frame = variable.space == PtxSpace::local || variable.space == PtxSpace::param;
    variables_[index].push_back(is_in_frame ? of_frame(variable) : place_variable(variable));
  }
  check_size(".local", frame, kMaxLocal);
  frame = round_up(frame, kFrameAlign);
}

/// The bytes of the deepest chain of calls; functions stand behind those that they call.
void OperandTable::size_stack() {
  std::vector<int64_t> deepest(reached_.size(), 0);
  bool is_recursive = false;
  for (size_t f = 0; f < reached_.size(); ++f) {
    for (const size_t callee : reached_[f].callees) deepest[f] = std::max(deepest[f], deepest[callee]);
    deepest[f] += program_.functions[f].frame_bytes;
    is_recursive |= reached_[f].is_recursive;
  }
  program_.local_bytes = deepest.back() + (is_recursive ? kRecursionBytes : 0);
  check_size(".local", program_.local_bytes, kMaxLocal);
}

OperandTable::Symbol OperandTable::place_variable(const PtxVariable& variable) {
  if (variable.space == PtxSpace::shared)
    return {kSharedBase + static_cast<uint64_t>(place(program_.static_shared_bytes, variable)), false, false,
            variable.bytes};
  auto storage = std::make_shared<std::vector<uint64_t>>((variable.bytes + 15) / 8);
  std::ranges::copy(variable.initial, reinterpret_cast<uint8_t*>(storage->data()));
  if (!variable.relocations.empty()) with_addresses_.push_back({&variable, storage->data()});
  program_.globals.push_back(
      {std::string(variable.name), storage, variable.bytes, variable.space == PtxSpace::constant});
  return {reinterpret_cast<uint64_t>(storage->data()), true, false, variable.bytes};
}

/// Writes addresses into first values. That of a function is null: no call takes it.
void OperandTable::relocate() {
  for (const Storage& storage : with_addresses_)
    for (const PtxRelocation& relocation : storage.variable->relocations) {
      const auto symbol = module_symbols_.find(relocation.name);
      const bool is_function = module_.find_function(relocation.name) != nullptr;
      if (symbol == module_symbols_.end() && !is_function)
        throw Error(ErrorCode::compile_failed,
                    fmt::format("kernel {}: the first values of '{}' name '{}', which the "
                                "text does not have",
                                reached_.back().text->name, storage.variable->name, relocation.name));
      const uint64_t base = symbol == module_symbols_.end() ? 0 : symbol->second.value;
      const uint64_t value = (base + static_cast<uint64_t>(relocation.addend)) >> relocation.shift;
      std::memcpy(reinterpret_cast<std::byte*>(storage.words) + relocation.offset, &value,
                  static_cast<size_t>(relocation.bytes));
    }
}

void OperandTable::begin_function(size_t index) {
  index_ = index;
  kernel_ = reached_[index].text;
  frame_slots_.clear();
}

OperandTable::Symbol OperandTable::symbol_of(const PtxOperand& operand) const {
  if (operand.variable >= 0) return variables_[index_][static_cast<size_t>(operand.variable)];
  if (const auto found = parameters_[index_].find(operand.text); found != parameters_[index_].end())
    return found->second;
  if (const auto found = module_symbols_.find(operand.text); found != module_symbols_.end()) return found->second;
  fail(fmt::format("the address of function '{}' is taken; functions are called by their names here", operand.text));
}

std::pair<int64_t, int64_t> OperandTable::frame_place(const PtxOperand& operand) const {
  const Symbol symbol = symbol_of(operand);
  if ((symbol.value & kLocalWindow) == 0 || operand.offset != 0)
    fail(fmt::format("'{}' is no .param variable that a call can take", operand.text));
  return {static_cast<int64_t>(symbol.value & ~kLocalWindow) - static_cast<int64_t>(kLocalBase), symbol.bytes};
}

uint32_t OperandTable::frame_slot(uint64_t offset, bool is_wide) {
  const auto [found, is_new] =
      frame_slots_.try_emplace({offset, is_wide}, static_cast<uint32_t>(virtual_.is_wide.size()));
  if (is_new) {
    virtual_.is_wide.push_back(is_wide);
    program_.functions[index_].frame_slots.push_back({found->second, offset, is_wide});
  }
  return found->second;
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
  if (name == "%envreg1" || name == "%envreg2") add_workspace();
  const bool is_of_clusters = name.find("cluster") != std::string_view::npos;
  if (is_of_clusters && module_.target < PtxTarget::sm_90)
    fail(describe_lack(fmt::format("register {}", name), PtxTarget::sm_90, module_.target_name));
  for (size_t i = 0; i < std::size(kSpecialNames); ++i)
    if (kSpecialNames[i] == name) return special(static_cast<Special>(i), is_wide);
  fail("register '" + std::string(name) + "' is not known");
}

void OperandTable::add_workspace() {
  if (program_.grid_workspace != 0) return;
  auto storage = std::make_shared<std::vector<uint64_t>>(8);
  program_.grid_workspace = reinterpret_cast<uint64_t>(storage->data());
  program_.globals.push_back({"the grid's workspace", std::move(storage), 64, false});
}

int OperandTable::register_bytes(const PtxOperand& operand) const {
  return operand.kind == PtxOperand::Kind::reg ? ptx_type_bytes(kernel_->registers[operand.reg].type) : 0;
}

bool OperandTable::is_wide_address(const PtxOperand& operand) const {
  if (operand.kind == PtxOperand::Kind::symbol) return symbol_of(operand).is_wide;
  return register_bytes(operand) == 8;
}

void OperandTable::check_register(const PtxOperand& operand, char letter) const {
  const PtxRegister& reg = kernel_->registers[operand.reg];
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
    case PtxOperand::Kind::reg: check_register(operand, letter); return register_id(operand.reg);
    case PtxOperand::Kind::immediate:
      return constant(letter == 'p' ? (operand.bits != 0 ? ~0u : 0u) : immediate_bits(operand, is_wide), is_wide);
    case PtxOperand::Kind::special: return special(operand.text, is_wide);
    case PtxOperand::Kind::symbol: {
      const Symbol symbol = symbol_of(operand);
      const uint64_t value = symbol.value + static_cast<uint64_t>(operand.offset);
      const bool takes_wide = letter == 'a' ? symbol.is_wide : is_wide;
      return symbol.is_in_frame ? frame_slot(value, takes_wide) : constant(value, takes_wide);
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
