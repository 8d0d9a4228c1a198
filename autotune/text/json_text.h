// autotune/text/json_text.h -- JSON as people have it: read, or refused with place, cause and next step.
// SPDX-License-Identifier: Apache-2.0
//
// Read besides plain JSON in UTF-8: a mark of UTF-8, any ends of lines, and, where asked for, Python's NaN and
// Infinity. A name that stands twice in an object has its last value, as in Python; if the values differ, the reader
// says so.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile::autotune {

struct JsonText {
  nlohmann::json value;
  /// One line a name that stands twice with different values: "rope.factor stands twice, as 4 and as 8; 8 counts".
  std::vector<std::string> repeated;
  /// Whole numbers that 64 bits do not hold, as the file has them, by the names on the way: {"rope.factor", "1000..."}.
  std::map<std::string, std::string> large;
};

/// Errors: invalid_argument, one line with `name`, the place, the likely cause and the next step.
JsonText read_json(std::string_view text, const std::string& name, bool allows_non_finite);

/// Head and tail of a value that is too long for a message, such as a path.
std::string shortened(const std::string& value, size_t most = 120);
/// The text of a file as one line of a message, without control characters. A long text loses its middle: the reason
/// and the next step mostly stand at the end.
std::string one_line(const std::string& text);
/// A value for a message. Arrays and objects are only named: to write them takes as much stack as they are deep.
std::string excerpt(const nlohmann::json& json);

}  // namespace seqtile::autotune
