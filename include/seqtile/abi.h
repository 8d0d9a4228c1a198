// include/seqtile/abi.h -- what kernels and hosts agree on: ranks, how a wait ends, the events of a timeline.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace seqtile::channel {

constexpr int kMaxRanks = 16;

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

namespace seqtile::timeline {

enum Kind : int64_t {
  begin,  ///< a program begins
  end,
  publish,  ///< before the flag of a chunk goes to `peer`
  wait,     ///< for a chunk of `peer`
  arrive    ///< the chunk has arrived
};

}  // namespace seqtile::timeline
