// jit/base/counted.h -- a number with its noun, singular or plural.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <concepts>
#include <string>

namespace seqtile {

/// "record" for 1, else "records"; also "binaries", "axes" and "misses". Only the end of `noun` changes.
inline std::string plural_of(std::integral auto count, const std::string& noun) {
  if (count == 1) return noun;
  const bool has_vowel = noun.size() > 1 && std::string("aeiou").find(noun[noun.size() - 2]) != std::string::npos;
  if (noun.ends_with('y') && !has_vowel) return noun.substr(0, noun.size() - 1) + "ies";
  if (noun.ends_with("is")) return noun.substr(0, noun.size() - 2) + "es";
  return noun + (noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") ? "es" : "s");
}

/// "1 record", "804 records".
inline std::string counted(std::integral auto count, const std::string& noun) {
  return std::to_string(count) + " " + plural_of(count, noun);
}

}  // namespace seqtile
