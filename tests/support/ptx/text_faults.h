// tests/support/ptx/text_faults.h -- faults as changes of PTX text, and the reports that the machine must give.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace seqtile::testing {

struct TextFault {
  const char* name;
  const char* pattern;      ///< regular expression; must match, else the test fails
  const char* replacement;  ///< with $1 and so on
  int which;                ///< number of the match from 0; negative: from the end
  /// Start of the report: kinds of report, or "wrong" for a wrong element; alternatives between '|'.
  const char* kinds;
  const char* place;  ///< part of the report: an address, or the wait
};

/// `text` with the fault in it. Fails the test if the pattern does not match.
std::string with_fault(const std::string& text, const TextFault& fault);

/// Runs each fault with `find`, which takes a text and a seed and returns the first report, "wrong: ..." or nothing.
/// Checks that a report under one of a few schedules is as the fault says and names a PTX line.
void check_faults(const std::string& text, const std::vector<TextFault>& faults,
                  const std::function<std::string(const std::string& text, uint32_t seed)>& find);

}  // namespace seqtile::testing
