// tools/cli/trace.cpp -- see trace.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "tools/cli/errors.h"
#include "tools/cli/options.h"

namespace seqtile::cli {
namespace {

constexpr size_t kProblemsKept = 10;
constexpr int64_t kMaxTokens = int64_t{1} << 32;

std::vector<std::string_view> split(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> cells;
  for (size_t at = 0; at <= line.size();) {
    const size_t comma = std::min(line.find(',', at), line.size());
    cells.push_back(line.substr(at, comma - at));
    at = comma + 1;
  }
  return cells;
}

/// Reads a cell as tokens of at least `least`; returns the problem, or nothing.
std::string read_tokens(const char* column, std::string_view cell, int64_t least, int64_t& tokens) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), tokens);
  if (error == std::errc() && end == cell.data() + cell.size() && tokens >= least && tokens <= kMaxTokens) return {};
  return fmt::format("{} '{}' is not a number from {} to {}", column, cell.substr(0, 40), least, kMaxTokens);
}

size_t column_of(const std::vector<std::string_view>& header, const char* name, const std::string& path) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end())
    bad_input(
        fmt::format("--trace {}: line 1 has no column {}; needed are ContextTokens and GeneratedTokens", path, name));
  return found - header.begin();
}

}  // namespace

Trace read_trace(const std::string& path) {
  check_is_file("--trace", path, "give the path of a CSV file");
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  const std::string header_line = line;
  const auto header = split(header_line);
  const size_t context_at = column_of(header, "ContextTokens", path);
  const size_t generated_at = column_of(header, "GeneratedTokens", path);

  Trace trace;
  for (int64_t number = 2; std::getline(file, line); ++number) {
    const auto cells = split(line);
    if (cells.size() == 1 && cells[0].empty()) continue;
    TraceRequest request;
    std::string problem;
    if (cells.size() != header.size()) problem = fmt::format("{} columns, {} expected", cells.size(), header.size());
    if (problem.empty()) problem = read_tokens("ContextTokens", cells[context_at], 1, request.context);
    if (problem.empty()) problem = read_tokens("GeneratedTokens", cells[generated_at], 0, request.generated);
    if (!problem.empty()) {
      if (++trace.broken_rows <= int64_t{kProblemsKept})
        trace.problems.push_back(fmt::format("line {}: {}", number, problem));
      continue;
    }
    if (trace.requests.empty()) trace.first_line = number;
    trace.last_line = number;
    trace.requests.push_back(request);
  }
  if (file.bad()) bad_input(fmt::format("--trace {}: cannot be read beyond line {}", path, trace.last_line));
  if (trace.requests.empty())
    bad_input(fmt::format("--trace {}: no usable row{}{}", path, trace.problems.empty() ? "" : "; ",
                          trace.problems.empty() ? "" : trace.problems[0]));
  return trace;
}

}  // namespace seqtile::cli
