// tests/support/references/golden.h -- compares text with a file under tests/golden.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::testing {

/// Empty where `actual` equals tests/golden/<name>; else the first line that differs and the command that accepts the
/// new text, which is left in the working folder.
std::string compare_golden(const std::string& name, std::string_view actual);

/// PTX that differs only where the code does: registers and labels numbered in the order of their appearance, without
/// declarations of registers, versions, comments and columns.
std::string normalized_ptx(std::string_view text);

}  // namespace seqtile::testing
