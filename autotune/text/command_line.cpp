// autotune/text/command_line.cpp -- see command_line.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/text/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace seqtile::autotune {
namespace {

/// As a shell reads it back.
std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("_-+=./:,@%", c); };
  if (std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string command_line(const std::string& command, const std::vector<std::pair<std::string, std::string>>& flags) {
  std::string line = "seqtile " + command;
  for (const auto& [flag, value] : flags)
    if (!value.empty()) line += (flag.empty() ? " " : " " + flag + " ") + quoted(value);
  return line;
}

}  // namespace seqtile::autotune
