// cache/database/text.h -- the rule for texts that may be stored and printed: UTF-8 without control characters.
// SPDX-License-Identifier: Apache-2.0
//
// A terminal takes a control character for an instruction, and people print stored texts in a terminal.
#pragma once
#include <string>
#include <string_view>

namespace seqtile::cache {

inline constexpr size_t kMaxTextBytes = 16384, kMaxDetailBytes = 2000;
inline constexpr size_t kMaxReasonBytes = 200;  ///< limit of another library's message within our own

/// Empty if `text` can be stored, else the reason why not, which begins with `name`.
std::string why_not_text(std::string_view name, std::string_view text, size_t max_bytes = kMaxTextBytes);

/// One line of at most `max_bytes`: control characters become spaces, broken UTF-8 becomes '?'.
std::string one_line(std::string_view text, size_t max_bytes = kMaxDetailBytes);

}  // namespace seqtile::cache
