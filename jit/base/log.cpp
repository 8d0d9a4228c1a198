// jit/base/log.cpp -- see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/log.h"

#include "jit/base/forever.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <climits>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "jit/base/env.h"
#include "seqtile/error.h"

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

std::string whole_line(std::string_view line) { return "seqtile: " + std::string(line) + "\n"; }

/// A log line that cannot be written has nowhere to be reported.
void write_line(const std::string& text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

/// The level of SEQTILE_LOG. Warns of a text that is none.
int chosen_level() {
  const auto text = env::log_level();
  if (!text) return 0;
  int level = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, level);
  if (rest == end && error == std::errc::result_out_of_range && text->front() != '-') return INT_MAX;
  if (rest == end && error == std::errc() && level >= 0) return level;
  write_line(whole_line("SEQTILE_LOG=" + *text +
                        ": is no level; give 0 (warnings), 1 (also devices and stores) or 2 "
                        "(also refused candidates); 0 is used"));
  return 0;
}

/// Where lines go; readers hold the mutex while they are inside the function.
struct Sink {
  std::shared_mutex mutex;
  LogFunction log = nullptr;
  void* context = nullptr;
};

Sink& sink() {
  static Sink& only = *new Sink;  // NOLINT: for ever, as forever(), which moves
  return only;
}

}  // namespace

void set_log(LogFunction log, void* context) {
  const std::unique_lock lock(sink().mutex);
  sink().log = log;
  sink().context = context;
}

bool log_enabled(LogLevel level) {
  static const int chosen = chosen_level();
  return static_cast<int>(level) <= chosen;
}

void log_line(LogLevel level, std::string_view line) {
  if (!log_enabled(level)) return;
  const std::string text(line);
  if (level == LogLevel::warning && !is_due(text)) return;
  const std::shared_lock lock(sink().mutex);
  if (sink().log) sink().log(sink().context, static_cast<int>(level), text.c_str());
  else write_line(whole_line(text));
}

}  // namespace seqtile
