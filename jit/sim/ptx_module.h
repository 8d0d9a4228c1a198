// jit/sim/ptx_module.h -- PTX text as data: kernels, parameters, variables, registers and instructions.
// SPDX-License-Identifier: Apache-2.0
//
// The parser resolves names and nothing else: registers and labels of nested `{ }` scopes become indices, an opcode
// stays text. What a form means is decided by the decoder (jit/sim/decode.h), so a form that the machine does not know
// still parses, and its line is known when the decoder refuses it. Views point into the text that the module owns.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile::sim {

enum class PtxType : uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  tf32,
  f32,
  f64,
  e4m3,
  e5m2,
  e4m3x2,
  e5m2x2,
};

/// The type named by `text` ("u32"), none where there is no such type.
PtxType parse_ptx_type(std::string_view text);
std::string_view ptx_type_name(PtxType type);
/// Size in bytes; a predicate counts as 1.
int ptx_type_bytes(PtxType type);

enum class PtxSpace : uint8_t { generic, reg, param, shared, local, global, constant };

/// The targets whose text is executed. A text runs on devices from its own target on, so they are compared by order;
/// sm_90a is sm_90 with what only that architecture has.
enum class PtxTarget : uint8_t { sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a };
std::string_view ptx_target_name(PtxTarget target);
/// What a text says that uses a thing which its own target lacks.
std::string describe_lack(std::string_view what, PtxTarget needed, PtxTarget stated);
/// Nothing where `name` is none of them.
std::optional<PtxTarget> parse_ptx_target(std::string_view name);

struct PtxVariable {
  std::string_view name;
  PtxSpace space = PtxSpace::generic;
  PtxType type = PtxType::b8;
  int64_t align = 1, bytes = 0;
  int64_t offset = 0;            ///< of a parameter: in the parameter block
  bool is_extern = false;        ///< `.extern .shared x[]`: the launch decides the size
  std::vector<uint8_t> initial;  ///< of the first bytes, the others are zero
};

struct PtxRegister {
  std::string_view name;  ///< "%r" of `%r<8>`; the number follows
  int number = -1;
  PtxType type = PtxType::none;
  std::string full_name() const;
};

struct PtxOperand {
  enum class Kind : uint8_t { reg, immediate, special, symbol, label, memory, vector, sink };
  Kind kind = Kind::sink;
  bool is_negated = false;           ///< `!%p1`
  bool is_double = false;            ///< an immediate written as 0d...: 64 bits of a double
  bool is_float = false;             ///< an immediate written as 0f...: 32 bits of a float
  uint32_t reg = 0;                  ///< index into PtxKernel::registers
  uint64_t bits = 0;                 ///< of an immediate, sign extended
  int64_t offset = 0;                ///< of [base+offset] and symbol+offset
  uint32_t target = 0;               ///< of a label: index of the instruction
  std::string_view text;             ///< special register, symbol or label
  std::vector<PtxOperand> elements;  ///< of a vector {..} or of a memory operand: the base, then its coordinates
};

struct PtxInstruction {
  std::string_view opcode;  ///< with all modifiers: "add.s32"
  int guard = -1;           ///< index of a predicate register, -1: always
  bool is_guard_negated = false;
  int line = 0;
  std::vector<PtxOperand> operands;
};

struct PtxKernel {
  std::string_view name;
  std::vector<PtxVariable> params;
  int64_t param_bytes = 0;
  std::vector<PtxRegister> registers;
  std::vector<PtxVariable> variables;  ///< shared and local ones declared in the body
  std::vector<PtxInstruction> instructions;
  int required_threads = 0;  ///< product of .reqntid, 0 without
  int max_threads = 0;       ///< product of .maxntid, 0 without
  int max_registers = 0;     ///< .maxnreg, 0 without
  int required_cluster = 0;  ///< product of .reqnctapercluster, 0 without
};

struct PtxModule {
  std::shared_ptr<const std::string> text;
  std::string_view version;
  PtxTarget target = PtxTarget::sm_80;
  int target_line = 0;  ///< of `.target`; 0: the text does not say
  std::vector<PtxVariable> variables;
  std::vector<PtxKernel> kernels;

  /// Line `number` (from 1) without leading space, for reports.
  std::string_view line(int number) const;
  const PtxKernel* find(std::string_view kernel) const;
};

/// Errors: compile_failed naming the line and what was found there.
PtxModule parse_ptx(std::string_view text);

}  // namespace seqtile::sim
