// autotune/call/call_values.h -- the values of a call: inputs are filled, outputs are poisoned, results are compared.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "seqtile/op.h"

namespace seqtile::autotune {

/// Value of bytes that nobody has written: NaN in every float format, one that no kernel computes, and -1 in every
/// integer.
constexpr std::byte kPoison{0xFF};

bool is_poison(std::span<const std::byte> bytes);
/// Sets the bytes of all elements to kPoison.
void poison(const Tensor& tensor);
/// Index of the first element, in row-major order, whose bytes are all kPoison; -1 if there is none.
int64_t find_poison(const Tensor& tensor);
/// True if an element has a byte that is not kPoison.
bool has_written(const Tensor& tensor);

/// Normal random values times `scale`, of which some ten thousand repeat (zeros for integers). Equal phases give equal
/// values. Takes the time of a copy.
void fill_repeating(const Tensor& tensor, double scale, uint64_t phase);
/// The values of an input that its operation does not fill: fill_repeating(), and for a weight divided by sqrt(fan-in).
void fill_default(const Tensor& tensor, ArgRole role, uint64_t phase);
/// Fills input `arg` as the operation does, or else by fill_default().
void fill_input(const OpDef& op, const Problem& problem, size_t arg, uint64_t seed);

/// How far results are from their reference.
struct Difference {
  /// The largest error over its tolerance, infinite where only one of both values is a finite number. At most 1: right.
  double tolerances = 0;
  /// The largest error, relative to the wanted value, or to the root mean square of all wanted values if that is
  /// larger. Infinite as above.
  double relative = 0;
  size_t element = 0;        ///< of the largest error over its tolerance
  double got = 0, want = 0;  ///< its values

  bool is_within() const { return tolerances <= 1; }
  /// Takes the larger errors of both.
  void add(const Difference& other);
};

/// Equal values have no error, so that a wanted infinity allows itself alone. A wanted NaN allows nothing.
/// Requires: equal sizes.
Difference compare(std::span<const double> got, std::span<const double> want, OpDef::Tolerance tolerance);

}  // namespace seqtile::autotune
