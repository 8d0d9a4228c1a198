// jit/base/cdiv.h -- how many pieces of one size cover a length, and the length that the pieces have together.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace seqtile {

/// a / b, rounded up. Requires: a >= 0, b > 0.
constexpr int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// The least multiple of b that is not below a.
constexpr int64_t round_up(int64_t a, int64_t b) { return cdiv(a, b) * b; }

}  // namespace seqtile
