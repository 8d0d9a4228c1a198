// jit/sim/ptx_module.h -- PTX text as data: kernels, parameters, variables, registers and instructions.
// SPDX-License-Identifier: Apache-2.0
//
// The parser resolves names and nothing else: registers and labels of nested `{ }` scopes become indices, an opcode
// stays text. What a form means is decided by the decoder (jit/sim/decode.h), so a form that the machine does not know
// still parses, and its line is known when the decoder refuses it. A kernel or function that cannot be read keeps its
// problem for whoever executes it: others of the text may run. Views point into the text that the module owns.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  f32x2,
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

/// What a text may use. A text runs on devices from its own target on, so they are compared by order; sm_90a is sm_90
/// with what only that architecture has. Older targets than sm_80 count as sm_80, newer ones than sm_100 as sm_100: the
/// forms in the text decide whether it can be executed.
enum class PtxTarget : uint8_t { sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100 };
std::string_view ptx_target_name(PtxTarget target);
/// What a text says that uses a thing which its own target, `stated`, lacks.
std::string describe_lack(std::string_view what, PtxTarget needed, std::string_view stated);
/// Nothing where `name` is no target.
std::optional<PtxTarget> parse_ptx_target(std::string_view name);

/// A place in a variable's first values that holds the address of another variable.
struct PtxRelocation {
  int64_t offset = 0;
  int bytes = 8;
  int shift = 0;  ///< of the address, in bits: `0xFF00(name)` takes its second byte
  std::string_view name;
  int64_t addend = 0;
};

struct PtxVariable {
  std::string_view name;
  PtxSpace space = PtxSpace::generic;
  PtxType type = PtxType::b8;
  int64_t align = 1, bytes = 0;
  int64_t offset = 0;            ///< of a parameter: in the parameter block
  bool is_extern = false;        ///< `.extern .shared x[]`: the launch decides the size
  bool is_unsized = false;       ///< `x[]`
  bool is_pointer = false;       ///< of a parameter that the text marks with .ptr
  std::vector<uint8_t> initial;  ///< of the first bytes, the others are zero
  std::vector<PtxRelocation> relocations;
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
  bool is_negated = false;  ///< `!%p1`
  bool is_double = false;   ///< an immediate written as 0d...: 64 bits of a double
  bool is_float = false;    ///< an immediate written as 0f...: 32 bits of a float
  uint32_t reg = 0;         ///< index into PtxKernel::registers
  int variable = -1;        ///< of a symbol: index into PtxKernel::variables, -1: of the module, or a parameter
  uint64_t bits = 0;        ///< of an immediate, sign extended
  int64_t offset = 0;       ///< of [base+offset] and symbol+offset
  uint32_t target = 0;      ///< of a label: index of the instruction
  std::string_view text;    ///< special register, symbol or label
  std::vector<PtxOperand> elements;  ///< of a vector {..} or of a memory operand: the base, then its coordinates
};

struct PtxInstruction {
  std::string_view opcode;  ///< with all modifiers: "add.s32"
  int guard = -1;           ///< index of a predicate register, -1: always
  bool is_guard_negated = false;
  int line = 0;
  std::vector<PtxOperand> operands;
  std::string_view callee;        ///< of a call: the function, or the register that holds its address
  size_t num_results = 0;         ///< of a call: the operands that it writes, in front of its arguments
  std::vector<uint32_t> targets;  ///< of brx.idx: indices of instructions
};

/// A kernel or a function.
struct PtxKernel {
  std::string_view name;
  int line = 0;
  bool is_function = false, has_body = true;
  std::vector<PtxVariable> params;
  std::vector<PtxVariable> results;  ///< of a function
  int64_t param_bytes = 0;
  std::vector<PtxRegister> registers;
  std::vector<PtxVariable> variables;  ///< shared, local and param ones declared in the body
  std::vector<PtxInstruction> instructions;
  std::string problem;                              ///< why the text could not be read; said to whoever executes it
  std::array<int, 3> required_block = {0, 0, 0};    ///< .reqntid, zeros without
  int max_threads = 0;                              ///< product of .maxntid, 0 without
  int max_registers = 0;                            ///< .maxnreg, 0 without
  std::array<int, 3> required_cluster = {0, 0, 0};  ///< .reqnctapercluster, zeros without
};

struct PtxModule {
  std::shared_ptr<const std::string> text;
  std::string_view version;
  PtxTarget target = PtxTarget::sm_80;
  std::string_view target_name = "sm_80";
  int target_line = 0;  ///< of `.target`; 0: the text does not say
  std::vector<PtxVariable> variables;
  std::vector<PtxKernel> kernels;
  std::vector<PtxKernel> functions;                                    ///< also those that are only declared
  std::vector<std::pair<std::string_view, std::string_view>> aliases;  ///< names of functions, and what they stand for

  /// Line `number` (from 1) without leading space, for reports.
  std::string_view line(int number) const;
  const PtxKernel* find(std::string_view kernel) const;
  /// The function of that name or alias, its definition where there is one. Null: the text does not name it.
  const PtxKernel* find_function(std::string_view name) const;
};

/// Errors: compile_failed naming the line and what was found there.
PtxModule parse_ptx(std::string_view text);

}  // namespace seqtile::sim
