// tests/support/protocol/protocol_path.h -- whether flags that were sent and seen are a path of the protocol's model.
// SPDX-License-Identifier: Apache-2.0
//
// A trace has what shows outside of a rank: flags that it publishes, flags that it has seen come, ends of its epochs.
// Between them the model takes steps that do not show: reads when they may be, writes as late as can be. One chunk of
// every segment is followed at a time, as the model has one flag for a segment. Where a segment is empty, flags alone
// are exchanged. The last thread's waits may have been earlier than the model has them: they must be in the trace.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "jit/fabric/core/protocol.h"
#include "kernels/seqpar/exchange/exchange.h"

namespace seqtile::test {

struct FlagEvent {
  enum class Kind : uint8_t {
    publish,  ///< `rank` stores its flag at `peer`
    acquire,  ///< `rank` sees the flag of `peer`
    end,      ///< of an epoch of `rank`
    stray     ///< `rank` stores what is not its flag, or not of this parity
  } kind;
  int rank, peer = -1, phase = 0;
  int64_t chunk = 0;
  int64_t call = 0;  ///< its epoch, counted from 0
  std::string text() const;
};

/// Empty, or why the events of a run of calls of these lengths are no path of the model.
std::string path_refusal(const Protocol& protocol, const kernels::seqpar::ExchangeShape& shape,
                         std::span<const int64_t> lengths, std::span<const FlagEvent> events);

}  // namespace seqtile::test
