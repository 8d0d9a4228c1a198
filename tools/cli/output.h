// tools/cli/output.h -- tables, the JSON line, number formats, and the progress display.
// SPDX-License-Identifier: Apache-2.0
//
// Results go to standard output, progress and warnings to standard error. With --json the last line of standard output
// is one object. Cells, lines and warnings are printed without control characters, which names may contain.
#pragma once
#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/tuner.h"

namespace seqtile::cli {

using Json = nlohmann::ordered_json;

/// A table on standard output. Each column is as wide as its widest cell; numbers are aligned right, texts left.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.size() == 1; }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

void print_line(const std::string& line);  ///< prints on standard output, without control characters
void print_text(std::string_view text);    ///< prints on standard output, unchanged
/// True for "-", the path that means standard output in --output, and for the system's names of it.
inline bool is_standard_output(const std::string& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}
/// Makes `path` hold `text`, completely or not at all. A link is followed; a pipe or device is written into. Errors:
/// invalid_argument for a folder, an SQLite database, and where the path leads through no folder; else io. Both have
/// `flag` and the reason.
void write_file(const std::string& flag, const std::string& path, std::string_view text);
/// Called before long work. Leaves nothing at `path`. Errors: those of write_file() that are known before the text is.
void check_can_write(const std::string& flag, const std::string& path);
/// Returns false if some output was lost, for example on a full disk. Called after the last print.
bool flush_output();
void print_json(const Json& object);  ///< prints one line; called last
void warn(const std::string& line);   ///< prints "seqtile: <line>" on standard error, at most once a minute

std::string format_us(double microseconds);  ///< "87.3 us", "1.25 ms", "3.1 s"
std::string format_seconds(double seconds);  ///< "4.2 s", "1 min 20 s", "3.5 h"
std::string format_bytes(double bytes);      ///< "512 B", "1.5 MB"
/// "1,234,567" for 1234567.
std::string format_count(int64_t count);
/// "1 bucket", "804 buckets".
std::string format_counted(int64_t count, const std::string& noun);
std::string format_bucket(int64_t lo, int64_t hi);  ///< "[129..144]"
/// "a=1 b=x" for {"a":1,"b":"x"}.
std::string format_fields(const autotune::Fields& fields);
Json fields_json(const autotune::Fields& fields);

/// The progress display: on a terminal a bar with the time left, elsewhere a line for each acknowledged record and one
/// every ten seconds. The first two seconds show acknowledgements only.
class Progress {
 public:
  explicit Progress(std::string title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const autotune::TuneProgress& progress);
  /// Reports that the rows named by `line` are durable.
  void acknowledge(const std::string& line);

 private:
  std::string title_;
  bool is_terminal_;
  bool is_bar_shown_ = false;
  double last_line_s_ = 0;
};

/// The progress display of a known number of steps.
class Steps {
 public:
  Steps(std::string title, int64_t total) : progress_(std::move(title)), total_(total) {}
  void begin(const std::string& activity);  ///< called before each step

 private:
  Progress progress_;
  int64_t total_, begun_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace seqtile::cli
