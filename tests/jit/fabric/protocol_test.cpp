// tests/jit/fabric/protocol_test.cpp -- the protocol's tables in every order of steps, and what wrong ones run into.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/protocol.h"

#include <catch2/catch.hpp>

#include "tests/support/protocol_explorer.h"

using namespace seqtile;
using seqtile::test::Exploration;
using seqtile::test::explore;
using seqtile::test::ExplorerOptions;

namespace {

/// Explores 2 and 3 ranks, and what fits in `max_states` of 4, and says what was covered.
void check_every_protocol(int64_t max_states) {
  const int epochs[] = {0, 0, 6, 3, 3};
  for (const Protocol* protocol : all_protocols())
    for (const bool roles_in_order : {true, false})
      for (const bool is_causal : {false, true})
        for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
          ExplorerOptions options{num_ranks, epochs[num_ranks]};
          options.roles_in_order = roles_in_order;
          options.is_causal = is_causal;
          options.max_states = num_ranks < 4 ? 10'000'000 : max_states;
          const Exploration found = explore(*protocol, options);
          INFO(protocol->name << ", " << num_ranks << " ranks, in order " << roles_in_order << ", causal "
                              << is_causal);
          CHECK(found.violation == "");
          CHECK((found.is_complete || num_ranks == 4));
          if (!found.is_complete)
            WARN(protocol->name << ", 4 ranks: " << found.num_states << " states, not all; 3 ranks are complete");
        }
}

std::string violation_of(const Protocol& protocol, ExplorerOptions options) {
  return explore(protocol, options).violation;
}

}  // namespace

TEST_CASE("protocol: no order of steps reads stale data, overwrites live data or hangs", "[fabric][sweep]") {
  check_every_protocol(1'000'000);
}

TEST_CASE("protocol: the same in spaces of up to 10^8 states", "[fabric][slow]") { check_every_protocol(100'000'000); }

TEST_CASE("protocol: one buffer is overwritten while it is read", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (int num_ranks = 2; num_ranks <= 3; ++num_ranks) {
      ExplorerOptions options{num_ranks};
      options.num_buffers = 1;
      CHECK_THAT(violation_of(*protocol, options), Catch::Contains("overwrites data"));
    }
}

TEST_CASE("protocol: who awaits only the data that it reads is overtaken", "[fabric]") {
  for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
    ExplorerOptions options{num_ranks, 4};
    options.is_causal = true;
    options.awaits_all_at_end = false;
    CHECK_THAT(violation_of(gather_protocol(), options), Catch::Contains("overwrites data"));
  }
}

TEST_CASE("protocol: a flag before its data is found", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (size_t role = 0; role < protocol->roles.size(); ++role)
      for (size_t loop = 0; loop < protocol->roles[role].loops.size(); ++loop) {
        Protocol swapped = *protocol;
        PeerSteps& steps = swapped.roles[role].loops[loop];
        if (steps.back().action != ProtocolStep::Action::publish) continue;
        std::swap(steps[steps.size() - 1], steps[steps.size() - 2]);
        CHECK_THAT(violation_of(swapped, {2}), Catch::Contains("reads what"));
      }
}

TEST_CASE("protocol: a phase that nobody publishes is a deadlock, named", "[fabric]") {
  Protocol silent = gather_protocol();
  silent.roles[0].loops[0].pop_back();
  CHECK_THAT(violation_of(silent, {3}), Catch::Contains("deadlock") && Catch::Contains("awaits rank"));
}
