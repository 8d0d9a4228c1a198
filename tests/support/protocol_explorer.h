// tests/support/protocol_explorer.h -- every order in which ranks can take the steps of a protocol.
// SPDX-License-Identifier: Apache-2.0
//
// Each flag and each segment has one writer whose steps have a fixed order, so how far every role of every rank has got
// says what is in all of them: a state is these counters alone, and steps only raise them. So all states after n steps
// are known when those after n - 1 are: two layers are kept, nothing is looked up.
#pragma once
#include <cstdint>
#include <string>

#include "jit/fabric/protocol.h"

namespace seqtile::test {

struct ExplorerOptions {
  int num_ranks = 2, num_epochs = 3;
  int num_buffers = 2;            ///< of staging and of flags; two is right
  bool is_causal = false;         ///< only data of lower ranks is read, as by causal attention
  bool awaits_all_at_end = true;  ///< false: what is not read is not awaited; true is right
  bool roles_in_order = false;    ///< a rank has one thread
  int64_t max_states = 2'000'000;
};

struct Exploration {
  int64_t num_states = 0;
  bool is_complete = true;  ///< all states were seen, or a violation was found
  std::string violation;    ///< empty: none. The first one in the fewest steps
};

Exploration explore(const Protocol& protocol, const ExplorerOptions& options);

}  // namespace seqtile::test
