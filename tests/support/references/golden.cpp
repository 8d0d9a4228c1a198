// tests/support/references/golden.cpp -- reads golden files, compares, and leaves the new text behind.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/golden.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

namespace seqtile::testing {

std::string compare_golden(const std::string& name, std::string_view actual) {
  const auto path = std::filesystem::path(SEQTILE_SOURCE_DIR) / "tests/golden" / name;
  std::ifstream file(path, std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.is_open() && expected == actual) return "";

  const auto left = std::filesystem::absolute(path.filename().string() + ".actual");
  std::ofstream(left, std::ios::binary) << actual;
  const auto common = std::mismatch(expected.begin(), expected.end(), actual.begin(), actual.end()).first;
  const auto line = 1 + std::count(expected.begin(), common, '\n');
  return name + " differs from line " + std::to_string(line) + " on; to accept the new text: cp " + left.string() +
         " " + path.string();
}

namespace {

bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

/// Renumbers names: "%rd17" becomes "%rd0" for the first of its kind, "$L__BB0_3" becomes "L0".
class Renumbered {
 public:
  std::string operator()(std::string_view line) {
    std::string result;
    for (size_t at = 0; at < line.size();) {
      size_t end = at + 1;
      while (is_name_part(line[at] == '%' ? 'x' : line[at]) && end < line.size() && is_name_part(line[end])) ++end;
      result += name(line.substr(at, end - at));
      at = end;
    }
    return result;
  }

 private:
  std::string name(std::string_view word) {
    const size_t digits = word.find_last_not_of("0123456789") + 1;
    // Labels are LLVM's ($L) or inline PTX's (W).
    const bool is_label = word.substr(0, 2) == "$L" || (word[0] == 'W' && digits == 1);
    if (!is_label && (word[0] != '%' || digits == word.size())) return std::string(word);
    const std::string kind(is_label ? "L" : word.substr(0, digits));
    const auto [at, is_new] = names_.emplace(word, counts_[kind]);
    if (is_new) ++counts_[kind];
    return kind + std::to_string(at->second);
  }

  std::map<std::string, int, std::less<>> names_;
  std::map<std::string, int> counts_;
};

/// The line without its comment, with single spaces.
std::string trimmed(std::string_view line) {
  line = line.substr(0, line.find("//"));
  std::string result;
  for (const char c : line) {
    const bool is_space = c == ' ' || c == '\t';
    if (!is_space || (!result.empty() && result.back() != ' ')) result += is_space ? ' ' : c;
  }
  while (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

}  // namespace

std::string normalized_ptx(std::string_view text) {
  Renumbered renumbered;
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto starts = [&](std::string_view word) { return line.compare(0, word.size(), word) == 0; };
    if (line.empty() || starts(".version") || starts(".target") || starts(".address_size") || starts(".reg ."))
      continue;
    result += renumbered(line) + '\n';
  }
  return result;
}

}  // namespace seqtile::testing
