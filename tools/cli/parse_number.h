// tools/cli/parse_number.h -- a whole text as a number.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <charconv>
#include <string_view>
#include <system_error>

namespace seqtile::cli {

/// Returns false for a text that is not a number of this type from its first to its last character.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace seqtile::cli
