// tests/support/protocol/protocol_explorer.h -- every order in which ranks can take the steps of a protocol.
// SPDX-License-Identifier: Apache-2.0
//
// Steps only raise a state's counters, so all states after n steps are known when those after n - 1 are: two layers are
// kept, nothing is looked up.
#pragma once
#include <cstdint>
#include <string>

#include "tests/support/protocol/protocol_model.h"

namespace seqtile::test {

struct Exploration {
  int64_t num_states = 0;
  bool is_complete = true;  ///< all states were seen, or a violation was found
  std::string violation;    ///< empty: none. The first one in the fewest steps
};

Exploration explore(const Protocol& protocol, const ModelOptions& options, int64_t max_states = 2'000'000);

}  // namespace seqtile::test
