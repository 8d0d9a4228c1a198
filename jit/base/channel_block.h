// jit/base/channel_block.h -- the control block of a rank's channel: what kernels, devices and hosts agree on.
// SPDX-License-Identifier: Apache-2.0
//
// 64-bit words in memory of the rank's device, private to it but for what is said of the addresses. The host fills it
// in when the channel is made; after that kernels alone change it. docs/seqpar/protocol.md explains the protocol.
#pragma once
#include <cstdint>

namespace seqtile::channel {

constexpr int kMaxRanks = 16;
constexpr int kEpochBits = 48;  ///< of a flag; the 16 below are a hash of the operation and its length
constexpr int64_t kEpochMask = (int64_t{1} << kEpochBits) - 1;
constexpr int kHashBits = 16;
constexpr int kNumberBits = 16;     ///< of an operation's identity, the low ones: its number on the channel
constexpr int64_t kFlagBytes = 32;  ///< from one flag to the next: a sector each
constexpr int kMaxPhases = 2;

enum Word : int64_t {
  epoch,         ///< of the last launch that has ended
  claim,         ///< 1 once a program has begun to write the record
  rank,          ///< of this rank
  capacity,      ///< rows of a segment of the staging
  deadline_ns,   ///< how long a wait may take; negative: for ever, and peers are not awaited
  parity_bytes,  ///< of the staging of one parity, all phases and sources
  flags_per_source,
  wait_function,        ///< CPUs: the address of a WaitFunction
  wait_context,         ///< and of what it needs to know about the peers
  record,               ///< kRecordWords: why the channel was aborted
  remote_ranks = 17,    ///< CPUs: a bit for each rank that is on another node
  outbox,               ///< the address of what goes to these, where there are any: jit/base/outbox_block.h
  outbox_entries,       ///< how many fit in there
  clock_function = 20,  ///< CPUs: the address of a timeline::ClockFunction, where there is a timeline
  timeline,             ///< the address of the events of one, or 0: jit/base/timeline_block.h
  timeline_events,      ///< how many fit in there
  peers = 24,           ///< of each rank kPeerWords: the addresses of its staging, its flags and its abort word
  kept = peers + 3 * kMaxRanks,  ///< of each rank: the staging where this one reads what that one keeps for all
  num_words = kept + kMaxRanks
};

enum PeerWord : int64_t { staging_address, flags_address, abort_address, num_peer_words };

enum RecordWord : int64_t { kind, operation, record_epoch, record_rank, peer, tile, expected, seen, num_record_words };

/// Why a wait gave up.
enum Outcome : int64_t {
  arrived = 0,
  mismatch = 1,   ///< the peer runs another operation or length in this epoch
  timed_out = 2,  ///< the deadline has passed
  aborted = 3,    ///< another program or rank has given up before
  peer_died = 4,
  too_long = 5  ///< the call has more rows than its plan has room for
};

/// Waits until the i64 at `flag` is `expected`; returns an Outcome. `block` is the control block. CPUs only.
using WaitFunction = int64_t (*)(const int64_t* block, const int64_t* flag, int64_t expected);

}  // namespace seqtile::channel
