// jit/sim/decode/decode_operands.h -- the operands of an instruction as virtual ids, private to the decoder.
// SPDX-License-Identifier: Apache-2.0
//
// Registers keep their index, after the registers of earlier functions. Every immediate, address of a variable and
// special register gets one id behind all registers, the same wherever it is used. Variables get their places in
// shared, local and global memory here. A variable of the module that the kernel does not reach takes no place.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/ptx/address.h"
#include "jit/ptx/call_graph.h"
#include "jit/sim/decode/decode.h"

namespace seqtile::sim {

class OperandTable {
 public:
  /// Makes room for the registers of the functions that are reached and lays out their frames in `program`.
  OperandTable(const PtxModule& module, const std::vector<ReachedFunction>& reached, Program& program);

  /// The function that the following instructions belong to, by its place in the program.
  void begin_function(size_t index);
  /// The instruction that the following operands belong to.
  void begin(const PtxInstruction& text) { current_ = &text; }
  /// Errors: compile_failed with the instruction's line.
  [[noreturn]] void fail(const std::string& message) const;

  /// The id of a register of the function, by its index there.
  uint32_t register_id(uint32_t index) const { return function().first_register + index; }
  /// Offset and size in its frame of a .param variable of the function. Errors: compile_failed where `operand` is none.
  std::pair<int64_t, int64_t> frame_place(const PtxOperand& operand) const;
  /// The place of a parameter or result of a function in that function's frame.
  int64_t frame_offset(size_t function, std::string_view parameter) const {
    return static_cast<int64_t>(parameters_[function].at(parameter).value & ~kLocalWindow) -
           static_cast<int64_t>(kLocalBase);
  }

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
  /// The value of a name: an address, or an offset in the frame of the function.
  struct Symbol {
    uint64_t value = 0;
    bool is_wide = false, is_in_frame = false;
    int64_t bytes = 0;
  };
  const Function& function() const { return program_.functions[index_]; }
  void lay_out(size_t index);
  void size_stack();
  void place_module_variables();
  void check_size(const char* what, int64_t bytes, int64_t most) const;
  Symbol place_variable(const PtxVariable& variable);
  void relocate();
  Symbol symbol_of(const PtxOperand& operand) const;
  void add_workspace();
  uint32_t frame_slot(uint64_t offset, bool is_wide);
  uint32_t constant(uint64_t value, bool is_wide);
  uint32_t special(Special what, bool is_wide);
  uint32_t special(std::string_view name, bool is_wide);
  void check_register(const PtxOperand& operand, char letter) const;
  uint32_t id_of(const PtxOperand& operand, char letter, bool is_wide_value);

  const PtxModule& module_;
  const std::vector<ReachedFunction>& reached_;
  const PtxKernel* kernel_ = nullptr;  ///< the kernel or function that is decoded now
  size_t index_ = 0;                   ///< its place in the program
  Program& program_;
  const PtxInstruction* current_ = nullptr;
  VirtualProgram virtual_;
  std::map<std::string_view, Symbol> module_symbols_;           ///< variables of the module that are reached
  std::vector<std::map<std::string_view, Symbol>> parameters_;  ///< by function: also results
  std::vector<std::vector<Symbol>> variables_;                  ///< by function
  std::map<std::pair<uint64_t, bool>, uint32_t> frame_slots_;   ///< slots of the function
  struct Storage {
    const PtxVariable* variable;
    uint64_t* words;
  };
  std::vector<Storage> with_addresses_;  ///< variables whose first values hold addresses
  std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
  std::map<std::pair<int, bool>, uint32_t> specials_;
  std::vector<size_t> sinks_;
};

}  // namespace seqtile::sim
