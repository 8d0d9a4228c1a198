// tests/support/protocol/protocol_explorer.cpp -- see protocol_explorer.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/protocol/protocol_explorer.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace seqtile::test {
namespace {

using State = ProtocolModel::State;
using Step = ProtocolModel::Step;

/// Calls `visit(rank, thread, step)` for the next step of each thread.
template <class Visit>
void for_each_step(const ProtocolModel& model, const State& state, const Visit& visit) {
  for (int rank = 0; rank < model.options().num_ranks; ++rank)
    for (size_t thread = 0; thread < model.num_threads() && !model.has_ended(state, rank); ++thread)
      if (const Step* step = model.next(state, rank, thread)) visit(rank, thread, *step);
}

std::string describe_deadlock(const ProtocolModel& model, const State& state) {
  std::string text = "deadlock:";
  for_each_step(model, state, [&](int rank, size_t, const Step& step) {
    text += fmt::format(" rank {} awaits rank {} in epoch {}, phase {};", rank, step.peer, model.epoch(state, rank),
                        step.phase);
  });
  return text;
}

/// Calls `visit(rank, phase, peer)` for each message under way between nodes.
template <class Visit>
void for_each_message(const ProtocolModel& model, const State& state, const Visit& visit) {
  const int num_ranks = model.options().num_ranks;
  for (int rank = 0; rank < num_ranks; ++rank)
    for (int phase = 0; phase < model.num_phases(); ++phase)
      for (int peer = 0; peer < num_ranks; ++peer)
        if (model.can_carry(state, rank, phase, peer)) visit(rank, phase, peer);
}

void expand(const ProtocolModel& model, const State& state, std::vector<State>& next, std::string& violation) {
  bool moves = false, is_end = true;
  for_each_step(model, state, [&](int rank, size_t thread, const Step& step) {
    is_end = false;
    if (model.is_blocked(state, rank, step)) return;
    if (const std::string text = model.violation(state, rank, step); !text.empty()) violation = text;
    moves = true;
    next.push_back(model.without_numbers(model.after(state, rank, thread)));
  });
  for_each_message(model, state, [&](int rank, int phase, int peer) {
    moves = true;
    if (const std::string text = model.carry_violation(state, rank, phase, peer); !text.empty()) violation = text;
    next.push_back(model.without_numbers(model.after_carry(state, rank, phase, peer)));
  });
  if (!moves && !is_end) violation = describe_deadlock(model, state);
}

void leave_each_once(std::vector<State>& states) {
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
}

constexpr size_t kFewStates = 1 << 22;  ///< 64 MiB of a layer's next states, most of which are found many times

}  // namespace

Exploration explore(const Protocol& protocol, const ModelOptions& options, int64_t max_states) {
  const ProtocolModel model(protocol, options);
  Exploration result;
  std::vector<State> layer{State{}};
  while (!layer.empty() && result.violation.empty()) {
    result.num_states += static_cast<int64_t>(layer.size());
    if (result.num_states > max_states) {
      result.is_complete = false;
      break;
    }
    std::vector<State> next;
    size_t most = kFewStates;
    for (const State& state : layer) {
      expand(model, state, next, result.violation);
      if (next.size() < most) continue;
      leave_each_once(next);
      most = std::max(kFewStates, 2 * next.size());
    }
    leave_each_once(next);
    layer = std::move(next);
  }
  return result;
}

}  // namespace seqtile::test
