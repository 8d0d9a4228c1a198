// jit/fabric/channel.cpp -- see jit/channel.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/channel.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "jit/error.h"

namespace seqtile {
namespace {

constexpr size_t kBlockBytes = channel::num_words * sizeof(int64_t);

/// Flags of a channel that has done `epoch` launches: none of them is awaited again, whatever the count was.
std::vector<int64_t> initial_flags(size_t bytes, uint64_t epoch) {
  return std::vector<int64_t>(bytes / sizeof(int64_t), static_cast<int64_t>(epoch << channel::kHashBits));
}

}  // namespace

Channel::Channel(Fabric& fabric, const ChannelOptions& options)
    : fabric_(fabric), options_(options), block_(fabric.device().memory(), kBlockBytes) {
  if (options.capacity < 0 || options.staging_bytes < 0 || options.flags_per_source < 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a channel for {} rows with {} bytes of staging and {} flags of each rank: none may be "
                            "negative, one flag is needed",
                            options.capacity, options.staging_bytes, options.flags_per_source));
  const int64_t parity_bytes = (options.staging_bytes + 255) / 256 * 256;
  const auto num_flags = static_cast<size_t>(2 * fabric.world_size() * options.flags_per_source);
  staging_ = fabric.allocate(static_cast<size_t>(std::max<int64_t>(2 * parity_bytes, 256)));
  flags_ = fabric.allocate(num_flags * channel::kFlagBytes);
  abort_ = fabric.allocate(channel::kFlagBytes);

  std::array<int64_t, channel::num_words> block{};
  block[channel::epoch] = static_cast<int64_t>(options.first_epoch);
  block[channel::rank] = fabric.rank();
  block[channel::capacity] = options.capacity;
  block[channel::deadline_ns] = options.deadline.count();
  block[channel::parity_bytes] = parity_bytes;
  block[channel::flags_per_source] = options.flags_per_source;
  block[channel::wait_function] = static_cast<int64_t>(reinterpret_cast<intptr_t>(fabric.wait_function()));
  block[channel::wait_context] = static_cast<int64_t>(reinterpret_cast<intptr_t>(fabric.wait_context()));
  for (int peer = 0; peer < fabric.world_size(); ++peer) {
    int64_t* words = &block[channel::peers + channel::num_peer_words * peer];
    words[channel::staging_address] = static_cast<int64_t>(staging_->address(peer));
    words[channel::flags_address] = static_cast<int64_t>(flags_->address(peer));
    words[channel::abort_address] = static_cast<int64_t>(abort_->address(peer));
  }
  DeviceMemory& memory = fabric.device().memory();
  memory.copy(block_.data(), block.data(), kBlockBytes);
  const std::vector<int64_t> flags = initial_flags(flags_->bytes(), options.first_epoch);
  memory.copy(reinterpret_cast<void*>(flags_->address(fabric.rank())), flags.data(), flags_->bytes());
  fabric.device().streams().synchronize({});
  fabric.all_gather("");  // peers may store their flags from here on
}

std::array<Tensor, 3> Channel::tensors() const {
  const auto own = [&](const SymmetricMemory& memory, DType dtype) {
    const auto elements = static_cast<int64_t>(memory.bytes()) / dtype_bytes(dtype);
    return make_tensor(reinterpret_cast<void*>(memory.address(fabric_.rank())), dtype, {elements});
  };
  return {own(*staging_, DType::i8), own(*flags_, DType::i64),
          make_tensor(block_.data(), DType::i64, {channel::num_words})};
}

std::array<int64_t, channel::num_words> Channel::read_block() {
  std::array<int64_t, channel::num_words> block{};
  fabric_.device().memory().copy(block.data(), block_.data(), kBlockBytes);
  fabric_.device().streams().synchronize({});
  return block;
}

uint64_t Channel::epoch() { return static_cast<uint64_t>(read_block()[channel::epoch]); }

std::optional<AbortRecord> Channel::abort_record() {
  const auto block = read_block();
  if (!block[channel::claim]) return std::nullopt;
  const int64_t* words = &block[channel::record];
  return AbortRecord{static_cast<channel::Outcome>(words[channel::kind]),
                     words[channel::operation],
                     words[channel::record_epoch],
                     words[channel::record_rank],
                     words[channel::peer],
                     words[channel::tile],
                     words[channel::expected],
                     words[channel::seen]};
}

std::string AbortRecord::text() const {
  if (kind == channel::too_long)
    return fmt::format("rank {} was called with {} rows, more than its plan's one-shot form has room for: operation "
                       "{:#x}, epoch {}; record a plan for this length",
                       rank, seen, static_cast<uint64_t>(operation), epoch);
  const char* why = kind == channel::mismatch    ? "which runs another operation or length"
                    : kind == channel::timed_out ? "which did not answer before the deadline"
                    : kind == channel::peer_died ? "which has died"
                                                 : "when another rank had given up";
  return fmt::format(
      "rank {} gave up waiting for rank {}, {}: operation {:#x}, epoch {}, tile {}, flag {:#x}, expected "
      "{:#x}",
      rank, peer, why, static_cast<uint64_t>(operation), epoch, tile, static_cast<uint64_t>(seen),
      static_cast<uint64_t>(expected));
}

}  // namespace seqtile
