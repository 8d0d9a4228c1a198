// jit/sim/values/scalar.h -- scalar PTX instructions as families of (operation x type): from an opcode to a function.
// SPDX-License-Identifier: Apache-2.0
//
// LLVM chooses the scalar forms that a kernel contains, so they are covered by families and not form by form. Each
// group of families has a resolver; resolve_scalar asks each in turn. A resolver that knows the operation but not these
// modifiers returns no function, and the decoder reports the form with its line.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/ptx/ptx_module.h"
#include "jit/sim/values/lanes.h"

namespace seqtile::sim {

/// Facts about an operand before it has a slot.
struct OperandShape {
  int bytes = 0;   ///< the register's width: 1 predicate, 2, 4, 8; 0: an immediate of the instruction's width
  int vector = 0;  ///< elements of a `{..}` operand, 0 otherwise
  bool is_negated = false;
};

/// Operand letters, destinations first: p predicate, n predicate that may be negated, w at most 32 bits, x 64 bits, c
/// the condition code, which the text does not name.
struct ScalarForm {
  ScalarFn run = nullptr;
  uint32_t aux = 0;
  std::string operands;
  int num_destinations = 1;
};

/// An opcode cut at its dots.
struct Opcode {
  explicit Opcode(std::string_view text);
  std::string_view base() const { return parts.front(); }
  PtxType type() const { return parse_ptx_type(parts.back()); }
  bool has(std::string_view modifier) const;
  /// True when every part between the base and the last `types` parts is in `allowed`.
  bool only(std::initializer_list<std::string_view> allowed, size_t types = 1) const;
  std::vector<std::string_view> parts;
};

std::optional<ScalarForm> resolve_scalar(const Opcode& opcode, std::span<const OperandShape> shapes);

// One per group of families, in the file of that name.
std::optional<ScalarForm> resolve_integer(const Opcode& opcode);
std::optional<ScalarForm> resolve_carry(const Opcode& opcode);
std::optional<ScalarForm> resolve_bits(const Opcode& opcode);
std::optional<ScalarForm> resolve_float(const Opcode& opcode);
std::optional<ScalarForm> resolve_rounded(const Opcode& opcode);
std::optional<ScalarForm> resolve_mixed(const Opcode& opcode, size_t num_operands);
std::optional<ScalarForm> resolve_half(const Opcode& opcode);
std::optional<ScalarForm> resolve_compare(const Opcode& opcode, std::span<const OperandShape> shapes);
std::optional<ScalarForm> resolve_convert(const Opcode& opcode, std::span<const OperandShape> shapes);
std::optional<ScalarForm> resolve_move(const Opcode& opcode, std::span<const OperandShape> shapes);

/// "wx" and so on for `count` operands of one type.
std::string operand_letters(PtxType type, int count);

}  // namespace seqtile::sim
