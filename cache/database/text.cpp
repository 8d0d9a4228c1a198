// cache/database/text.cpp -- see text.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace seqtile::cache {
namespace {

/// Bytes of the UTF-8 character at the front of `text`; 0 when it is broken or a control character.
size_t clean_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f;
  // U+0080..U+009f are control characters too: they begin with C2 80..C2 9F.
  if (byte(0) == 0xc2) return follows(1) && byte(1) >= 0xa0 ? 2 : 0;
  if (byte(0) >= 0xc3 && byte(0) < 0xe0) return follows(1) ? 2 : 0;
  if ((byte(0) & 0xf0) == 0xe0) {
    const bool is_valid = !(byte(0) == 0xe0 && byte(1) < 0xa0) && !(byte(0) == 0xed && byte(1) >= 0xa0);
    return is_valid && follows(1) && follows(2) ? 3 : 0;
  }
  if (byte(0) >= 0xf0 && byte(0) <= 0xf4) {
    const bool is_valid = !(byte(0) == 0xf0 && byte(1) < 0x90) && !(byte(0) == 0xf4 && byte(1) >= 0x90);
    return is_valid && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string why_not_text(std::string_view name, std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return fmt::format("{} has {} bytes, at most {} are stored", name, text.size(), max_bytes);
  }
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = clean_character(text.substr(i));
    if (bytes == 0) return fmt::format("{} has a control character or broken UTF-8 at byte {}", name, i);
    i += bytes;
  }
  return "";
}

std::string one_line(std::string_view text, size_t max_bytes) {
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = clean_character(text.substr(i));
    if (clean.size() + std::max<size_t>(bytes, 1) > max_bytes) break;
    if (bytes > 0) clean.append(text.substr(i, bytes));
    else clean.push_back(static_cast<unsigned char>(text[i]) < 0x80 ? ' ' : '?');
    i += std::max<size_t>(bytes, 1);
  }
  return clean;
}

}  // namespace seqtile::cache
