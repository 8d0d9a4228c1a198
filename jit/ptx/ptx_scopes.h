// jit/ptx/ptx_scopes.h -- the names of a kernel's registers, variables and labels, by the braces that they stand in.
// SPDX-License-Identifier: Apache-2.0
//
// Inline assembly prints its instructions inside `{ }` with registers and labels of their own, so names are looked up
// from the innermost scope outwards. A label may be used before it stands: uses are patched at the kernel's end.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/ptx/ptx_module.h"

namespace seqtile::sim {

class PtxScopes {
 public:
  void open();
  void close();
  bool is_inside() const { return scope_ >= 0; }

  /// `count` registers from number `first` of the kernel on: name0, name1, ... `count` -1: one register, `name` itself.
  void add_registers(std::string_view name, uint32_t first, int count, int line);
  /// The number of the register, -1 where there is none.
  int find_register(std::string_view name) const;

  void add_variable(std::string_view name, int index, int line);
  /// The variable's index, -1 where there is none.
  int find_variable(std::string_view name) const;

  /// Adds a label that stands in front of `instruction`.
  void add_label(std::string_view name, uint32_t instruction, int line);
  /// Adds the target `label` to the table for brx.idx that is labelled `table`.
  void add_to_table(std::string_view table, std::string_view label);
  void note_use(std::string_view label, size_t instruction, size_t operand);
  /// Fills in the places of all labels that were used.
  void resolve_labels(std::vector<PtxInstruction>& instructions) const;

 private:
  struct Registers {
    uint32_t first = 0;
    int count = -1;
  };
  struct Scope {
    int parent = -1;
    std::unordered_map<std::string_view, Registers> registers;
    std::unordered_map<std::string_view, uint32_t> labels;
    std::unordered_map<std::string_view, int> variables;
    std::unordered_map<std::string_view, std::vector<std::string_view>> tables;
  };
  struct LabelUse {
    size_t instruction, operand;
    int scope;
    std::string_view name;
  };

  uint32_t label_from(int scope, std::string_view name, int line) const;

  std::vector<Scope> scopes_;
  int scope_ = -1;
  std::vector<LabelUse> uses_;
};

}  // namespace seqtile::sim
