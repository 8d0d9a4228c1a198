// tools/cli/requests/trace_file.h -- the bytes of a trace, unpacked where gzip has packed them.
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
  /// Errors: invalid_argument when the file cannot be opened; io when it cannot be read.
  explicit TraceFile(const std::string& path);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() { inflateEnd(&inflating_); }

  /// The next bytes, valid until the next call; none at the end. Errors: io when the disk fails, invalid_argument when
  /// packed data are damaged, end early, or have other bytes than zeros behind them.
  std::string_view read();
  int64_t bytes_done() const { return bytes_read_ - static_cast<int64_t>(stored_.size()); }  ///< as it is stored
  int64_t bytes_total() const { return bytes_total_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void fill();  ///< stored_, where it is used up
  std::string_view unpack();
  void end_member();

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> block_, unpacked_;
  std::string_view stored_;  ///< of block_, not used yet
  z_stream inflating_{};
  bool is_packed_ = false, is_in_member_ = false;
  int64_t bytes_read_ = 0, bytes_total_ = 0;
};

/// Refuses what is no text in UTF-8, or no trace at all, by the first bytes of the file: each kind by its name, with
/// the command that converts it. Errors: invalid_argument.
void check_is_text(const std::string& path, std::string_view head);

}  // namespace seqtile::cli
