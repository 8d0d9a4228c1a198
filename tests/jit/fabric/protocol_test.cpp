// tests/jit/fabric/protocol_test.cpp -- the protocol's tables in every order of steps, and what wrong ones run into.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/protocol.h"

#include <catch2/catch.hpp>

#include "tests/support/protocol_explorer.h"

using namespace seqtile;
using seqtile::test::Exploration;
using seqtile::test::explore;
using seqtile::test::ModelOptions;

namespace {

constexpr int64_t kMostStates = 3'000'000;

/// Sums need what all ranks give; what is gathered may be used as causal attention does. Attention to the keys of all
/// ranks gathers two tensors in one phase: they stand side by side in a row of the staging, and one flag stands for
/// both. So its table is that of the gather.
bool may_be_causal(const Protocol& protocol) {
  return &protocol != &reduce_scatter_protocol() && &protocol != &two_shot_protocol();
}

void check_every_order(const Protocol& protocol, bool roles_in_order, bool is_causal) {
  const int epochs[] = {0, 0, 6, 3, 3};
  for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
    ModelOptions options{num_ranks, epochs[num_ranks]};
    options.roles_in_order = roles_in_order;
    options.is_causal = is_causal;
    const Exploration found = explore(protocol, options, kMostStates);
    INFO(protocol.name << ", " << num_ranks << " ranks, in order " << roles_in_order << ", causal " << is_causal);
    CHECK(found.violation == "");
    CHECK((found.is_complete || num_ranks == 4));
    if (!found.is_complete)
      WARN(protocol.name << ", 4 ranks, causal " << is_causal << ": the first " << found.num_states
                         << " states; 3 ranks are complete");
  }
}

std::string violation_of(const Protocol& protocol, ModelOptions options) {
  return explore(protocol, options).violation;
}

}  // namespace

// What is left out has more than 10^8 states: two transfers whose roles run side by side, one beside the other, or
// causal and one after the other.
TEST_CASE("protocol: no order of steps reads stale data, overwrites live data or hangs", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (const bool roles_in_order : {true, false})
      for (const bool is_causal : {false, true})
        if (!is_causal || may_be_causal(*protocol)) check_every_order(*protocol, roles_in_order, is_causal);
}

// As programs of a role do that run at the same time. Kernels' flags are compared with these steps (protocol_path.h).
TEST_CASE("protocol: peers side by side make nothing wrong, nor does a rank without rows", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (const int empty_rank : {-1, 0, 1})
      for (int num_ranks = 2; num_ranks <= 3; ++num_ranks) {
        ModelOptions options{num_ranks, 3};
        options.peers_in_order = false;
        options.empty_rank = empty_rank;
        const Exploration found = explore(*protocol, options, kMostStates);
        INFO(protocol->name << ", " << num_ranks << " ranks, " << found.num_states << " states, empty " << empty_rank);
        CHECK(found.violation == "");
        CHECK((found.is_complete || num_ranks == 3));
        if (!found.is_complete)
          WARN(protocol->name << ", 3 ranks, peers side by side, empty " << empty_rank << ": the first "
                              << found.num_states << " states; 2 ranks are complete");
      }
}

// A message may take any time, and brings what the sender has written until then. Between three nodes a rank has one
// thread: side by side its roles make too many states.
TEST_CASE("protocol: between nodes no message comes too late, and none is overwritten before it was sent", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (const int num_ranks : {2, 3}) {
      ModelOptions options{num_ranks, num_ranks == 2 ? 5 : 3};
      options.is_carried = true, options.roles_in_order = num_ranks == 3;
      const Exploration found = explore(*protocol, options, kMostStates);
      INFO(protocol->name << ", " << num_ranks << " ranks, " << found.num_states << " states");
      CHECK(found.violation == "");
      CHECK(found.is_complete);
      options.num_buffers = 1;
      CHECK_THAT(violation_of(*protocol, options), Catch::Contains("overwrites data"));
    }
  ModelOptions options{2, 4};
  options.is_carried = options.is_causal = true, options.awaits_all_at_end = false;
  CHECK_THAT(violation_of(gather_protocol(), options), Catch::Contains("has not got yet"));
}

TEST_CASE("protocol: one buffer is overwritten while it is read", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (int num_ranks = 2; num_ranks <= 3; ++num_ranks) {
      ModelOptions options{num_ranks};
      options.num_buffers = 1;
      CHECK_THAT(violation_of(*protocol, options), Catch::Contains("overwrites data"));
    }
}

// As a causal kernel would that leaves out the keys that nobody here sees.
TEST_CASE("protocol: who awaits only the data that it reads is overtaken", "[fabric]") {
  for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
    ModelOptions options{num_ranks, 4};
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
