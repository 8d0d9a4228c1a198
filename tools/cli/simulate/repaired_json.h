// tools/cli/simulate/repaired_json.h -- repairs values that programs write although JSON does not have them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::cli {

/// Makes JSON of a `line` that only its values keep from being JSON, so that its other values can be read. NaN,
/// Infinity and numbers too large for a double become texts of the same characters. Bytes that are not UTF-8, halves of
/// surrogate pairs and control characters other than NUL become U+FFFD.
std::string repaired_json_line(std::string_view line);

}  // namespace seqtile::cli
