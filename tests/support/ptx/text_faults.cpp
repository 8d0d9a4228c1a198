// tests/support/ptx/text_faults.cpp -- see text_faults.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ptx/text_faults.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <regex>

namespace seqtile::testing {
namespace {

constexpr uint32_t kSchedules = 6;

bool begins_with_one_of(const std::string& text, const std::string& alternatives) {
  for (size_t at = 0; at <= alternatives.size();) {
    const size_t end = std::min(alternatives.find('|', at), alternatives.size());
    if (text.compare(0, end - at, alternatives, at, end - at) == 0) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string with_fault(const std::string& text, const TextFault& fault) {
  const std::regex pattern(fault.pattern);
  std::vector<std::smatch> matches;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) matches.push_back(*it);
  const int index = fault.which < 0 ? static_cast<int>(matches.size()) + fault.which : fault.which;
  INFO(fault.name << ": " << matches.size() << " matches of " << fault.pattern);
  REQUIRE(index >= 0);
  REQUIRE(index < static_cast<int>(matches.size()));
  const std::smatch& match = matches[static_cast<size_t>(index)];
  const auto at = static_cast<size_t>(match.position());
  return text.substr(0, at) + match.format(fault.replacement) + text.substr(at + static_cast<size_t>(match.length()));
}

void check_faults(const std::string& text, const std::vector<TextFault>& faults,
                  const std::function<std::string(const std::string&, uint32_t)>& find) {
  for (const TextFault& fault : faults) {
    const std::string changed = with_fault(text, fault);
    std::string found;
    for (uint32_t seed = 0; seed < kSchedules && found.empty(); ++seed) found = find(changed, seed);
    INFO(fault.name << ": " << (found.empty() ? "nothing was found" : found));
    CHECK(begins_with_one_of(found, fault.kinds));
    CHECK((found.find("PTX line") != std::string::npos || found.find("never stored") != std::string::npos));
    CHECK(found.find(fault.place) != std::string::npos);
  }
}

}  // namespace seqtile::testing
