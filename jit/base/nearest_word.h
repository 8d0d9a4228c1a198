// jit/base/nearest_word.h -- the known word that a mistyped one is nearest to, for messages that refuse a word.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile {

/// The known word that begins with `word` or, where none does, the one with the fewest edits: letters that are added,
/// left out, replaced or swapped with their neighbour. Case does not count. Returns an empty word where even the
/// nearest one is too far: by more than an edit for each three letters, or by any where both words are shorter than
/// four letters. Of several equally near ones the first.
std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& known);

/// "; did you mean linear?", or nothing: the end of a message that refuses `word`.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known);

/// For any range of texts.
template <class Words>
std::string did_you_mean(std::string_view word, const Words& known) {
  return did_you_mean(word, std::vector<std::string_view>(std::begin(known), std::end(known)));
}

}  // namespace seqtile
