// tests/support/ptx/ptx_template.h -- fills in PTX text with $NAMES.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>

namespace seqtile::testing {

/// `text` with each known $NAME (capitals, digits and underscores) replaced by its value; an unknown name stays.
inline std::string filled(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    const auto belongs = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
    if (text[at] == '$')
      while (end < text.size() && belongs(text[end])) ++end;
    const auto found = text[at] == '$' ? values.find(text.substr(at + 1, end - at - 1)) : values.end();
    result += found != values.end() ? found->second : text.substr(at, end - at);
    at = end;
  }
  return result;
}

/// "%a0, %a1, %a2" for count 3.
inline std::string register_list(const std::string& name, int count, int first = 0) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + name + std::to_string(first + i);
  return text;
}

}  // namespace seqtile::testing
