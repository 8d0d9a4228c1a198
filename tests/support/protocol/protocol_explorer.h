// tests/support/protocol/protocol_explorer.h -- explores all orders in which ranks can take the steps of a protocol.
// SPDX-License-Identifier: Apache-2.0
//
// Steps only raise a state's counters, so that the states after n steps follow from the states after n - 1 steps alone.
// The explorer keeps two layers of states and looks nothing up.
#pragma once
#include <cstdint>
#include <string>

#include "tests/support/protocol/protocol_model.h"

namespace seqtile::test {

struct Exploration {
  int64_t num_states = 0;
  bool is_complete = true;  ///< all states were seen, or a violation was found
  std::string violation;    ///< the first violation, in the fewest steps; empty: none
};

Exploration explore(const Protocol& protocol, const ModelOptions& options, int64_t max_states = 2'000'000);

}  // namespace seqtile::test
