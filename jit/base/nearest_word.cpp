// jit/base/nearest_word.cpp -- see nearest_word.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/nearest_word.h"

#include <algorithm>
#include <cctype>
#include <limits>

namespace seqtile {
namespace {

constexpr size_t kLeastPrefix = 2;        ///< letters of a beginning that names a word
constexpr size_t kLettersPerEdit = 3;     ///< with more edits two words are different ones
constexpr size_t kLeastLetters = 4;       ///< shorter words differ in one letter by their meaning: cpu, gpu
constexpr size_t kMostLetters = 1 << 10;  ///< a longer word is no name

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// The least number of edits that make one word of the other; no letter is edited twice.
size_t distance(std::string_view a, std::string_view b) {
  // Rows of the table of all beginnings: two rows back, one row back, and the current one.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

/// The most edits between a word and a known one that was meant.
size_t most_edits(std::string_view word, std::string_view known) {
  const size_t letters = std::max(word.size(), known.size());
  return letters < kLeastLetters ? 0 : letters / kLettersPerEdit;
}

}  // namespace

std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& known) {
  std::string_view nearest;
  size_t fewest = std::numeric_limits<size_t>::max();
  bool is_prefix = false;
  if (word.empty() || word.size() > kMostLetters) return nearest;
  const std::string given = in_lower_case(word);
  for (const std::string_view candidate : known) {
    if (candidate.size() > kMostLetters) continue;
    const std::string lower = in_lower_case(candidate);
    const bool begins = given.size() >= kLeastPrefix && lower.starts_with(given);
    const size_t edits = distance(given, lower);
    if (!begins && (is_prefix || edits > most_edits(given, lower))) continue;
    if (begins == is_prefix && edits >= fewest) continue;
    nearest = candidate, fewest = edits, is_prefix = begins;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known) {
  const std::string_view nearest = nearest_word(word, known);
  return nearest.empty() ? std::string() : "; did you mean " + std::string(nearest) + "?";
}

}  // namespace seqtile
