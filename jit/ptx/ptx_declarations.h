// jit/ptx/ptx_declarations.h -- reads declarations of parameters and variables: type, alignment, size, first values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "jit/ptx/ptx_lexer.h"
#include "jit/ptx/ptx_module.h"

namespace seqtile::sim {

/// The type behind a dot. `expected`: what the error message asks for where there is no type.
PtxType read_type(PtxLexer& lexer, std::string_view word, const char* expected);
/// An integer or a floating-point number in one of its spellings.
PtxOperand read_immediate(PtxLexer& lexer);
/// The bits of a number as an operand of 64 or of at most 32 bits takes it.
uint64_t immediate_bits(const PtxOperand& operand, bool is_wide);
/// `.align 16 .b8 name[128]`, shared by parameters and variables.
void read_declarator(PtxLexer& lexer, PtxVariable& variable);
/// Reads the first values behind the variable's `=`.
void read_initializer(PtxLexer& lexer, PtxVariable& variable);

}  // namespace seqtile::sim
