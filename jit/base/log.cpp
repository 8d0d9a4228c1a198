// jit/base/log.cpp -- see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/log.h"

#include "jit/base/forever.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

#include "jit/base/env.h"

namespace seqtile {

namespace {

/// Whether `line` was not said within the last minute.
bool is_due(const std::string& line) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSilence = std::chrono::minutes(1);
  constexpr size_t kMostRemembered = 1000;
  static std::mutex mutex;
  static auto& said = forever(std::unordered_map<std::string, Clock::time_point>());
  const std::lock_guard lock(mutex);
  const auto now = Clock::now();
  if (said.size() >= kMostRemembered) said.clear();
  const auto [it, is_new] = said.emplace(line, now);
  if (!is_new && now - it->second < kSilence) return false;
  it->second = now;
  return true;
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
  if (level == LogLevel::warning && !is_due(text)) return;
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace seqtile
