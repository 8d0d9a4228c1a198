// jit/abi/channel_block.h -- the control block of a channel, which kernels and hosts share.
// SPDX-License-Identifier: Apache-2.0
//
// The control block of a channel has 64-bit words in the device memory of its rank. No other rank reads or writes them;
// addresses in them lead to memory that ranks share. The host fills the block in when the channel is made; after that
// kernels alone change it. docs/seqpar/protocol.md explains the protocol.
#pragma once
#include <cstdint>

#include "seqtile/abi.h"

namespace seqtile::channel {

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
  record,               ///< num_record_words: why the channel was aborted
  remote_ranks = 17,    ///< CPUs: a bit for each rank that is on another node
  proxy_queue,          ///< address of the proxy queue for remote ranks, if there are any: jit/abi/proxy_queue_block.h
  proxy_queue_entries,  ///< how many entries the proxy queue has room for
  clock_function = 20,  ///< CPUs: the address of a timeline::ClockFunction, where there is a timeline
  timeline,             ///< the address of the timeline's events, or 0
  timeline_events,      ///< how many events the timeline has room for
  peers = 24,           ///< for each rank num_peer_words words: addresses of its staging, flags and abort word
  kept = peers + 3 * kMaxRanks,  ///< kept + r: where this rank reads the broadcast staging of rank r
  num_words = kept + kMaxRanks
};

enum PeerWord : int64_t { staging_address, flags_address, abort_address, num_peer_words };

enum RecordWord : int64_t { kind, operation, record_epoch, record_rank, peer, tile, expected, seen, num_record_words };

}  // namespace seqtile::channel
