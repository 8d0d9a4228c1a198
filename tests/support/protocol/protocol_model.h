// tests/support/protocol/protocol_model.h -- the single steps that the ranks of a protocol can take.
// SPDX-License-Identifier: Apache-2.0
//
// Each flag and each segment has one writer, whose steps have a fixed order. The progress of all threads therefore
// determines the contents of all flags and segments: a state is these counters alone, and steps only raise them. A
// thread is a role; if peers run side by side, a thread is a role's work for one peer. The last thread awaits all flags
// of all peers. Between nodes a rank writes to a send buffer, and the arrived messages are counted
// beside the steps.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "jit/fabric/core/protocol.h"

namespace seqtile::test {

struct ModelOptions {
  int num_ranks = 2, num_epochs = 3;
  int num_buffers = 2;            ///< buffers of staging and of flags; two is right
  bool is_causal = false;         ///< a rank reads only data of lower ranks, as in causal attention
  bool awaits_all_at_end = true;  ///< true is right; false: flags of data that is not read are not awaited
  bool roles_in_order = false;    ///< a rank has one thread
  bool peers_in_order = true;     ///< false: a role serves its peers side by side, its loops one by one
  int empty_rank = -1;            ///< a rank without rows, with which only flags are exchanged
  bool is_carried = false;        ///< ranks have nodes of their own; a message brings a flag with its data at any time
};

class ProtocolModel {
 public:
  struct Step {
    ProtocolStep::Action action;
    int phase, peer, loop;
  };

  /// The progress of all ranks: the epoch of each, and the steps of each of its threads in the epoch.
  class State {
   public:
    bool operator==(const State&) const = default;
    bool operator<(const State& other) const { return bits_ < other.bits_; }

   private:
    friend ProtocolModel;
    __extension__ using Bits = unsigned __int128;
    Bits bits_ = 0;
  };

  ProtocolModel(const Protocol& protocol, const ModelOptions& options);

  const ModelOptions& options() const { return options_; }
  size_t num_threads() const { return threads_[0].size(); }
  size_t last_thread() const { return num_threads() - 1; }
  int epoch(const State& state, int rank) const { return field(state, rank, epoch_shift_, epoch_bits_); }
  bool has_ended(const State& state, int rank) const { return epoch(state, rank) == options_.num_epochs; }
  /// The thread's next step; null if it has none left in this epoch or must wait for other threads of its rank.
  const Step* next(const State& state, int rank, size_t thread) const;
  /// True if the step awaits a flag that has not come or has been overwritten.
  bool is_blocked(const State& state, int rank, const Step& step) const;
  /// The violation that the step would be now; empty if it is none.
  std::string violation(const State& state, int rank, const Step& step) const;
  /// can_carry() is true if a message to a `peer` on another node is under way. carry_violation() is the violation of
  /// the message's arrival now, after_carry() the state after its arrival.
  bool can_carry(const State& state, int rank, int phase, int peer) const;
  std::string carry_violation(const State& state, int rank, int phase, int peer) const;
  State after_carry(const State& state, int rank, int phase, int peer) const;
  int num_phases() const { return num_phases_; }
  /// The state after the thread's next step. After the last step of a rank, the rank's next epoch begins.
  State after(const State& state, int rank, size_t thread) const;
  /// One representative of the states that differ only by a rotation of the ranks; the state itself if ranks differ.
  State without_numbers(const State& state) const;

 private:
  struct Thread {
    size_t role;
    std::vector<Step> steps;
    int begin_of(int loop) const;
  };
  struct Place {
    size_t thread;
    int index = -1;  ///< -1: the rank never does the step
  };
  static constexpr int kMaxRanks = 4, kMaxPhases = 2;

  void add_role(int rank, size_t role, const std::vector<PeerSteps>& loops, bool is_last);
  void drop(int rank);
  void index_steps(int rank);
  void lay_out();
  size_t place_of(int rank, ProtocolStep::Action action, int phase, int peer) const {
    return static_cast<size_t>(((rank * 4 + static_cast<int>(action)) * kMaxPhases + phase) * kMaxRanks + peer);
  }
  int field(const State& state, int rank, int shift, int bits) const {
    return static_cast<int>(state.bits_ >> (rank * rank_bits_ + shift)) & ((1 << bits) - 1);
  }
  int steps(const State& state, int rank, size_t thread) const {
    return field(state, rank, step_shifts_[thread], step_shifts_[thread + 1] - step_shifts_[thread]);
  }
  bool is_done(const State& state, int rank, size_t thread) const {
    return steps(state, rank, thread) == static_cast<int>(threads_[rank][thread].steps.size());
  }
  int carry_shift(int rank, int phase, int peer) const {
    const int distance = (peer - rank + options_.num_ranks) % options_.num_ranks;
    return epoch_shift_ + epoch_bits_ + (phase * (options_.num_ranks - 1) + distance - 1) * carry_bits_;
  }
  /// Number of epochs whose data and flag have arrived.
  int carried(const State& state, int rank, int phase, int peer) const {
    return field(state, rank, carry_shift(rank, phase, peer), carry_bits_);
  }
  bool has_done(const State& state, int rank, int epoch, ProtocolStep::Action action, int phase, int peer) const;
  std::string overwriting(const State& state, int rank, int epoch, int phase, int peer) const;
  bool holds(const State& state, int writer, int epoch, ProtocolStep::Action action, int phase, int reader) const;

  const ModelOptions options_;
  std::vector<std::vector<Thread>> threads_;  ///< [rank][thread]
  std::array<Place, kMaxRanks * 4 * kMaxPhases * kMaxRanks> places_{};
  std::vector<int> step_shifts_{0};  ///< shifts of the threads' counters, and the end of the last counter
  int num_phases_ = 0, rank_bits_ = 0, epoch_shift_ = 0, epoch_bits_ = 0, carry_bits_ = 0;
};

}  // namespace seqtile::test
