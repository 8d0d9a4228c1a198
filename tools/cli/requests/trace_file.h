// tools/cli/requests/trace_file.h -- the bytes of a trace, unpacked if gzip has packed them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile::cli {

class TraceFile {
 public:
  /// Errors: invalid_argument if the file cannot be opened; io if it cannot be read.
  explicit TraceFile(const std::string& path);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() { inflateEnd(&inflating_); }

  /// The next bytes, valid until the next call; empty at the end. Errors: io if the disk fails; invalid_argument if
  /// packed data are damaged, end early, or are followed by bytes other than zeros.
  std::string_view read();
  int64_t bytes_done() const { return bytes_read_ - static_cast<int64_t>(stored_.size()); }  ///< bytes as stored
  int64_t bytes_total() const { return bytes_total_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void fill();  ///< refills stored_ if it is used up
  std::string_view unpack();
  void end_member();

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> block_, unpacked_;
  std::string_view stored_;  ///< unused part of block_
  z_stream inflating_{};
  bool is_packed_ = false, is_in_member_ = false;
  int64_t bytes_read_ = 0, bytes_total_ = 0;
};

/// Refuses a file whose first bytes show that it is not UTF-8 text or no trace. The error names the kind of file and
/// the command that converts it. Errors: invalid_argument.
void check_is_text(const std::string& path, std::string_view head);

}  // namespace seqtile::cli
