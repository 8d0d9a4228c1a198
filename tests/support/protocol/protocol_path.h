// tests/support/protocol/protocol_path.h -- checks that sent and seen flags are a path of the protocol's model.
// SPDX-License-Identifier: Apache-2.0
//
// A trace has the visible events of a rank: flags that it publishes, flags that it has seen, ends of its epochs.
// Between two events the model takes the steps that do not show: reads as soon as they are possible, writes as late as
// possible. The model has one flag for a segment, so that one chunk of each segment is followed at a time. Empty
// segments exchange flags alone. The waits of the last thread may be earlier than in the model: they must occur in the
// trace.
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
    end,      ///< an epoch of `rank` ends
    stray     ///< `rank` stores something other than its flag, or a flag of the other parity
  } kind;
  int rank, peer = -1, phase = 0;
  int64_t chunk = 0;
  int64_t call = 0;  ///< epoch of the event, counted from 0
  std::string text() const;
};

/// Empty if the events of calls of these lengths are a path of the model; else the reason why not.
std::string path_refusal(const Protocol& protocol, const kernels::seqpar::ExchangeShape& shape,
                         std::span<const int64_t> lengths, std::span<const FlagEvent> events);

}  // namespace seqtile::test
