// jit/codegen/options.h -- what a caller of the compiler may ask for beside the binary.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace seqtile {

/// Called once a stage with its name ("tile", "ll", "asm", "ptx" or "cubin") and text, a cubin's bytes; an empty
/// function asks for nothing.
using StageDump = std::function<void(std::string_view stage, std::string_view text)>;

/// The sanitizer of this process that watches generated code for CPUs; for tests.
enum class Sanitizer : uint8_t { none, thread, address };

}  // namespace seqtile
