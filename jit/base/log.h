// jit/base/log.h -- one line of log, by level (SEQTILE_LOG), on standard error or where set_log() says.
// SPDX-License-Identifier: Apache-2.0
//
// Levels: 0 warnings only, 1 devices and cache, 2 trials and refusals.
#pragma once
#include <string_view>

namespace seqtile {

enum class LogLevel { warning = 0, info = 1, trial = 2 };

bool log_enabled(LogLevel level);
/// Writes "seqtile: <line>\n" in one write, or gives the line to set_log()'s function. Thread-safe. The same warning
/// is written at most once a minute, however many stores meet it.
void log_line(LogLevel level, std::string_view line);

}  // namespace seqtile
