// tools/cli/trace_file.h -- the bytes of a trace, unpacked where gzip has packed them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile::cli {

class TraceFile {
 public:
  /// Errors: invalid_argument when the file cannot be opened.
  explicit TraceFile(const std::string& path);

  /// The next bytes, valid until the next call; none at the end. Errors: io when the disk fails, invalid_argument when
  /// packed data are damaged or end early.
  std::string_view read();
  int64_t bytes_done() const;  ///< of the file as it is stored
  int64_t bytes_total() const { return bytes_total_; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<char> block_;
  int64_t bytes_total_ = 0;
};

/// Refuses what is no text in UTF-8, or no trace at all, by the first bytes of the file: each kind by its name, with
/// the command that converts it. Errors: invalid_argument.
void check_is_text(const std::string& path, std::string_view head);

}  // namespace seqtile::cli
