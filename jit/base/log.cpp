// jit/base/log.cpp -- see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_set>

#include "jit/base/env.h"

namespace seqtile {

namespace {

/// Whether the process says `line` for the first time; the memory of it is bounded.
bool is_new(const std::string& line) {
  constexpr size_t kMostRemembered = 1000;
  static std::mutex mutex;
  static std::unordered_set<std::string> said;
  const std::lock_guard lock(mutex);
  return said.size() >= kMostRemembered ? !said.contains(line) : said.insert(line).second;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const int verbosity = std::max(0, env::log_verbosity());
  return static_cast<int>(level) <= verbosity;
}

void log_line(LogLevel level, std::string_view line) {
  if (!log_enabled(level)) return;
  std::string text = "seqtile: ";
  text.append(line).push_back('\n');
  if (level == LogLevel::warning && !is_new(text)) return;
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace seqtile
