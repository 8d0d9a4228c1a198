// jit/sim/decode_operands.h -- the operands of an instruction as virtual ids, private to the decoder.
// SPDX-License-Identifier: Apache-2.0
//
// Registers keep their index; every immediate, address of a variable and special register gets one id behind them, the
// same wherever it is used. Variables get their places in shared, local and global memory here.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/sim/decode.h"

namespace seqtile::sim {

class OperandTable {
 public:
  /// Places the variables of the module and the kernel and says so in `program`.
  OperandTable(const PtxModule& module, const PtxKernel& kernel, Program& program);

  /// The instruction that the following operands belong to.
  void begin(const PtxInstruction& text) { current_ = &text; }
  /// Errors: compile_failed with the instruction's line.
  [[noreturn]] void fail(const std::string& message) const;

  /// Width of a register operand, 0 for others; a predicate counts as 1.
  int register_bytes(const PtxOperand& operand) const;
  /// Whether an address takes 64 bits.
  bool is_wide_address(const PtxOperand& operand) const;
  /// Appends an operand of `decoded` to the program's pool. `letter` as in ptx_ops.def; v and a take their width from
  /// `is_wide_value` where the operand has none of its own.
  void add(const Instruction& decoded, const PtxOperand& operand, char letter, bool is_wide_value);
  void add_special(Special what);
  /// The condition code of add.cc and its like: a register that no text names.
  void add_carry();
  /// Puts a '_' in front of the operands so far.
  void insert_sink(Instruction& decoded);
  /// Gives every '_' a register that nothing reads. Call once, last.
  const VirtualProgram& finish();

 private:
  void place_variable(const PtxVariable& variable);
  uint32_t constant(uint64_t value, bool is_wide);
  uint32_t special(Special what, bool is_wide);
  uint32_t special(std::string_view name, bool is_wide);
  void check_register(const PtxOperand& operand, char letter) const;
  uint32_t id_of(const PtxOperand& operand, char letter, bool is_wide_value);

  const PtxModule& module_;
  const PtxKernel& kernel_;
  Program& program_;
  const PtxInstruction* current_ = nullptr;
  VirtualProgram virtual_;
  std::map<std::string_view, std::pair<uint64_t, bool>> symbols_;  ///< address, whether it takes 64 bits
  std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
  std::map<std::pair<int, bool>, uint32_t> specials_;
  std::vector<size_t> sinks_;
};

}  // namespace seqtile::sim
