// jit/sim/decode/decode.h -- the steps of decoding, private to the decoder's files.
// SPDX-License-Identifier: Apache-2.0
//
// decode.cpp turns each instruction of the text into an Instruction over virtual registers. decode_forms.cpp reads the
// modifiers of the non-scalar forms. slots.cpp finds the live ranges of registers and gives them slots.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "jit/sim/decode/program.h"
#include "jit/sim/values/scalar.h"

namespace seqtile::sim {

struct PtxForm {
  Op op;
  PtxTarget target;  ///< the first that has it
  std::string_view pattern, operands;
  InstructionClass kind;
};

/// The row of ptx_ops.def that fits, null without one.
const PtxForm* find_form(const Opcode& opcode);
/// The first target that has the modifiers of a form of ptx_ops.def, or a scalar form.
PtxTarget least_target(const Opcode& opcode);
/// Reads the operation's modifiers into `into`. Returns the error; empty if there is none.
std::string decode_modifiers(const Opcode& opcode, Instruction& into);

/// Instructions that a branch may lead to, besides the next one.
std::span<const uint32_t> branch_targets(const Program& program, const Instruction& instruction);
/// Whether the next instruction of the text may follow.
bool falls_through(const Instruction& instruction);
/// Finds the loops that no path leaves, for Program::never_ends.
void find_endless_loops(Program& program);

/// Operands while they have no slots yet: registers as they are, then constants.
struct VirtualProgram {
  std::vector<bool> is_wide;   ///< per virtual id
  uint32_t num_registers = 0;  ///< ids below: registers of each function and the carry; ids from here on: constants
};

/// Replaces the virtual ids in `program.pool` and the guards by slots and sets the checking flags.
void allocate_slots(Program& program, const VirtualProgram& registers);

}  // namespace seqtile::sim
