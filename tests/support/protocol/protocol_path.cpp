// tests/support/protocol/protocol_path.cpp -- see protocol_path.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/protocol/protocol_path.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "seqtile/seqpar.h"
#include "tests/support/protocol/protocol_model.h"

namespace seqtile::test {
namespace {

using Action = ProtocolStep::Action;
using Kind = FlagEvent::Kind;
using Step = ProtocolModel::Step;
using kernels::seqpar::ExchangeShape;
using kernels::seqpar::PhaseShape;

/// The segments that calls of given lengths exchange.
class Segments {
 public:
  Segments(const ExchangeShape& shape, std::span<const int64_t> lengths) : shape_(shape), lengths_(lengths) {}

  int64_t rows(int64_t call, int phase, int owner, int source) const {
    const PhaseShape& moved = shape_.phases[static_cast<size_t>(shape_.first_phase + phase)];
    const int64_t length = lengths_[static_cast<size_t>(call)];
    const auto share = [&](int rank) { return num_rows(shape_.layout, rank, length, shape_.world_size); };
    switch (moved.rows) {
      case PhaseShape::Rows::of_source: return share(source);
      case PhaseShape::Rows::of_owner:
      case PhaseShape::Rows::shared: return share(owner);
      case PhaseShape::Rows::all: return moved.most_rows > 0 && length > moved.most_rows ? 0 : length;
      case PhaseShape::Rows::fixed: return moved.most_rows;
      case PhaseShape::Rows::of_root: return source == moved.root ? length : 0;
    }
    return 0;
  }
  /// The number of chunks of a segment; an empty segment has one chunk too.
  int64_t chunks(int64_t call, int phase, int owner, int source) const {
    const int64_t per_chunk = shape_.phases[static_cast<size_t>(shape_.first_phase + phase)].chunk_rows;
    return std::max<int64_t>(1, cdiv(rows(call, phase, owner, source), per_chunk));
  }
  int64_t chunks(const FlagEvent& event) const {
    const bool is_sent = event.kind == Kind::publish;
    return chunks(event.call, event.phase, is_sent ? event.peer : event.rank, is_sent ? event.rank : event.peer);
  }
  int64_t num_calls() const { return static_cast<int64_t>(lengths_.size()); }

 private:
  const ExchangeShape& shape_;
  const std::span<const int64_t> lengths_;
};

/// A run of the model along a trace with one flag for each segment.
class Path {
 public:
  Path(const Protocol& protocol, const Segments& segments, int num_ranks)
      : segments_(segments),
        model_(protocol,
               {.num_ranks = num_ranks, .num_epochs = static_cast<int>(segments.num_calls()), .peers_in_order = false}),
        seen_(static_cast<size_t>(num_ranks)) {}

  /// Empty, or the reason why the model does not take the event.
  std::string take(const FlagEvent& event) {
    if (event.kind == Kind::stray) return "no rank may do this";
    if (event.call != model_.epoch(state_, event.rank))
      return fmt::format("the rank is in call {}", model_.epoch(state_, event.rank));
    if (event.kind == Kind::end) return end(event.rank);
    const Step step{event.kind == Kind::publish ? Action::publish : Action::await, event.phase, event.peer, 0};
    return event.kind == Kind::publish ? publish(event.rank, step) : acquire(event.rank, step);
  }
  std::string end_of_trace() const {
    for (int rank = 0; rank < model_.options().num_ranks; ++rank)
      if (!model_.has_ended(state_, rank))
        return fmt::format("the trace ends, and rank {} is in call {}", rank, model_.epoch(state_, rank));
    return "";
  }

 private:
  bool is_empty(int rank, const Step& step) const {
    const bool is_sent = step.action == Action::write || step.action == Action::publish;
    return segments_.rows(model_.epoch(state_, rank), step.phase, is_sent ? step.peer : rank,
                          is_sent ? rank : step.peer) == 0;
  }
  bool has_seen(int rank, const Step& step) const {
    return seen_[static_cast<size_t>(rank)].contains({step.phase, step.peer});
  }

  std::string acquire(int rank, const Step& step) {
    if (model_.is_blocked(state_, rank, step)) return "the model has no such flag there";
    seen_[static_cast<size_t>(rank)].insert({step.phase, step.peer});
    return settle(rank);
  }

