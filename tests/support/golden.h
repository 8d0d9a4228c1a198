// tests/support/golden.h -- compares text with a file under tests/golden.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::testing {

/// Empty where `actual` equals tests/golden/<name>; else the first line that differs and the command that accepts the
/// new text, which is left in the working folder.
std::string compare_golden(const std::string& name, std::string_view actual);

}  // namespace seqtile::testing
