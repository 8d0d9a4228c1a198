// jit/fabric/core/channel.cpp -- see seqtile/fabric.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/fabric.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "jit/abi/channel_block.h"
#include "jit/fabric/core/agreement.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

constexpr size_t kBlockBytes = channel::num_words * sizeof(int64_t);

/// Flags of a channel that has done `epoch` launches: none of them is awaited again, whatever the count was.
std::vector<int64_t> initial_flags(size_t bytes, uint64_t epoch) {
  return std::vector<int64_t>(bytes / sizeof(int64_t), static_cast<int64_t>(epoch << channel::kHashBits));
}

fabric::Arguments arguments_of(const ChannelOptions& options) {
  fabric::Arguments arguments = options.agreed;
  arguments.emplace_back("capacity", std::to_string(options.capacity));
  arguments.emplace_back("staging_bytes", std::to_string(options.staging_bytes));
  arguments.emplace_back("flags_per_source", std::to_string(options.flags_per_source));
  return arguments;
}

std::optional<Error> problem_of(const ChannelOptions& options) {
  static constexpr int64_t kMost = int64_t{1} << 40;  // rows, bytes and flags: sums and products of them stay numbers
  const auto is_possible = [](int64_t value, int64_t least) { return value >= least && value <= kMost; };
  if (options.timeout.count() < 0)
    return Error(ErrorCode::invalid_argument,
                 fmt::format("a channel with a timeout of {} ns: it may not be negative", options.timeout.count()));
  const auto refusal = [](const char* what, int64_t value, int64_t least) {
    return Error(ErrorCode::invalid_argument,
                 fmt::format("a channel with {} {}: from {} to {} are possible; give it another capacity", value, what,
                             least, kMost));
  };
  if (!is_possible(options.capacity, 0)) return refusal("rows", options.capacity, 0);
  if (!is_possible(options.staging_bytes, 0)) return refusal("bytes of staging", options.staging_bytes, 0);
  if (!is_possible(options.flags_per_source, 1)) return refusal("flags of each rank", options.flags_per_source, 1);
  return std::nullopt;
}

ErrorCode error_code_of(channel::Outcome kind) {
  switch (kind) {
    case channel::aborted:
    case channel::peer_died: return ErrorCode::aborted;
    case channel::timed_out: return ErrorCode::timeout;
    case channel::mismatch:
    case channel::too_long: return ErrorCode::invalid_argument;
    case channel::arrived: break;
  }
  return ErrorCode::internal;
}

}  // namespace

Channel::Channel(Fabric& fabric, const ChannelOptions& options)
    : fabric_(fabric), options_(options), block_(fabric.device().memory(), kBlockBytes) {
  fabric::Arguments arguments = arguments_of(options);
  arguments.emplace_back("first_epoch", std::to_string(options.first_epoch));
  fabric::agree(fabric, "a channel", arguments, problem_of(options));
  renew_memory(options, options.first_epoch);
}

Channel::~Channel() = default;

void Channel::reserve(const ChannelOptions& wanted) {
  ChannelOptions least = wanted;
  uint64_t done = 0;
  bool is_aborted = false;
  std::optional<Error> problem = fabric::problem_in([&] {
    done = epoch(), is_aborted = read_abort_word() != 0;
    if (wanted.capacity <= options_.capacity) return;
    for (const auto& [op_id, needs] : needs_) {
      const ChannelOptions needed = needs(wanted.capacity);
      least.staging_bytes = std::max(least.staging_bytes, needed.staging_bytes);
      least.flags_per_source = std::max(least.flags_per_source, needed.flags_per_source);
    }
  });
  if (!problem) problem = problem_of(least);
  if (is_captured_)
    problem = Error(ErrorCode::unsupported,
                    "a channel of which a graph was captured does not grow, as the graph holds its addresses; reserve "
                    "before the first capture, or reset() it and capture anew");
  if (is_aborted)
    problem = Error(ErrorCode::aborted, "a channel that was aborted does not grow; reset() makes it usable again");
  fabric::Arguments arguments = arguments_of(least);
  arguments.emplace_back("the number of launches so far", std::to_string(done));
  fabric::agree(fabric_, "Channel::reserve", arguments, problem);
  const auto grow = [](int64_t& has, int64_t wanted) { return wanted > has ? has = wanted, true : false; };
  ChannelOptions options = options_;
  bool is_larger = grow(options.capacity, least.capacity);
  is_larger |= grow(options.staging_bytes, least.staging_bytes);
  is_larger |= grow(options.flags_per_source, least.flags_per_source);
  if (is_larger) renew_memory(options, done);
}

