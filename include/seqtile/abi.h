// include/seqtile/abi.h -- the blocks of memory that kernels, devices and hosts share.
// SPDX-License-Identifier: Apache-2.0
//
// The control block of a channel has 64-bit words in the device memory of its rank. No other rank reads or writes them;
// addresses in them lead to memory that ranks share. The host fills the block in when the channel is made; after that
// kernels alone change it. docs/seqpar/protocol.md explains the protocol.
#pragma once
#include <cstdint>
#include <string_view>

namespace seqtile::channel {

constexpr int kMaxRanks = 16;
constexpr int kEpochBits = 48;  ///< upper bits of a flag; the 16 below are a hash of the operation and its length
constexpr int64_t kEpochMask = (int64_t{1} << kEpochBits) - 1;
constexpr int kHashBits = 16;
constexpr int kOpIdBits = 16;       ///< low bits of an operation's identity: its number on the channel
constexpr int64_t kFlagBytes = 32;  ///< from one flag to the next: each has a sector
constexpr int kMaxPhases = 2;

enum Word : int64_t {
  epoch,         ///< the epoch of the last launch that has ended
  claim,         ///< 1 once a program has begun to write the record
  rank,          ///< this rank's number
  capacity,      ///< rows that a segment of the staging holds
  timeout_ns,    ///< how long a wait may take; negative: for ever, and peers are not awaited
  parity_bytes,  ///< bytes of the staging for one parity, all phases and sources
  flags_per_source,
  wait_function,        ///< CPUs: the address of a WaitFunction
  wait_context,         ///< CPUs: the address of the context that the WaitFunction reads
  record,               ///< kRecordWords: why the channel was aborted
  remote_ranks = 17,    ///< CPUs: a bit for each rank that is on another node
  proxy_queue,          ///< address of the proxy queue for remote ranks, if there are any: jit/abi/proxy_queue_block.h
  proxy_queue_entries,  ///< how many entries the proxy queue has room for
  clock_function = 20,  ///< CPUs: the address of a timeline::ClockFunction, where there is a timeline
  timeline,             ///< the address of the timeline's events, or 0
  timeline_events,      ///< how many events the timeline has room for
  peers = 24,           ///< for each rank num_peer_words words: addresses of its staging, flags and abort word
  kept = peers + 3 * kMaxRanks,  ///< kept + r: address of the staging where this rank reads what rank r keeps for all
  num_words = kept + kMaxRanks
};

enum PeerWord : int64_t { staging_address, flags_address, abort_address, num_peer_words };

enum RecordWord : int64_t { kind, operation, record_epoch, record_rank, peer, tile, expected, seen, num_record_words };

/// How a wait ended: `arrived`, or why it gave up.
enum Outcome : int64_t {
  arrived = 0,
  mismatch = 1,   ///< the peer runs another operation or length in this epoch
  timed_out = 2,  ///< the timeout has passed
  aborted = 3,    ///< another program or rank has given up before
  peer_died = 4,
  too_long = 5  ///< the call has more rows than its plan has room for
};

/// Waits until the i64 at `flag` is `expected`; returns an Outcome. `block` is the control block. CPUs only.
using WaitFunction = int64_t (*)(const int64_t* block, const int64_t* flag, int64_t expected);

}  // namespace seqtile::channel

// Kernels write the events of a timeline as 64-bit words into memory of the rank's device: first the number of events
// that were ever written, in a place as large as an event, then the newest events as a ring. The control block has
// their address (channel::timeline).

namespace seqtile::timeline {

enum EventWord : int64_t { time_ns, epoch, role, kind, phase, peer, chunk, program, num_event_words };

enum Kind : int64_t {
  begin,  ///< a program begins
  end,
  publish,  ///< before the flag of a chunk goes to `peer`
  wait,     ///< for a chunk of `peer`
  arrive    ///< the chunk has arrived
};

/// A role's name, up to eight letters, as a word.
constexpr int64_t role_word(std::string_view name) {
  uint64_t word = 0;
  for (size_t i = 0; i < name.size() && i < 8; ++i) word |= uint64_t{static_cast<uint8_t>(name[i])} << 8 * i;
  return static_cast<int64_t>(word);
}

/// Nanoseconds, the same clock on all ranks. CPUs only: GPUs have one of their own.
using ClockFunction = int64_t (*)();

}  // namespace seqtile::timeline
