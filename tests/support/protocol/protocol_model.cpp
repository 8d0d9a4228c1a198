// tests/support/protocol/protocol_model.cpp -- see protocol_model.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/protocol/protocol_model.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include <fmt/format.h>

namespace seqtile::test {

using Action = ProtocolStep::Action;

ProtocolModel::ProtocolModel(const Protocol& protocol, const ModelOptions& options)
    : options_(options), num_phases_(protocol.num_phases) {
  if (options.num_ranks > kMaxRanks || protocol.num_phases > kMaxPhases)
    throw std::logic_error("the model is made for 4 ranks and 2 phases");
  PeerSteps all;
  for (int phase = 0; phase < protocol.num_phases; ++phase) all.push_back({Action::await, phase});
  threads_.resize(static_cast<size_t>(options.num_ranks));
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    for (size_t role = 0; role < protocol.roles.size(); ++role) add_role(rank, role, protocol.roles[role].loops, false);
    add_role(rank, protocol.roles.size(), {all}, true);
    drop(rank);
    index_steps(rank);
  }
  lay_out();
}

void ProtocolModel::add_role(int rank, size_t role, const std::vector<PeerSteps>& loops, bool is_last) {
  std::vector<Thread>& threads = threads_[rank];
  const bool is_apart = !options_.peers_in_order && !is_last;
  const size_t first = threads.size(), count = is_apart ? static_cast<size_t>(options_.num_ranks) - 1 : 1;
  threads.resize(first + count, {role, {}});
  for (size_t loop = 0; loop < loops.size(); ++loop)
    for (int i = 1; i < options_.num_ranks; ++i)
      for (const ProtocolStep& step : loops[loop])
        threads[first + (is_apart ? static_cast<size_t>(i) - 1 : 0)].steps.push_back(
            {step.action, step.phase, (rank + i) % options_.num_ranks, static_cast<int>(loop)});
}

/// Leaves out the steps without data: all steps of an empty rank, and steps that a causal mask hides.
void ProtocolModel::drop(int rank) {
  for (size_t thread = 0; thread < threads_[rank].size(); ++thread) {
    const bool is_last = thread + 1 == threads_[rank].size();
    std::erase_if(threads_[rank][thread].steps, [&](const Step& step) {
      const bool is_empty = rank == options_.empty_rank || step.peer == options_.empty_rank;
      if (!is_last && is_empty && step.action != Action::publish) return true;
      const bool is_hidden = options_.is_causal && step.peer > rank;
      return is_hidden && (!is_last || !options_.awaits_all_at_end) &&
             (step.action == Action::await || step.action == Action::read);
    });
  }
}

void ProtocolModel::index_steps(int rank) {
  for (size_t thread = 0; thread + 1 < threads_[rank].size(); ++thread) {
    const std::vector<Step>& steps = threads_[rank][thread].steps;
    for (size_t i = 0; i < steps.size(); ++i)
      places_[place_of(rank, steps[i].action, steps[i].phase, steps[i].peer)] = {thread, static_cast<int>(i)};
  }
}

void ProtocolModel::lay_out() {
  for (size_t thread = 0; thread < num_threads(); ++thread) {
    size_t most_steps = 0;
    for (const auto& threads : threads_) most_steps = std::max(most_steps, threads[thread].steps.size());
    step_shifts_.push_back(step_shifts_.back() + std::bit_width(most_steps));
  }
  rank_bits_ = 128 / options_.num_ranks;
  epoch_shift_ = step_shifts_.back();
  carry_bits_ = options_.is_carried ? std::bit_width(static_cast<unsigned>(options_.num_epochs)) : 0;
  epoch_bits_ = std::min(16, rank_bits_ - epoch_shift_ - num_phases_ * (options_.num_ranks - 1) * carry_bits_);
  if (epoch_bits_ < 1 || options_.num_epochs + options_.num_buffers >= 1 << epoch_bits_)
    throw std::logic_error("the model has no room for so many ranks, threads and epochs");
}

int ProtocolModel::Thread::begin_of(int loop) const {
  return static_cast<int>(std::ranges::count_if(steps, [&](const Step& step) { return step.loop < loop; }));
}

// The last thread starts after all other threads of its rank: the later it looks, the more flags may be overwritten.
const ProtocolModel::Step* ProtocolModel::next(const State& state, int rank, size_t thread) const {
  if (is_done(state, rank, thread)) return nullptr;
  const std::vector<Thread>& threads = threads_[rank];
  const size_t role = threads[thread].role;
  const Step& step = threads[thread].steps[static_cast<size_t>(steps(state, rank, thread))];
  for (size_t other = 0; other < threads.size(); ++other) {
    const bool must_be_done =
        other < thread && threads[other].role != role && (thread == last_thread() || options_.roles_in_order);
    if (must_be_done && !is_done(state, rank, other)) return nullptr;
    const bool is_sibling = other != thread && threads[other].role == role;
    if (is_sibling && steps(state, rank, other) < threads[other].begin_of(step.loop)) return nullptr;
  }
  return &step;
}

