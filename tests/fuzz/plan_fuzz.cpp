// tests/fuzz/plan_fuzz.cpp -- the target of libFuzzer for graphs and problems (docs/plan_format.md).
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "tests/support/references/plan_text.h"

/// Any exception is a finding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  seqtile::testing::take_plan_text(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
