// tests/support/protocol_explorer.cpp -- see protocol_explorer.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/protocol_explorer.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

namespace seqtile::test {
namespace {

using Action = ProtocolStep::Action;

constexpr int kMaxRanks = 4, kMaxRoles = 5;

struct Step {
  Action action;
  int phase, peer;
};

/// How far a rank is: its epoch, and the steps that each role has taken in it.
struct Progress {
  uint8_t epoch = 0;
  std::array<uint8_t, kMaxRoles> steps{};
  auto operator<=>(const Progress&) const = default;
};

using State = std::array<Progress, kMaxRanks>;

class Explorer {
 public:
  Explorer(const Protocol& protocol, const ExplorerOptions& options) : protocol_(protocol), options_(options) {
    if (options.num_ranks > kMaxRanks || protocol.roles.size() + 1 > kMaxRoles)
      throw std::logic_error("the explorer is made for 4 ranks and 5 roles");
    for (int rank = 0; rank < options.num_ranks; ++rank) {
      auto& roles = programs_.emplace_back();
      for (const ProtocolRole& role : protocol.roles) roles.push_back(unrolled(role.loops, rank));
      std::vector<PeerSteps> last(1);
      for (int phase = 0; phase < protocol.num_phases; ++phase) last[0].push_back({Action::await, phase});
      roles.push_back(unrolled(last, rank));
      if (options.is_causal)
        for (size_t role = 0; role < roles.size(); ++role)
          if (role != last_role() || !options.awaits_all_at_end)
            std::erase_if(roles[role], [&](const Step& step) {
              return step.peer > rank && (step.action == Action::await || step.action == Action::read);
            });
    }
  }

  Exploration run() {
    Exploration result;
    std::vector<State> layer{State{}};
    while (!layer.empty() && result.violation.empty()) {
      result.num_states += static_cast<int64_t>(layer.size());
      if (result.num_states > options_.max_states) {
        result.is_complete = false;
        break;
      }
      std::vector<State> next;
      for (const State& state : layer) expand(state, next, result.violation);
      std::sort(next.begin(), next.end());
      next.erase(std::unique(next.begin(), next.end()), next.end());
      layer = std::move(next);
    }
    return result;
  }

 private:
  std::vector<Step> unrolled(const std::vector<PeerSteps>& loops, int rank) const {
    std::vector<Step> steps;
    for (const PeerSteps& loop : loops)
      for (int i = 1; i < options_.num_ranks; ++i)
        for (const ProtocolStep& step : loop)
          steps.push_back({step.action, step.phase, (rank + i) % options_.num_ranks});
    return steps;
  }

  size_t last_role() const { return protocol_.roles.size(); }

  bool is_done(const State& state, int rank, size_t role) const {
    return state[rank].steps[role] == programs_[rank][role].size();
  }

  /// The last role starts when all others are done: the later it looks, the more may have overtaken it.
  bool may_run(const State& state, int rank, size_t role) const {
    if (is_done(state, rank, role)) return false;
    if (role != last_role() && !options_.roles_in_order) return true;
    for (size_t before = 0; before < role; ++before)
      if (!is_done(state, rank, before)) return false;
    return true;
  }

  /// Whether `rank` has done `action` towards `peer` in `epoch`.
  bool has_done(const State& state, int rank, int epoch, Action action, int phase, int peer) const {
    if (state[rank].epoch != epoch) return state[rank].epoch > epoch;
    for (size_t role = 0; role < last_role(); ++role)
      for (size_t i = 0; i < state[rank].steps[role]; ++i) {
        const Step& step = programs_[rank][role][i];
        if (step.action == action && step.phase == phase && step.peer == peer) return true;
      }
    return false;
  }

  /// The latest epoch's flag or data is that of `epoch`: it has come and is not yet overwritten.
  bool holds(const State& state, int writer, int epoch, Action action, int phase, int reader) const {
    return has_done(state, writer, epoch, action, phase, reader) &&
           !has_done(state, writer, epoch + options_.num_buffers, action, phase, reader);
  }

  void expand(const State& state, std::vector<State>& next, std::string& violation) const {
    bool moves = false, is_end = true;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      if (state[rank].epoch == options_.num_epochs) continue;
      is_end = false;
      for (size_t role = 0; role <= last_role(); ++role) {
        if (!may_run(state, rank, role)) continue;
        const Step& step = programs_[rank][role][state[rank].steps[role]];
        const int epoch = state[rank].epoch;
        if (step.action == Action::await && !holds(state, step.peer, epoch, Action::publish, step.phase, rank))
          continue;
        if (step.action == Action::read && !holds(state, step.peer, epoch, Action::write, step.phase, rank))
          violation = fmt::format("rank {} reads what rank {} has not written or has overwritten, epoch {}, phase {}",
                                  rank, step.peer, epoch, step.phase);
        if (step.action == Action::write && state[step.peer].epoch <= epoch - options_.num_buffers)
          violation = fmt::format("rank {} overwrites data that rank {} may still read, epoch {}, phase {}", rank,
                                  step.peer, epoch, step.phase);
        moves = true;
        State after = state;
        ++after[rank].steps[role];
        end_epoch(after, rank);
        next.push_back(after);
      }
    }
    if (!moves && !is_end) violation = describe_deadlock(state);
  }

  void end_epoch(State& state, int rank) const {
    for (size_t role = 0; role <= last_role(); ++role)
      if (!is_done(state, rank, role)) return;
    ++state[rank].epoch;
    state[rank].steps.fill(0);
  }

  std::string describe_deadlock(const State& state) const {
    std::string text = "deadlock:";
    for (int rank = 0; rank < options_.num_ranks; ++rank)
      for (size_t role = 0; role <= last_role() && state[rank].epoch < options_.num_epochs; ++role) {
        if (!may_run(state, rank, role)) continue;
        const Step& step = programs_[rank][role][state[rank].steps[role]];
        text += fmt::format(" rank {} awaits rank {} in epoch {}, phase {};", rank, step.peer, state[rank].epoch,
                            step.phase);
      }
    return text;
  }

  const Protocol& protocol_;
  const ExplorerOptions options_;
  std::vector<std::vector<std::vector<Step>>> programs_;  ///< [rank][role]
};

}  // namespace

Exploration explore(const Protocol& protocol, const ExplorerOptions& options) {
  return Explorer(protocol, options).run();
}

}  // namespace seqtile::test
