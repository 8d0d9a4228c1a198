// tools/cli/output.h -- tables, the JSON line, numbers for people, and the progress display.
// SPDX-License-Identifier: Apache-2.0
//
// Results go to standard output, progress and warnings to standard error. With --json the last line of standard output
// is one object. Cells, lines and warnings are shown without control characters, whatever names are in them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/tuner.h"

namespace seqtile::cli {

using Json = nlohmann::ordered_json;

/// Columns as wide as their widest cell; columns of numbers to the right, of text to the left.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.size() == 1; }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

void print_line(const std::string& line);  ///< on standard output
void print_text(std::string_view text);    ///< the same, as it is
/// Of a path that --output gives: "-".
inline bool is_standard_output(const std::string& path) { return path == "-"; }
/// Makes `path` hold `text`: all of it, or what it held before. A link is followed; a pipe or device is written into.
/// Errors: io with `flag`, the path and the system's reason.
void write_file(const std::string& flag, const std::string& path, std::string_view text);
/// Before work that takes long. Errors: as write_file(), where it can be seen before there is a text.
void check_can_write(const std::string& flag, const std::string& path);
/// False when some of the output was lost, for example on a full disk; call it when all is printed.
bool flush_output();
void print_json(const Json& object);  ///< one line; call it last
void warn(const std::string& line);   ///< "seqtile: <line>" on standard error, not twice a minute

std::string format_us(double microseconds);  ///< "87.3 us", "1.25 ms", "3.1 s"
std::string format_seconds(double seconds);  ///< "4.2 s", "1 min 20 s", "3.5 h"
std::string format_bytes(double bytes);      ///< "512 B", "1.5 MB"
/// 1234567 as "1,234,567".
std::string format_count(int64_t count);
/// "1 bucket", "804 buckets".
std::string format_counted(int64_t count, const std::string& noun);
std::string format_bucket(int64_t lo, int64_t hi);  ///< "[129..144]"
/// {"a":1,"b":"x"} as "a=1 b=x".
std::string format_fields(const autotune::Fields& fields);
Json fields_json(const autotune::Fields& fields);

/// A bar with the time left on a terminal; elsewhere a plain line for every acknowledged record and every ten seconds.
/// Nothing is shown in the first two seconds but acknowledgements.
class Progress {
 public:
  explicit Progress(std::string title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const autotune::TuneProgress& progress);
  /// What `line` names is durable from now on.
  void acknowledge(const std::string& line);

 private:
  std::string title_;
  bool is_terminal_;
  bool is_bar_shown_ = false;
  double last_line_s_ = 0;
};

}  // namespace seqtile::cli
