// autotune/text/json_scan.h -- why a text is not JSON, in the words of those who write such texts.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace seqtile::autotune {

/// "line 3, column 7": `at` counts bytes, columns count characters.
std::string place_in(std::string_view text, size_t at);

/// In a text that is scanned without finding, Python's NaN, Infinity and -Infinity are JSON strings of these values and
/// of the same number of bytes, so that places stay as they are.
constexpr std::string_view kNan = "\x7F", kInfinity = "\x01", kMinusInfinity = "\x02";

/// Finds comments, commas before a bracket, quotes that are none, words of Python and of JavaScript, names without
/// quotes, brackets that do not fit, conflicts of git, more than one value, an end in the middle, and more brackets in
/// each other than a parser should follow. Other mistakes are left to the parser.
/// Returns the text with non-finite numbers as above. Throws std::invalid_argument: "line 3, column 7: ...".
std::string scanned_json(std::string_view text, bool allows_non_finite);

}  // namespace seqtile::autotune
