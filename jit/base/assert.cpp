// jit/base/assert.cpp -- see assert.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/assert.h"

#include <string>

#include "seqtile/error.h"

namespace seqtile {

void assertion_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::internal, std::string(file) + ":" + std::to_string(line) + ": assertion failed: " + condition);
}

}  // namespace seqtile
