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

constexpr int kMaxRanks = 4, kMaxRoles = 5, kMaxPhases = 2;

struct Step {
  Action action;
  int phase, peer;
};

/// How far every rank is, in 32 bits each: its epoch, and the steps that each role has taken in it.
class State {
 public:
  int epoch(int rank) const { return static_cast<int>(of(rank) >> (kMaxRoles * kStepBits)); }
  int steps(int rank, size_t role) const { return static_cast<int>(of(rank) >> (role * kStepBits)) & kMaxSteps; }
  void take_step(int rank, size_t role) { add(rank, uint32_t{1} << (role * kStepBits)); }
  /// No role has taken a step in the next one.
  void end_epoch(int rank) {
    const uint32_t next = static_cast<uint32_t>(epoch(rank) + 1) << (kMaxRoles * kStepBits);
    add(rank, next - of(rank));
  }
  bool operator==(const State&) const = default;
  bool operator<(const State& other) const { return bits_ < other.bits_; }

  static constexpr int kStepBits = 5, kMaxSteps = (1 << kStepBits) - 1, kMaxEpochs = 1 << (32 - kMaxRoles * kStepBits);

 private:
  uint32_t of(int rank) const { return static_cast<uint32_t>(bits_ >> (32 * rank)); }
  void add(int rank, uint32_t what) {
    bits_ = (bits_ & ~(Bits{~uint32_t{0}} << (32 * rank))) | (Bits{of(rank) + what} << (32 * rank));
  }

  __extension__ using Bits = unsigned __int128;
  Bits bits_ = 0;
};

class Explorer {
 public:
  Explorer(const Protocol& protocol, const ExplorerOptions& options) : protocol_(protocol), options_(options) {
    if (options.num_ranks > kMaxRanks || protocol.roles.size() + 1 > kMaxRoles ||
        options.num_epochs + options.num_buffers >= State::kMaxEpochs)
      throw std::logic_error("the explorer is made for 4 ranks, 5 roles and a few epochs");
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
      index_steps(rank);
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

  void index_steps(int rank) {
    for (size_t role = 0; role < last_role(); ++role) {
      const std::vector<Step>& steps = programs_[rank][role];
      if (steps.size() > State::kMaxSteps) throw std::logic_error("a role has too many steps for the explorer");
      for (size_t i = 0; i < steps.size(); ++i)
        place(rank, steps[i].action, steps[i].phase, steps[i].peer) = {role, static_cast<int>(i)};
    }
  }

  struct Place {
    size_t role;
    int index = -1;  ///< none: the rank never does it
  };
  Place& place(int rank, Action action, int phase, int peer) {
    return places_[((rank * 4 + static_cast<int>(action)) * kMaxPhases + phase) * kMaxRanks + peer];
  }
  const Place& place(int rank, Action action, int phase, int peer) const {
    return const_cast<Explorer*>(this)->place(rank, action, phase, peer);
  }

  size_t last_role() const { return protocol_.roles.size(); }

  bool is_done(const State& state, int rank, size_t role) const {
    return state.steps(rank, role) == static_cast<int>(programs_[rank][role].size());
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
    if (state.epoch(rank) != epoch) return state.epoch(rank) > epoch;
    const Place& where = place(rank, action, phase, peer);
    return where.index >= 0 && state.steps(rank, where.role) > where.index;
  }

  /// The latest epoch's flag or data is that of `epoch`: it has come and is not yet overwritten.
  bool holds(const State& state, int writer, int epoch, Action action, int phase, int reader) const {
    return has_done(state, writer, epoch, action, phase, reader) &&
           !has_done(state, writer, epoch + options_.num_buffers, action, phase, reader);
  }

  void expand(const State& state, std::vector<State>& next, std::string& violation) const {
    bool moves = false, is_end = true;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      if (state.epoch(rank) == options_.num_epochs) continue;
      is_end = false;
      for (size_t role = 0; role <= last_role(); ++role) {
        if (!may_run(state, rank, role)) continue;
        const Step& step = programs_[rank][role][state.steps(rank, role)];
        const int epoch = state.epoch(rank);
        if (step.action == Action::await && !holds(state, step.peer, epoch, Action::publish, step.phase, rank))
          continue;
        if (step.action == Action::read && !holds(state, step.peer, epoch, Action::write, step.phase, rank))
          violation = fmt::format("rank {} reads what rank {} has not written or has overwritten, epoch {}, phase {}",
                                  rank, step.peer, epoch, step.phase);
        if (step.action == Action::write && state.epoch(step.peer) <= epoch - options_.num_buffers)
          violation = fmt::format("rank {} overwrites data that rank {} may still read, epoch {}, phase {}", rank,
                                  step.peer, epoch, step.phase);
        moves = true;
        State after = state;
        after.take_step(rank, role);
        if (is_epoch_done(after, rank)) after.end_epoch(rank);
        next.push_back(after);
      }
    }
    if (!moves && !is_end) violation = describe_deadlock(state);
  }

  bool is_epoch_done(const State& state, int rank) const {
    for (size_t role = 0; role <= last_role(); ++role)
      if (!is_done(state, rank, role)) return false;
    return true;
  }

  std::string describe_deadlock(const State& state) const {
    std::string text = "deadlock:";
    for (int rank = 0; rank < options_.num_ranks; ++rank)
      for (size_t role = 0; role <= last_role() && state.epoch(rank) < options_.num_epochs; ++role) {
        if (!may_run(state, rank, role)) continue;
        const Step& step = programs_[rank][role][state.steps(rank, role)];
        text += fmt::format(" rank {} awaits rank {} in epoch {}, phase {};", rank, step.peer, state.epoch(rank),
                            step.phase);
      }
    return text;
  }

  const Protocol& protocol_;
  const ExplorerOptions options_;
  std::vector<std::vector<std::vector<Step>>> programs_;  ///< [rank][role]
  std::array<Place, kMaxRanks * 4 * kMaxPhases * kMaxRanks> places_{};
};

}  // namespace

Exploration explore(const Protocol& protocol, const ExplorerOptions& options) {
  return Explorer(protocol, options).run();
}

}  // namespace seqtile::test
