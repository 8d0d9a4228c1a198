// autotune/worker/channel.cpp -- see channel.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace seqtile::autotune {
namespace {

double now_s() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

bool send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

bool Channel::send(const std::string& line, std::span<const std::byte> payload) {
  return send_all(fd_, (line + "\n").data(), line.size() + 1) &&
         send_all(fd_, reinterpret_cast<const char*>(payload.data()), payload.size());
}

/// Waits until it has appended at least one byte to the buffer; the deadline is a time of now_s().
Channel::Status Channel::fill(double deadline_s) {
  while (true) {
    const double left = deadline_s - now_s();
    if (left <= 0) return Status::timeout;
    pollfd waiting{fd_, POLLIN, 0};
    const int limit_ms = std::isinf(left) ? -1 : static_cast<int>(std::min(left * 1e3, 1e9)) + 1;
    const int ready = poll(&waiting, 1, limit_ms);
    if (ready < 0 && errno != EINTR) return Status::closed;
    if (ready <= 0) continue;
    char chunk[1 << 16];
    const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status::closed;
    buffer_.append(chunk, static_cast<size_t>(got));
    return Status::ok;
  }
}

Channel::Status Channel::receive(Message& message, double limit_s) {
  const double deadline = limit_s < 0 ? HUGE_VAL : now_s() + limit_s;
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos)
    if (const Status status = fill(deadline); status != Status::ok) return status;
  message.line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  const auto json = nlohmann::json::parse(message.line, nullptr, false);
  const size_t bytes = json.is_object() ? json.value("bytes", size_t{0}) : 0;
  while (buffer_.size() < bytes)
    if (const Status status = fill(deadline); status != Status::ok) return status;
  const auto* begin = reinterpret_cast<const std::byte*>(buffer_.data());
  message.payload.assign(begin, begin + bytes);
  buffer_.erase(0, bytes);
  return Status::ok;
}

}  // namespace seqtile::autotune
