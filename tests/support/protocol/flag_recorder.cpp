// tests/support/protocol/flag_recorder.cpp -- see flag_recorder.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/protocol/flag_recorder.h"

#include <utility>

#include "jit/abi/channel_block.h"
#include "jit/device/device_wrapper.h"
#include "jit/sim/device/sim_device.h"

namespace seqtile::test {
namespace {

using Kind = FlagEvent::Kind;

constexpr int kModelledRanks = 4;

/// The number of a call, counted from the epoch after `first`; epochs wrap around.
int64_t call_of(uint64_t epoch, uint64_t first) {
  constexpr int kUnused = 64 - channel::kEpochBits;
  return static_cast<int64_t>((epoch - first - 1) << kUnused) >> kUnused;
}

}  // namespace

FlagRecorder::FlagRecorder(const Protocol& protocol, kernels::seqpar::ExchangeShape shape, std::vector<int64_t> lengths)
    : protocol_(protocol),
      shape_(std::move(shape)),
      lengths_(std::move(lengths)),
      ended_(static_cast<size_t>(shape_.world_size)) {}

void FlagRecorder::watch(Channel& channel) {
  auto* device = dynamic_cast<sim::SimDevice*>(&innermost(channel.fabric().device()));
  if (!device) return;
  const std::lock_guard lock(mutex_);
  is_watching_ = true;
  is_shared_ = channel.fabric().kind().starts_with("virtual:");
  const int rank = channel.fabric().rank();
  const int64_t flags = channel.options().flags_per_source;
  const uint64_t first = channel.options().first_epoch;
  const auto tensors = channel.tensors();
  device->machine().watch(tensors[1].data, [=, this](const auto& access) { note_flag(rank, flags, first, access); });
  device->machine().watch(tensors[2].data, [=, this](const auto& access) { note_epoch(rank, first, access); });
}

int FlagRecorder::rank_of(const sim::WatchedAccess& access) const {
  return is_shared_ ? access.cta * shape_.world_size / access.num_ctas : access.device;
}

void FlagRecorder::note_flag(int owner, int64_t flags_per_source, uint64_t first_epoch,
                             const sim::WatchedAccess& access) {
  const auto index = static_cast<int64_t>(access.offset) / channel::kFlagBytes, of_source = index % flags_per_source;
  const int64_t per_phase = flags_per_source / static_cast<int64_t>(shape_.phases.size());
  const auto source = static_cast<int>(index / flags_per_source % shape_.world_size);
  const int64_t parity = index / (flags_per_source * shape_.world_size);
  const uint64_t epoch = access.value >> channel::kHashBits;
  const int rank = rank_of(access);
  FlagEvent event{Kind::publish,
                  rank,
                  owner,
                  static_cast<int>(of_source / per_phase) - shape_.first_phase,
                  of_source % per_phase,
                  call_of(epoch, first_epoch)};
  if (access.is_write) {
    const bool is_own = source == rank && parity == static_cast<int64_t>(epoch & 1) && event.phase >= 0 &&
                        event.phase < protocol_.num_phases;
    if (!is_own || access.order != sim::Order::release) event.kind = Kind::stray;
  } else {
    event.kind = Kind::acquire, event.peer = source;
    const bool waits = event.call < ended_[static_cast<size_t>(rank)];
    if (waits || access.order != sim::Order::acquire) return;
  }
  if (source != owner) events_.push_back(event);  // a rank's flag to itself is no step of the protocol
}

void FlagRecorder::note_epoch(int rank, uint64_t first_epoch, const sim::WatchedAccess& access) {
  if (!access.is_write || access.offset != channel::epoch * sizeof(int64_t)) return;
  const int64_t call = call_of(access.value, first_epoch);
  ended_[static_cast<size_t>(rank)] = call + 1;
  events_.push_back({Kind::end, rank, -1, 0, 0, call});
}

std::string FlagRecorder::refusal() const {
  if (!is_watching_ || shape_.world_size == 1 || shape_.world_size > kModelledRanks) return "";
  return path_refusal(protocol_, shape_, lengths_, events_);
}

}  // namespace seqtile::test
