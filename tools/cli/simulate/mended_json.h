// tools/cli/simulate/mended_json.h -- values that JSON does not have, and programs write all the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::cli {

/// Makes JSON of `line` where only its values are at fault, so that the other values can be read: NaN, Infinity and
/// numbers that no double holds become texts of the same characters; bytes that are not UTF-8, halves of surrogate
/// pairs and control characters other than NUL become U+FFFD.
std::string mended_json_line(std::string_view line);

}  // namespace seqtile::cli