void Channel::reset() {
  uint64_t own = 0, done = 0;
  fabric::agree(fabric_, "Channel::reset", {}, fabric::problem_in([&] { own = epoch(); }));
  for (const std::string& theirs : fabric_.all_gather(std::to_string(own)))
    done = std::max<uint64_t>(done, std::stoull(theirs));
  renew_memory(options_, done);
}

// Collective. No rank has a launch in flight: the memory before is let go when all have come to the new one. Where
// there is none for the new one, on all ranks alike, the channel stays as it is.
void Channel::renew_memory(const ChannelOptions& options, uint64_t epoch) {
  const int world_size = fabric_.world_size();
  const int64_t parity_bytes = (options.staging_bytes + 255) / 256 * 256;
  const auto num_flags = static_cast<size_t>(2 * world_size * options.flags_per_source);
  auto staging = fabric_.allocate(static_cast<size_t>(std::max<int64_t>(2 * parity_bytes, 256)));
  auto flags_of_all = fabric_.allocate(num_flags * channel::kFlagBytes);
  auto abort_words = fabric_.allocate(channel::kFlagBytes);
  proxy_queue_.reset();
  options_ = options;
  staging_ = std::move(staging), flags_ = std::move(flags_of_all), abort_ = std::move(abort_words);

  std::array<int64_t, channel::num_words> block{};
  block[channel::epoch] = static_cast<int64_t>(epoch);
  block[channel::rank] = fabric_.rank();
  block[channel::capacity] = options_.capacity;
  block[channel::timeout_ns] = options_.awaits_peers ? options_.timeout.count() : -1;
  block[channel::parity_bytes] = parity_bytes;
  block[channel::flags_per_source] = options_.flags_per_source;
  block[channel::wait_function] = static_cast<int64_t>(reinterpret_cast<intptr_t>(fabric_.wait_function()));
  block[channel::wait_context] = static_cast<int64_t>(reinterpret_cast<intptr_t>(fabric_.wait_context()));
  if (options_.awaits_peers) proxy_queue_ = fabric_.open_proxy_queue(*staging_, *flags_, *abort_);
  if (proxy_queue_) {
    block[channel::remote_ranks] = proxy_queue_->remote_ranks();
    block[channel::proxy_queue] = static_cast<int64_t>(proxy_queue_->address());
    block[channel::proxy_queue_entries] = proxy_queue_->num_entries();
  }
  for (int peer = 0; peer < world_size; ++peer) {
    int64_t* words = &block[channel::peers + channel::num_peer_words * peer];
    words[channel::staging_address] = static_cast<int64_t>(staging_->address(peer));
    words[channel::flags_address] = static_cast<int64_t>(flags_->address(peer));
    words[channel::abort_address] = static_cast<int64_t>(abort_->address(peer));
    // A rank of another node sends the data that it keeps for all to this rank's staging, like its data for this rank.
    const bool is_remote = block[channel::remote_ranks] >> peer & 1;
    block[channel::kept + peer] = static_cast<int64_t>(staging_->address(is_remote ? fabric_.rank() : peer));
  }
  DeviceMemory& memory = fabric_.device().memory();
  memory.copy(block_.data(), block.data(), kBlockBytes);
  const std::vector<int64_t> flags = initial_flags(flags_->bytes(), epoch);
  memory.copy(reinterpret_cast<void*>(flags_->address(fabric_.rank())), flags.data(), flags_->bytes());
  fabric_.device().streams().synchronize({});
  stream_.reset();
  is_captured_ = false;
  fabric_.all_gather("");  // peers may store their flags from here on
}