  std::string publish(int rank, const Step& wanted) {
    if (const std::string text = settle(rank); !text.empty()) return text;
    for (size_t thread = 0; thread < model_.last_thread(); ++thread) {
      ProtocolModel::State state = state_;
      const Step* step = model_.next(state, rank, thread);
      for (; step && step->action == Action::write; step = model_.next(state, rank, thread)) {
        if (const std::string text = model_.violation(state, rank, *step); !text.empty() && !is_empty(rank, *step))
          return text;
        state = model_.after(state, rank, thread);
      }
      if (!step || step->action != Action::publish || step->phase != wanted.phase || step->peer != wanted.peer)
        continue;
      state_ = model_.after(state, rank, thread);
      return "";
    }
    return "the model has the rank do something else before, or has it done this already";
  }

  /// Takes the steps of a rank that do not show, as far as possible.
  std::string settle(int rank) {
    for (bool moves = true; std::exchange(moves, false);)
      for (size_t thread = 0; thread < model_.last_thread(); ++thread)
        while (const Step* step = model_.next(state_, rank, thread)) {
          const bool is_free = is_empty(rank, *step) && step->action != Action::publish;
          if (!is_free && step->action != Action::read && !(step->action == Action::await && has_seen(rank, *step)))
            break;
          if (const std::string text = model_.violation(state_, rank, *step); !text.empty() && !is_free) return text;
          state_ = model_.after(state_, rank, thread);
          moves = true;
        }
    return "";
  }

  std::string end(int rank) {
    if (const std::string text = settle(rank); !text.empty()) return text;
    const int epoch = model_.epoch(state_, rank);
    for (size_t thread = 0; thread < model_.last_thread(); ++thread)
      if (const Step* step = model_.next(state_, rank, thread))
        return fmt::format("it has not {} rank {}, phase {}",
                           step->action == Action::await ? "seen the flag of" : "sent a flag to", step->peer,
                           step->phase);
    while (model_.epoch(state_, rank) == epoch) {
      const Step& step = *model_.next(state_, rank, model_.last_thread());
      if (!has_seen(rank, step) || model_.is_blocked(state_, rank, step))
        return fmt::format("it has not seen the flag of rank {}, phase {}", step.peer, step.phase);
      state_ = model_.after(state_, rank, model_.last_thread());
    }
    seen_[static_cast<size_t>(rank)].clear();
    return "";
  }

  const Segments& segments_;
  const ProtocolModel model_;
  ProtocolModel::State state_;
  std::vector<std::set<std::pair<int, int>>> seen_;  ///< by rank: phase and peer of flags in this epoch
};

}  // namespace

std::string FlagEvent::text() const {
  if (kind == Kind::end) return fmt::format("rank {} ends call {}", rank, call);
  const char* verb = kind == Kind::publish ? "sends to" : kind == Kind::acquire ? "sees of" : "stores astray at";
  return fmt::format("rank {} {} rank {} the flag of chunk {} in phase {}, call {}", rank, verb, peer, chunk, phase,
                     call);
}

std::string path_refusal(const Protocol& protocol, const ExchangeShape& shape, std::span<const int64_t> lengths,
                         std::span<const FlagEvent> events) {
  const Segments segments(shape, lengths);
  int64_t most_chunks = 1;
  const auto is_of_a_call = [&](const FlagEvent& event) {
    return event.call >= 0 && event.call < segments.num_calls();
  };
  for (const FlagEvent& event : events) {
    if (event.kind == Kind::stray || event.kind == Kind::end) continue;
    if (!is_of_a_call(event) || event.chunk >= segments.chunks(event)) return event.text() + ": there is no such flag";
    most_chunks = std::max(most_chunks, segments.chunks(event));
  }
  for (int64_t chunk = 0; chunk < most_chunks; ++chunk) {
    Path path(protocol, segments, shape.world_size);
    for (size_t i = 0; i < events.size(); ++i) {
      const FlagEvent& event = events[i];
      const bool has_chunk = event.kind == Kind::publish || event.kind == Kind::acquire;
      if (has_chunk && event.chunk != std::min(chunk, segments.chunks(event) - 1)) continue;
      if (const std::string why = path.take(event); !why.empty())
        return fmt::format("event {}, {}: {}", i, event.text(), why);
    }
    if (std::string why = path.end_of_trace(); !why.empty()) return why;
  }
  return "";
}

}  // namespace seqtile::test
