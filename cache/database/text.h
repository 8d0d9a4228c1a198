// cache/database/text.h -- which texts may be stored and printed: UTF-8 without control characters.
// SPDX-License-Identifier: Apache-2.0
//
// People print what is stored in a terminal, where a control character is an instruction.
#pragma once
#include <string>
#include <string_view>

namespace seqtile::cache {

inline constexpr size_t kMaxTextBytes = 16384, kMaxDetailBytes = 2000;
inline constexpr size_t kMaxReasonBytes = 200;  ///< of another library's message within one of ours

/// Empty when `text` can be stored, else what is wrong with it; `name` begins the sentence.
std::string why_not_text(std::string_view name, std::string_view text, size_t max_bytes = kMaxTextBytes);

/// One line of at most `max_bytes`: control characters become spaces, broken UTF-8 becomes '?'.
std::string one_line(std::string_view text, size_t max_bytes = kMaxDetailBytes);

}  // namespace seqtile::cache
