// jit/ptx/ptx_scopes.cpp -- see ptx_scopes.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx/ptx_scopes.h"

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "jit/ptx/ptx_lexer.h"

namespace seqtile::sim {

void PtxScopes::open() {
  scopes_.push_back({scope_, {}, {}, {}, {}});
  scope_ = static_cast<int>(scopes_.size()) - 1;
}

void PtxScopes::close() { scope_ = scopes_[scope_].parent; }

void PtxScopes::add_registers(std::string_view name, uint32_t first, int count, int line) {
  if (!scopes_[scope_].registers.emplace(name, Registers{first, count}).second)
    PtxLexer::fail_at(line, fmt::format("register '{}' is declared twice", name));
}

int PtxScopes::find_register(std::string_view name) const {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (int s = scope_; s >= 0; s = scopes_[s].parent) {
    if (const auto found = scopes_[s].registers.find(name); found != scopes_[s].registers.end())
      if (found->second.count < 0) return static_cast<int>(found->second.first);
    if (digits == name.size() || name.size() - digits > 7) continue;
    const auto found = scopes_[s].registers.find(name.substr(0, digits));
    if (found == scopes_[s].registers.end()) continue;
    const int number = std::atoi(std::string(name.substr(digits)).c_str());
    if (number < found->second.count) return static_cast<int>(found->second.first) + number;
  }
  return -1;
}

void PtxScopes::add_label(std::string_view name, uint32_t instruction, int line) {
  if (!scopes_[scope_].labels.emplace(name, instruction).second)
    PtxLexer::fail_at(line, fmt::format("label '{}' stands twice", name));
}

void PtxScopes::note_use(std::string_view label, size_t instruction, size_t operand) {
  uses_.push_back({instruction, operand, scope_, label});
}

void PtxScopes::add_variable(std::string_view name, int index, int line) {
  if (!scopes_[scope_].variables.emplace(name, index).second)
    PtxLexer::fail_at(line, fmt::format("'{}' is declared twice", name));
}

int PtxScopes::find_variable(std::string_view name) const {
  for (int s = scope_; s >= 0; s = scopes_[s].parent)
    if (const auto found = scopes_[s].variables.find(name); found != scopes_[s].variables.end()) return found->second;
  return -1;
}

void PtxScopes::add_to_table(std::string_view table, std::string_view label) {
  scopes_[scope_].tables[table].push_back(label);
}

/// Where the label stands that `name` means in a scope.
uint32_t PtxScopes::label_from(int scope, std::string_view name, int line) const {
  int s = scope;
  while (s >= 0 && !scopes_[s].labels.contains(name)) s = scopes_[s].parent;
  if (s < 0) PtxLexer::fail_at(line, fmt::format("unknown name '{}': no register, variable or label", name));
  return scopes_[s].labels.at(name);
}

void PtxScopes::resolve_labels(std::vector<PtxInstruction>& instructions) const {
  for (const LabelUse& use : uses_) {
    PtxInstruction& instruction = instructions[use.instruction];
    PtxOperand* operand = use.operand < instruction.operands.size() ? &instruction.operands[use.operand] : nullptr;
    const uint32_t target = label_from(use.scope, use.name, instruction.line);
    if (operand == nullptr || operand->kind != PtxOperand::Kind::label)
      PtxLexer::fail_at(instruction.line, fmt::format("label '{}' stands where a value is expected", use.name));
    operand->target = target;
    for (int s = use.scope; s >= 0; s = scopes_[s].parent) {
      const auto table = scopes_[s].tables.find(use.name);
      if (table == scopes_[s].tables.end()) continue;
      for (const std::string_view label : table->second)
        instruction.targets.push_back(label_from(s, label, instruction.line));
      break;
    }
  }
}

}  // namespace seqtile::sim
