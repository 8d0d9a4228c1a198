// tests/support/references/golden.h -- compares text with a file under tests/golden.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::testing {

/// Empty if `actual` equals tests/golden/<name>; else the first different line and the command that accepts the new
/// text. The new text is left in the working folder.
std::string compare_golden(const std::string& name, std::string_view actual);

/// PTX that differs only if the code does: registers and labels are numbered in order of appearance; declarations of
/// registers, versions, comments and columns are removed.
std::string normalized_ptx(std::string_view text);

}  // namespace seqtile::testing
