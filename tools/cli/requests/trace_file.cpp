// tools/cli/requests/trace_file.cpp -- see trace_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "autotune/text/text_kind.h"
#include "tools/cli/errors.h"

namespace seqtile::cli {
namespace {

using namespace std::string_view_literals;

constexpr unsigned kBlockBytes = 1 << 18;

/// A kind of file that is no trace, recognised by its first bytes. "{}" in `advice` is the path.
struct Foreign {
  std::string_view magic;
  const char *kind, *advice;
};

// UTF-32 precedes UTF-16, because it begins with the same bytes.
constexpr Foreign kForeign[] = {
    {"\xFF\xFE\0\0"sv, "is UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 '{}' > trace.csv"},
    {"\0\0\xFE\xFF"sv, "is UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 '{}' > trace.csv"},
    {"\xFF\xFE"sv, "is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 '{}' > trace.csv"},
    {"\xFE\xFF"sv, "is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 '{}' > trace.csv"},
    {"\x1F\x8B"sv, "is packed by gzip twice", "unpack it once: gzip -dc '{}' > trace.csv.gz"},
    {"\x28\xB5\x2F\xFD"sv, "is packed by zstd", "unpack it: zstd -dc '{}' > trace.csv"},
    {"\xFD"
     "7zXZ"sv,
     "is packed by xz", "unpack it: xz -dc '{}' > trace.csv"},
    {"BZh"sv, "is packed by bzip2", "unpack it: bzip2 -dc '{}' > trace.csv"},
    {"PK\x03\x04"sv, "is a zip archive or a spreadsheet",
     "unpack it (unzip -p '{}' > trace.csv), or save the sheet as CSV in UTF-8"},
    {"PAR1"sv, "is a Parquet file",
     "convert it: python3 -c \"import pandas; pandas.read_parquet('{}').to_csv('trace.csv', index=False)\""},
    {"version https://git-lfs"sv, "is a pointer of git-lfs, not the file", "fetch the file: git lfs pull"},
    {"SQLite format 3\0"sv, "is an SQLite database, such as the stores of --cache and --artifacts",
     "give a trace: CSV or JSON lines, one request a row (docs/traces.md)"},
    {"<"sv, "is a page (HTML or XML), not a trace", "download the file itself"},
};

[[noreturn]] void refuse(const std::string& path, const char* kind, const char* advice) {
  bad_input(fmt::format("--requests {}: {}; {}", path, kind, fmt::format(fmt::runtime(advice), path)));
}

/// Refuses a text that begins with "[": an array of objects, an array of arrays, or lines of arrays.
[[noreturn]] void refuse_arrays(const std::string& path, std::string_view text) {
  const size_t inner = text.find_first_not_of(" \t\r\n", 1);
  const char first = inner == std::string_view::npos ? '{' : text[inner];
  if (first == '{') refuse(path, "is a JSON array", "write one object a line: jq -c '.[]' '{}' > trace.jsonl");
  refuse(path, "has JSON arrays for rows",
         first == '[' ? "give their numbers names, as they stand in a row: jq -c '.[] | {{input_tokens: .[0], "
                        "output_tokens: .[1]}}' '{}' > trace.jsonl"
                      : "give their numbers names, as they stand in a row: jq -c '{{input_tokens: .[0], "
                        "output_tokens: .[1]}}' '{}' > trace.jsonl");
}

}  // namespace

TraceFile::TraceFile(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "rb")), block_(kBlockBytes) {
  if (!file_) bad_input(fmt::format("--requests {}: cannot be opened: {}", path, std::strerror(errno)));
  std::error_code error;
  bytes_total_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) bytes_total_ = 0;
  fill();
  is_packed_ = is_in_member_ = stored_.starts_with("\x1F\x8B");
  if (!is_packed_) return;
  unpacked_.resize(kBlockBytes);
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&inflating_, kGzipOnly) != Z_OK)
    throw Error(ErrorCode::out_of_resources, fmt::format("--requests {}: no memory to unpack it", path));
}

void TraceFile::fill() {
  if (!stored_.empty()) return;
  stored_ = {block_.data(), std::fread(block_.data(), 1, block_.size(), file_.get())};
  bytes_read_ += static_cast<int64_t>(stored_.size());
  if (std::ferror(file_.get()))
    throw Error(ErrorCode::io, fmt::format("--requests {}: cannot be read: {}", path_, std::strerror(errno)));
}

std::string_view TraceFile::read() {
  if (is_packed_) return unpack();
  fill();
  return std::exchange(stored_, {});
}

std::string_view TraceFile::unpack() {
  inflating_.next_out = reinterpret_cast<Bytef*>(unpacked_.data());
  inflating_.avail_out = kBlockBytes;
  while (is_in_member_ && inflating_.avail_out > 0) {
    fill();
    if (stored_.empty())
      bad_input(fmt::format("--requests {}: ends in the middle of its packed data; get the whole file", path_));
    inflating_.next_in = reinterpret_cast<Bytef*>(block_.data() + (stored_.data() - block_.data()));
    inflating_.avail_in = static_cast<uInt>(stored_.size());
    const int code = inflate(&inflating_, Z_NO_FLUSH);
    stored_.remove_prefix(stored_.size() - inflating_.avail_in);
    if (code == Z_STREAM_END) end_member();
    else if (code != Z_OK)
      bad_input(fmt::format("--requests {}: its packed data are damaged after byte {}; get the file again", path_,
                            bytes_done()));
  }
  return {unpacked_.data(), kBlockBytes - inflating_.avail_out};
}

/// Continues behind a gzip member: with another member, with the end of the file, or with zeros up to it, as on tapes.
void TraceFile::end_member() {
  fill();
  is_in_member_ = stored_.starts_with('\x1F');
  if (is_in_member_) inflateReset(&inflating_);
  for (; !is_in_member_ && !stored_.empty(); fill()) {
    stored_.remove_prefix(std::min(stored_.find_first_not_of('\0'), stored_.size()));
    if (!stored_.empty())
      bad_input(
          fmt::format("--requests {}: other bytes follow its packed data, from byte {} on; get the file again, or "
                      "take the packed part: gzip -dc '{}' > trace.csv",
                      path_, bytes_done(), path_));
  }
}

void check_is_text(const std::string& path, std::string_view head) {
  const std::string_view text = head.substr(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  if (text.starts_with('[')) refuse_arrays(path, text);
  for (const Foreign& foreign : kForeign)
    if (head.starts_with(foreign.magic) || text.starts_with(foreign.magic)) refuse(path, foreign.kind, foreign.advice);
  if (head.size() >= 2 && (head[0] == '\0') != (head[1] == '\0'))
    refuse(path, "is UTF-16",
           head[1] == '\0' ? "convert it: iconv -f UTF-16LE -t UTF-8 '{}' > trace.csv"
                           : "convert it: iconv -f UTF-16BE -t UTF-8 '{}' > trace.csv");
  if (text.empty()) return;  // an empty file has a message of its own
  const std::string kind = autotune::foreign_kind(head);
  if (!kind.empty())
    refuse(path, ("is " + kind.substr(0, kind.find(';'))).c_str(),
           "give a trace: CSV or JSON lines, one request a row (docs/traces.md)");
}

}  // namespace seqtile::cli
