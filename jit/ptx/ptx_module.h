// jit/ptx/ptx_module.h -- PTX text as data: kernels, parameters, variables, registers and instructions.
// SPDX-License-Identifier: Apache-2.0
//
// The parser resolves names and nothing else: registers and labels of nested `{ }` scopes become indices, an opcode
// stays text. The decoder (jit/sim/decode/decode.h) decides what a form means, so a form that the machine does not know
// still parses, and its line is known when the decoder refuses it. A kernel or function that cannot be read keeps its
// problem until it is executed: other kernels of the text may run. Views point into the text that the module owns.
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

/// The target of a text: it may use this target's forms. A text runs on devices from its own target on, so targets are
/// compared by order. sm_90a is sm_90 with forms that only that architecture has. Targets older than sm_80 count as
/// sm_80, newer than sm_100 as sm_100: the forms in the text decide whether it can be executed.
enum class PtxTarget : uint8_t { sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100 };
std::string_view ptx_target_name(PtxTarget target);
/// The error message for a text that uses `what`, which target `needed` has and the text's own target, `stated`, lacks.
std::string describe_lack(std::string_view what, PtxTarget needed, std::string_view stated);
/// Nothing where `name` is no target.
std::optional<PtxTarget> parse_ptx_target(std::string_view name);

/// A place in a variable's first values that holds the address of another variable.
struct PtxRelocation {
  int64_t offset = 0;
  int bytes = 8;
  int shift = 0;  ///< bits by which the address is shifted: `0xFF00(name)` takes its second byte
  std::string_view name;
  int64_t addend = 0;
};

struct PtxVariable {
  std::string_view name;
  PtxSpace space = PtxSpace::generic;
  PtxType type = PtxType::b8;
  int64_t align = 1, bytes = 0;
  int64_t offset = 0;            ///< parameters: place in the parameter block
  bool is_extern = false;        ///< `.extern .shared x[]`: the launch decides the size
  bool is_unsized = false;       ///< `x[]`
  bool is_pointer = false;       ///< parameters: the text marks it with .ptr
  std::vector<uint8_t> initial;  ///< values of the first bytes; the others are zero
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
  bool is_negated = false;           ///< `!%p1`
  bool is_double = false;            ///< an immediate written as 0d...: 64 bits of a double
  bool is_float = false;             ///< an immediate written as 0f...: 32 bits of a float
  uint32_t reg = 0;                  ///< index into PtxKernel::registers
  int variable = -1;                 ///< symbols: index into PtxKernel::variables; -1: of the module, or a parameter
  uint64_t bits = 0;                 ///< immediates: the value, sign extended
  int64_t offset = 0;                ///< [base+offset] and symbol+offset: the offset
  uint32_t target = 0;               ///< labels: index of the instruction
  std::string_view text;             ///< special register, symbol or label
  std::vector<PtxOperand> elements;  ///< elements of a vector {..}; memory operands: the base, then its coordinates
};

struct PtxInstruction {
  std::string_view opcode;  ///< with all modifiers: "add.s32"
  int guard = -1;           ///< index of a predicate register, -1: always
  bool is_guard_negated = false;
  int line = 0;
  std::vector<PtxOperand> operands;
  std::string_view callee;        ///< calls: the function, or the register that holds its address
  size_t num_results = 0;         ///< calls: how many operands it writes; they stand in front of its arguments
  std::vector<uint32_t> targets;  ///< brx.idx: indices of instructions
};

/// A kernel or a function.
struct PtxKernel {
  std::string_view name;
  int line = 0;
  bool is_function = false, has_body = true;
  std::vector<PtxVariable> params;
  std::vector<PtxVariable> results;  ///< functions only
  int64_t param_bytes = 0;
  std::vector<PtxRegister> registers;
  std::vector<PtxVariable> variables;  ///< shared, local and param variables declared in the body
  std::vector<PtxInstruction> instructions;
  std::string problem;                              ///< why the text could not be read; the error of executing it
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
  int target_line = 0;  ///< line of `.target`; 0: the text has none
  std::vector<PtxVariable> variables;
  std::vector<PtxKernel> kernels;
  std::vector<PtxKernel> functions;                                    ///< also functions that are only declared
  std::vector<std::pair<std::string_view, std::string_view>> aliases;  ///< second names of functions: alias, function

  /// Line `number` (from 1) without leading space, for reports.
  std::string_view line(int number) const;
  const PtxKernel* find(std::string_view kernel) const;
  /// The function of that name or alias; its definition if there is one. Null: the text does not name it.
  const PtxKernel* find_function(std::string_view name) const;
};

/// Errors: compile_failed naming the line and what was found there.
PtxModule parse_ptx(std::string_view text);

}  // namespace seqtile::sim
