// jit/fabric/transport/proxy_thread.cpp -- see proxy_thread.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/proxy_thread.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "seqtile/error.h"

namespace seqtile::fabric {

struct ProxyThread::Header {
  enum Kind : int64_t { delivery, text, alive, leaving } kind;
  uint64_t rendezvous;
  Delivery what;
};

namespace {

constexpr int kHeartbeatsPerTimeout = 10;
constexpr int64_t kMostBytes = 8 << 20;  ///< of the rows of a message, where a row is not more

int64_t ticks(std::chrono::steady_clock::time_point time) { return time.time_since_epoch().count(); }

/// Whether so many bytes at `offset` are in there; numbers from a message may be anything.
bool has_room(std::span<const std::byte> memory, int64_t offset, int64_t bytes) {
  const auto size = static_cast<int64_t>(memory.size());
  return offset >= 0 && bytes >= 0 && bytes <= size && offset <= size - bytes;
}

}  // namespace

ProxyThread::ProxyThread(std::unique_ptr<NodeLink> link, std::vector<int> remote_ranks,
                         std::chrono::nanoseconds heartbeat_timeout)
    : link_(std::move(link)),
      remote_ranks_(std::move(remote_ranks)),
      heartbeat_timeout_(heartbeat_timeout),
      next_heartbeat_(Clock::now()) {
  for (auto& heard : heard_) heard = ticks(Clock::now());
  thread_ = std::thread([this] { run(); });
}

ProxyThread::~ProxyThread() {
  leave();
  is_stopping_ = true;
  thread_.join();
}

void ProxyThread::run() {
  while (!is_stopping_) wait_until([this] { return is_stopping_ || step(); }, nullptr);
}

/// Whether there was anything to do.
bool ProxyThread::step() {
  const std::lock_guard lock(mutex_);
  bool has_moved = false;
  for (Source* source : sources_) has_moved |= source->forward(*this);
  while (const auto message = link_->receive()) {
    handle(*message);
    has_moved = true;
  }
  const auto now = Clock::now();
  looked_ = ticks(now);
  if (now >= next_heartbeat_ && !has_left_) {
    next_heartbeat_ = now + heartbeat_timeout_ / kHeartbeatsPerTimeout;
    tell_all({.kind = Header::alive});
  }
  return has_moved;
}

void ProxyThread::send(int to, const Header& header, std::string_view text) {
  std::vector<std::byte> bytes(sizeof(header) + text.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!text.empty()) std::memcpy(bytes.data() + sizeof(header), text.data(), text.size());
  link_->send(to, std::move(bytes));
}

void ProxyThread::tell_all(const Header& header, std::string_view text) {
  for (const int rank : remote_ranks_)
    if ((left_ >> rank & 1) == 0) send(rank, header, text);
}

// In messages of a size that every link takes; the word goes with the last one.
void ProxyThread::deliver(int to, const Delivery& what, const std::byte* rows) {
  if ((left_ >> to & 1) != 0) return;
  const int64_t most_rows = std::max<int64_t>(1, kMostBytes / std::max<int64_t>(1, what.row_bytes));
  int64_t first = 0;
  do {
    Header header{.kind = Header::delivery, .what = what};
    header.what.rows = std::min(what.rows - first, most_rows);
    header.what.data_offset += first * what.pitch;
    header.what.has_word = first + header.what.rows == what.rows;
    std::vector<std::byte> bytes(sizeof(header) + static_cast<size_t>(header.what.rows * what.row_bytes));
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::byte* next = bytes.data() + sizeof(header);
    for (int64_t row = first; row < first + header.what.rows; ++row, next += what.row_bytes)
      std::memcpy(next, rows + row * what.pitch, static_cast<size_t>(what.row_bytes));
    link_->send(to, std::move(bytes));
    first += header.what.rows;
  } while (first < what.rows);
}

void ProxyThread::handle(const NodeMessage& message) {
  heard_[static_cast<size_t>(message.from)] = ticks(Clock::now());
  Header header;
  if (message.bytes.size() < sizeof(header)) return;
  std::memcpy(&header, message.bytes.data(), sizeof(header));
  const std::span rest = std::span(message.bytes).subspan(sizeof(header));
  if (header.kind == Header::delivery) take(header.what, rest);
  if (header.kind == Header::text)
    texts_[header.rendezvous][message.from].assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  if (header.kind == Header::leaving) left_ |= uint32_t{1} << message.from;
}

void ProxyThread::take(const Delivery& what, std::span<const std::byte> rows) {
  const auto staging = memories_.find(what.staging), flags = memories_.find(what.flags);
  if (staging == memories_.end() || flags == memories_.end()) return;  // of before a reset()
  const auto row_bytes = static_cast<size_t>(what.row_bytes);
  const int64_t end = what.rows > 0 ? (what.rows - 1) * what.pitch + what.row_bytes : 0;
  if (rows.size() != static_cast<size_t>(what.rows) * row_bytes || !has_room(staging->second, what.data_offset, end) ||
      !has_room(flags->second, what.flag_offset, sizeof(int64_t)))
    return;
  for (int64_t row = 0; row < what.rows; ++row)
    std::memcpy(staging->second.data() + what.data_offset + row * what.pitch,
                rows.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
  auto* flag = reinterpret_cast<int64_t*>(flags->second.data() + what.flag_offset);
  if (what.has_word) std::atomic_ref<int64_t>(*flag).store(what.flag, std::memory_order_release);
}

void ProxyThread::send_text(uint64_t rendezvous, std::string_view text) {
  const std::lock_guard lock(mutex_);
  tell_all({.kind = Header::text, .rendezvous = rendezvous}, text);
}

/// Whether the texts of all remote ranks have come. A rank that has left is not counted.
bool ProxyThread::has_texts(uint64_t rendezvous) {
  const std::lock_guard lock(mutex_);
  const auto& texts = texts_[rendezvous];
  return std::ranges::all_of(remote_ranks_, [&](int rank) { return texts.contains(rank) || (left_ >> rank & 1) != 0; });
}

std::vector<std::string> ProxyThread::await_texts(uint64_t rendezvous, std::chrono::nanoseconds timeout,
                                                  const PeerWatch& watch) {
  const auto start = std::chrono::steady_clock::now();
  const auto is_late = [&] { return std::chrono::steady_clock::now() - start > timeout; };
  const bool is_complete = wait_until([&] { return has_texts(rendezvous) || is_late(); }, &watch);
  const std::lock_guard lock(mutex_);
  auto came = texts_.extract(rendezvous);
  std::vector<std::string> texts;
  for (const int rank : remote_ranks_) {
    const auto found = came.mapped().find(rank);
    if (found == came.mapped().end())
      throw Error(is_late() ? ErrorCode::timeout : ErrorCode::aborted,
                  fmt::format("node fabric: rank {} of another node is waited for, and {}", rank,
                              is_late()     ? "does not come in time; see what keeps it, or wait longer"
                              : is_complete ? "has left"
                                            : "it or another rank has died"));
    texts.push_back(std::move(found->second));
  }
  return texts;
}

void ProxyThread::add_memory(uint64_t number, std::span<std::byte> own) {
  const std::lock_guard lock(mutex_);
  memories_.emplace(number, own);
}

void ProxyThread::remove_memory(uint64_t number) {
  const std::lock_guard lock(mutex_);
  memories_.erase(number);
}

void ProxyThread::add_source(Source& source) {
  const std::lock_guard lock(mutex_);
  sources_.push_back(&source);
}

void ProxyThread::remove_source(Source& source) {
  const std::lock_guard lock(mutex_);
  source.forward(*this);
  std::erase(sources_, &source);
}

void ProxyThread::leave() {
  const std::lock_guard lock(mutex_);
  if (!has_left_) tell_all({.kind = Header::leaving});
  has_left_ = true;
}

// Peers count as silent only up to the time when all messages had been received: after a stop of this process the
// messages that came meanwhile are read first.
bool ProxyThread::has_dead_peer() const noexcept {
  const int64_t looked = looked_;
  return std::ranges::any_of(
      remote_ranks_, [&](int rank) { return looked - heard_[static_cast<size_t>(rank)] > heartbeat_timeout_.count(); });
}

}  // namespace seqtile::fabric