void Channel::check_stream(Stream stream) const {
  if (stream_ && *stream_ != stream.handle)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a launch on stream {} of a channel whose launches are on stream {}; a channel serves one "
                            "stream, make another for the second",
                            stream.handle, *stream_));
}

std::array<Tensor, 3> Channel::tensors() const {
  const auto own = [&](const SymmetricMemory& memory, DType dtype) {
    const auto elements = static_cast<int64_t>(memory.bytes()) / dtype_bytes(dtype);
    return make_tensor(reinterpret_cast<void*>(memory.address(fabric_.rank())), dtype, {elements});
  };
  return {own(*staging_, DType::i8), own(*flags_, DType::i64),
          make_tensor(block_.data(), DType::i64, {channel::num_words})};
}

std::vector<int64_t> Channel::read_block() {
  std::vector<int64_t> block(channel::num_words);
  fabric_.device().memory().copy(block.data(), block_.data(), kBlockBytes);
  fabric_.device().streams().synchronize({});
  return block;
}

int64_t Channel::read_abort_word() {
  int64_t word = 0;
  fabric_.device().memory().copy(&word, reinterpret_cast<const void*>(abort_->address(fabric_.rank())), sizeof(word));
  fabric_.device().streams().synchronize({});
  return word;
}

uint64_t Channel::epoch() { return static_cast<uint64_t>(read_block()[channel::epoch]); }

std::optional<AbortRecord> Channel::abort_record() {
  const auto block = read_block();
  if (!block[channel::claim]) {
    // No program here has waited in vain, but a peer has: the outputs are NaN all the same.
    const int64_t word = read_abort_word();
    if (word == 0) return std::nullopt;
    return AbortRecord{channel::aborted, 0, block[channel::epoch], fabric_.rank(), word - 1, -1, 0, 0};
  }
  const int64_t* words = &block[channel::record];
  return AbortRecord{static_cast<channel::Outcome>(words[channel::kind]),
                     words[channel::operation],
                     words[channel::record_epoch],
                     words[channel::record_rank],
                     words[channel::peer],
                     words[channel::tile],
                     words[channel::expected],
                     words[channel::seen],
                     options_.timeout.count()};
}

int64_t Channel::add_operation(std::string_view name) {
  operations_.emplace_back(name);
  return std::ssize(operations_) - 1;
}

// The op id is in the low bits of what a record says of the operation: see channel::kOpIdBits.
std::string Channel::name_of(const AbortRecord& record) const {
  constexpr size_t kMostIds = size_t{1} << channel::kOpIdBits;
  const auto op_id = static_cast<size_t>(record.operation) % kMostIds;
  if (op_id >= operations_.size() || operations_.size() > kMostIds) return "operation";
  return fmt::format("operation {}, {}", op_id, operations_[op_id]);
}

void Channel::check() {
  const auto record = abort_record();
  if (!record) return;
  throw Error(error_code_of(record->kind), record->text(name_of(*record)));
}

std::string AbortRecord::text(std::string_view name) const {
  if (kind == channel::aborted && operation == 0)
    return fmt::format("rank {} was told by rank {}, which gave up near epoch {}; its record says why", rank, peer,
                       epoch);
  const std::string where = fmt::format("{} ({:#x}), epoch {}", name, static_cast<uint64_t>(operation), epoch);
  if (kind == channel::too_long)
    return fmt::format(
        "rank {} was called with {} rows, more than its plan's one-shot form has room for: {}; record a plan for this "
        "length",
        rank, seen, where);
  const double seconds = 1e-9 * static_cast<double>(timeout_ns);
  const std::string why = kind == channel::mismatch    ? "which runs another operation or length"
                          : kind == channel::timed_out ? fmt::format("which did not answer within {:g} s", seconds)
                          : kind == channel::peer_died ? "which has died"
                                                       : "when another rank had given up";
  return fmt::format("rank {} gave up waiting for rank {}, {}: {}, tile {}, flag {:#x}, expected {:#x}", rank, peer,
                     why, where, tile, static_cast<uint64_t>(seen), static_cast<uint64_t>(expected));
}

}  // namespace seqtile
