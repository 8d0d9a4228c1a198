// autotune/text/seconds.h -- times that people write: "90", "500ms", "120s", "2m", "1.5h".
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string_view>

namespace seqtile::autotune {

inline constexpr double kMaxSeconds = 1e9;  ///< clocks count nanoseconds in 64 bits
/// Units of a time, for messages.
inline constexpr const char* kSecondsForm =
    "digits, perhaps with a point, and ms, s, m or h; write for example 90, 120s or 2m";

/// A time above 0, seconds where no unit is written; nothing for any other text. The caller compares with kMaxSeconds.
std::optional<double> parse_seconds(std::string_view text);

}  // namespace seqtile::autotune
