// jit/base/log.cpp -- see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/log.h"

#include <unistd.h>

#include <string>

#include "jit/base/env.h"

namespace seqtile {

bool log_enabled(LogLevel level) {
  static const int verbosity = env::log_verbosity();
  return static_cast<int>(level) <= verbosity;
}

void log_line(LogLevel level, std::string_view line) {
  if (!log_enabled(level)) return;
  std::string text = "seqtile: ";
  text.append(line).push_back('\n');
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace seqtile
