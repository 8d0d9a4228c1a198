// tests/support/ptx/text_faults.h -- faults as changes of PTX text, and what the machine must say about them.
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
  int which;                ///< which match from 0, from the end where negative
  /// How what is found begins: kinds of report, or "wrong" for a wrong element; alternatives between '|'.
  const char* kinds;
  const char* place;  ///< what it must contain: an address, or what waits
};

/// `text` with the fault in it. Fails the test where the pattern does not match.
std::string with_fault(const std::string& text, const TextFault& fault);

/// Runs every fault with `find`, which gets a text and a seed and returns the first report, "wrong: ..." or nothing,
/// and checks that it is found under one of a few schedules, as the fault says and with a PTX line.
void check_faults(const std::string& text, const std::vector<TextFault>& faults,
                  const std::function<std::string(const std::string& text, uint32_t seed)>& find);

}  // namespace seqtile::testing
