// jit/fabric/core/rendezvous.cpp -- see rendezvous.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/rendezvous.h"

#include <cstring>

#include <fmt/format.h>

#include "seqtile/error.h"

namespace seqtile::fabric {

void check_world_size(int world_size) {
  if (world_size < 1 || world_size > channel::kMaxRanks)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a fabric of {} ranks: from 1 to {} are possible", world_size, channel::kMaxRanks));
}

std::vector<uint64_t> exchange_addresses(Fabric& fabric, const void* own) {
  const auto address = reinterpret_cast<uint64_t>(own);
  std::vector<uint64_t> addresses;
  for (const std::string& text : fabric.all_gather({reinterpret_cast<const char*>(&address), sizeof(address)}))
    std::memcpy(&addresses.emplace_back(), text.data(), sizeof(address));
  return addresses;
}

std::string waited_in_vain(int rank, const std::vector<int>& missing, std::chrono::nanoseconds timeout) {
  return fmt::format("rank {} waited {:.3g} s for rank{} {}; see what keeps {}, or wait longer", rank,
                     std::chrono::duration<double>(timeout).count(), missing.size() == 1 ? "" : "s",
                     fmt::join(missing, ", "), missing.size() == 1 ? "it" : "them");
}

std::vector<int> Rendezvous::missing() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < calls_.size(); ++rank)
    if (calls_[rank] <= number_) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::vector<std::string> Rendezvous::exchange(int rank, std::string_view mine, std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_leaving_ == 0 || has_left_; });
  if (has_left_) refuse();
  brought_[static_cast<size_t>(rank)] = mine;
  const uint64_t number = number_;
  calls_[static_cast<size_t>(rank)] = number + 1;
  if (++num_here_ == brought_.size()) {
    num_here_ = 0, num_leaving_ = brought_.size(), ++number_;
    changed_.notify_all();
  } else {
    // A rank in a complete rendezvous gets its texts, also if another rank leaves right after it.
    const bool has_ended = changed_.wait_for(lock, timeout, [&] { return number_ != number || has_left_; });
    if (!has_ended) {
      has_left_ = true;
      changed_.notify_all();
      throw Error(ErrorCode::timeout, waited_in_vain(rank, missing(), timeout));
    }
    if (number_ == number) refuse();
  }
  std::vector<std::string> all = brought_;
  if (--num_leaving_ == 0) changed_.notify_all();
  return all;
}

void Rendezvous::leave() {
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  changed_.notify_all();
}

void Rendezvous::refuse() { throw Error(ErrorCode::aborted, "a rank of the fabric has left while others wait for it"); }

}  // namespace seqtile::fabric
