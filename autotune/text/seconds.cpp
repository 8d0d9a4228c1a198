// autotune/text/seconds.cpp -- see seconds.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/text/seconds.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace seqtile::autotune {

std::optional<double> parse_seconds(std::string_view text) {
  const size_t unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view digits = text.substr(0, unit_at), unit = text.substr(unit_at);
  double value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || read.ec != std::errc() || read.ptr != digits.data() + digits.size() || value <= 0) return {};
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
  for (const auto& [name, seconds] : kUnits)
    if (name == unit) return value * seconds;
  return {};
}

}  // namespace seqtile::autotune
