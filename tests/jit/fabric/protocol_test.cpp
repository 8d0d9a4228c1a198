// tests/jit/fabric/protocol_test.cpp -- the protocol's tables in every order of steps, and the faults of wrong tables.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/protocol.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>

#include <fmt/core.h>

#include "tests/support/protocol/protocol_explorer.h"

using namespace seqtile;
using seqtile::test::Exploration;
using seqtile::test::explore;
using seqtile::test::ModelOptions;

namespace {

constexpr int64_t kFewStates = 200'000, kMostStates = 100'000'000;

/// An order in which the threads of a rank take their steps.
struct Way {
  const char* name;
  ModelOptions options;
};

const Way kWays[] = {{"roles in order", {.roles_in_order = true}},
                     {"roles in order, causal", {.is_causal = true, .roles_in_order = true}},
                     {"roles in order, nodes", {.roles_in_order = true, .is_carried = true}},
                     {"roles in order, peers side by side", {.roles_in_order = true, .peers_in_order = false}},
                     {"roles side by side", {}},
                     {"roles side by side, causal", {.is_causal = true}},
                     {"roles side by side, nodes", {.is_carried = true}},
                     {"roles and peers side by side", {.peers_in_order = false}}};

/// A causal way does not apply to sums, which need the data of all ranks. Attention to the keys of all ranks uses the
/// table of the gather: its two tensors stand side by side in a row of the staging, with one flag for both.
bool applies(const Way& way, const Protocol& protocol) {
  return !way.options.is_causal || (&protocol != &reduce_scatter_protocol() && &protocol != &two_shot_protocol());
}

/// Four, or fewer if four ranks have more than kMostStates.
int most_ranks(const Protocol& protocol, const ModelOptions& way) {
  if (&protocol == &gather_beside_reduce_scatter_protocol()) {
    if (way.roles_in_order) return way.is_carried ? 3 : 4;
    return way.peers_in_order ? 3 : 2;
  }
  const bool has_few_states = way.roles_in_order || way.peers_in_order || &protocol == &reduce_scatter_protocol();
  return has_few_states ? 4 : 3;
}

/// All states of three epochs (six for two ranks); empty if they are more than `most`.
std::optional<Exploration> explored(const Protocol& protocol, const Way& way, int num_ranks, int64_t most) {
  ModelOptions options = way.options;
  options.num_ranks = num_ranks, options.num_epochs = num_ranks == 2 ? 6 : 3;
  const Exploration found = explore(protocol, options, most);
  INFO(protocol.name << ", " << way.name << ", " << num_ranks << " ranks, " << found.num_states << " states");
  CHECK(found.violation == "");
  return found.is_complete ? std::optional(found) : std::nullopt;
}

std::string violation_of(const Protocol& protocol, ModelOptions options) {
  return explore(protocol, options).violation;
}

}  // namespace

TEST_CASE("protocol: no order of steps reads stale data, overwrites live data or hangs", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (const Way& way : kWays)
      for (int num_ranks = 2; num_ranks <= 4 && applies(way, *protocol); ++num_ranks)
        if (!explored(*protocol, way, num_ranks, kFewStates)) {
          CHECK(num_ranks > 2);
          break;
        }
}

// The table of docs/seqpar/protocol.md. States that differ only in the numbers of the ranks count once.
TEST_CASE("protocol: every way of four ranks, or of as many as have 10^8 states", "[fabric][slow]") {
  for (const Protocol* protocol : all_protocols())
    for (const Way& way : kWays) {
      if (!applies(way, *protocol)) continue;
      const auto start = std::chrono::steady_clock::now();
      const int num_ranks = most_ranks(*protocol, way.options);
      const auto found = explored(*protocol, way, num_ranks, kMostStates);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      REQUIRE(found);
      fmt::print("| {} | {} | {} | {} | {:.0f} |\n", protocol->name, way.name, num_ranks, found->num_states,
                 seconds.count());
      std::fflush(stdout);
    }
}

TEST_CASE("protocol: a rank without rows makes nothing wrong", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (const int empty_rank : {0, 1})
      for (int num_ranks = 2; num_ranks <= 3; ++num_ranks) {
        ModelOptions options{num_ranks, 3};
        options.peers_in_order = num_ranks == 3 && protocol->num_phases == 2;
        options.empty_rank = empty_rank;
        const Exploration found = explore(*protocol, options, kFewStates);
        INFO(protocol->name << ", " << num_ranks << " ranks, " << found.num_states << " states, empty " << empty_rank);
        CHECK(found.violation == "");
        CHECK(found.is_complete);
      }
}

// A message may take any time. It carries the sender's data of the moment when it leaves.
TEST_CASE("protocol: between nodes one buffer is overwritten, and so is what was not awaited", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (const int num_ranks : {2, 3}) {
      ModelOptions options{num_ranks};
      options.is_carried = true, options.num_buffers = 1, options.roles_in_order = num_ranks == 3;
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

// A causal kernel awaits only the data that it reads if it leaves out the keys that no query sees.
TEST_CASE("protocol: who awaits only the data that it reads is overtaken", "[fabric]") {
  for (const Protocol* protocol : {&gather_protocol(), &pulled_gather_protocol()})
    for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
      ModelOptions options{num_ranks, 4};
      options.is_causal = true;
      options.awaits_all_at_end = false;
      CHECK_THAT(violation_of(*protocol, options), Catch::Contains("overwrites data"));
    }
}

TEST_CASE("protocol: a flag before its data is found", "[fabric]") {
  for (const Protocol* protocol : all_protocols())
    for (size_t role = 0; role < protocol->roles.size(); ++role)
      for (size_t loop = 0; loop < protocol->roles[role].loops.size(); ++loop) {
        Protocol swapped = *protocol;
        std::vector<PeerSteps>& loops = swapped.roles[role].loops;
        PeerSteps& steps = loops[loop];
        if (steps.back().action != ProtocolStep::Action::publish) continue;
        if (steps.size() == 1) std::swap(loops.at(loop), loops.at(loop - 1));
        else std::swap(steps[steps.size() - 1], steps[steps.size() - 2]);
        CHECK_THAT(violation_of(swapped, {2}), Catch::Contains("reads what"));
      }
}

TEST_CASE("protocol: a phase that nobody publishes is a deadlock, named", "[fabric]") {
  Protocol silent = gather_protocol();
  silent.roles[0].loops[0].pop_back();
  CHECK_THAT(violation_of(silent, {3}), Catch::Contains("deadlock") && Catch::Contains("awaits rank"));
}
