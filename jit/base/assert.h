// jit/base/assert.h -- the assertion macro, for our own bugs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace seqtile {

/// Throws Error internal.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace seqtile

#define SEQTILE_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::seqtile::assertion_failed(#condition, __FILE__, __LINE__))