/// True if `rank` has done `action` towards `peer` in `epoch`.
bool ProtocolModel::has_done(const State& state, int rank, int epoch, Action action, int phase, int peer) const {
  if (this->epoch(state, rank) != epoch) return this->epoch(state, rank) > epoch;
  const Place& where = places_[place_of(rank, action, phase, peer)];
  return where.index >= 0 && steps(state, rank, where.thread) > where.index;
}

/// True if the flag or data of `epoch` has come and is not yet overwritten.
bool ProtocolModel::holds(const State& state, int writer, int epoch, Action action, int phase, int reader) const {
  if (options_.is_carried) {
    const int arrived = carried(state, writer, phase, reader);
    return arrived > epoch && arrived <= epoch + options_.num_buffers;
  }
  return has_done(state, writer, epoch, action, phase, reader) &&
         !has_done(state, writer, epoch + options_.num_buffers, action, phase, reader);
}

bool ProtocolModel::is_blocked(const State& state, int rank, const Step& step) const {
  return step.action == Action::await &&
         !holds(state, step.peer, epoch(state, rank), Action::publish, step.phase, rank);
}

std::string ProtocolModel::violation(const State& state, int rank, const Step& step) const {
  const int epoch = this->epoch(state, rank);
  if (step.action == Action::read && !holds(state, step.peer, epoch, Action::write, step.phase, rank))
    return fmt::format("rank {} reads what rank {} has not written or has overwritten, epoch {}, phase {}", rank,
                       step.peer, epoch, step.phase);
  if (step.action != Action::write) return "";
  if (!options_.is_carried) return overwriting(state, rank, epoch, step.phase, step.peer);
  if (carried(state, rank, step.phase, step.peer) <= epoch - options_.num_buffers)
    return fmt::format("rank {} overwrites data that rank {} has not got yet, epoch {}, phase {}", rank, step.peer,
                       epoch, step.phase);
  return "";
}

std::string ProtocolModel::overwriting(const State& state, int rank, int epoch, int phase, int peer) const {
  if (this->epoch(state, peer) > epoch - options_.num_buffers) return "";
  return fmt::format("rank {} overwrites data that rank {} may still read, epoch {}, phase {}", rank, peer, epoch,
                     phase);
}

bool ProtocolModel::can_carry(const State& state, int rank, int phase, int peer) const {
  if (!options_.is_carried || peer == rank) return false;
  const int epoch = carried(state, rank, phase, peer);
  return epoch < options_.num_epochs && has_done(state, rank, epoch, Action::publish, phase, peer);
}

std::string ProtocolModel::carry_violation(const State& state, int rank, int phase, int peer) const {
  return overwriting(state, rank, carried(state, rank, phase, peer), phase, peer);
}

ProtocolModel::State ProtocolModel::after_carry(const State& state, int rank, int phase, int peer) const {
  State result = state;
  result.bits_ += State::Bits{1} << (rank * rank_bits_ + carry_shift(rank, phase, peer));
  return result;
}

ProtocolModel::State ProtocolModel::after(const State& state, int rank, size_t thread) const {
  State result = state;
  result.bits_ += State::Bits{1} << (rank * rank_bits_ + step_shifts_[thread]);
  for (size_t t = 0; t < num_threads(); ++t)
    if (!is_done(result, rank, t)) return result;
  const State::Bits all_steps = ((State::Bits{1} << epoch_shift_) - 1) << (rank * rank_bits_);
  result.bits_ &= ~all_steps;
  result.bits_ += State::Bits{1} << (rank * rank_bits_ + epoch_shift_);
  return result;
}

// States are equal up to a rotation of the ranks, because steps and counters name peers by the distance around the
// ranks.
ProtocolModel::State ProtocolModel::without_numbers(const State& state) const {
  State least = state;
  if (options_.is_causal || options_.empty_rank >= 0) return least;
  const int others = rank_bits_ * (options_.num_ranks - 1);
  const State::Bits one_rank = (State::Bits{1} << rank_bits_) - 1;
  State turned = state;
  for (int i = 1; i < options_.num_ranks; ++i) {
    turned.bits_ = turned.bits_ >> rank_bits_ | (turned.bits_ & one_rank) << others;
    least = std::min(least, turned);
  }
  return least;
}

}  // namespace seqtile::test
