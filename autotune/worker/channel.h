// autotune/worker/channel.h -- messages between tuner and worker: one line of JSON, and raw bytes if the line says so.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace seqtile::autotune {

/// `line` is one JSON object; a field "bytes" announces the length of the payload.
struct Message {
  std::string line;
  std::vector<std::byte> payload;
};

/// One end of a socket pair. Not thread-safe.
class Channel {
 public:
  Channel() = default;
  explicit Channel(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  /// Sends the line, then `payload`, whose length the line must announce. Returns false if the other end is closed.
  bool send(const std::string& line, std::span<const std::byte> payload = {});
  enum class Status { ok, closed, timeout };
  /// Waits for a whole message, at most `limit_s` seconds (negative: for ever).
  Status receive(Message& message, double limit_s);

 private:
  Status fill(double deadline_s);

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace seqtile::autotune
