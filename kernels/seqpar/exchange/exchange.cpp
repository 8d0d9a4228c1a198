// kernels/seqpar/exchange/exchange.cpp -- see exchange.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/exchange.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "jit/abi/channel_block.h"
#include "jit/abi/proxy_queue_block.h"
#include "jit/abi/timeline_events.h"
#include "jit/base/cdiv.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/abi.h"
#include "seqtile/error.h"

namespace seqtile::kernels::seqpar {

using ir::OpKind;
using Action = ProtocolStep::Action;

namespace {

constexpr int64_t kSegmentAlignment = 256;
constexpr int64_t kMixer = -7046029254386353131;  // 2^64 over the golden ratio: neighbours differ in the upper bits

bool has_all_rows(const PhaseShape& phase) {
  return phase.rows == PhaseShape::Rows::all || phase.rows == PhaseShape::Rows::of_root;
}

/// Rows that a segment has room for.
int64_t room(const ExchangeShape& shape, const PhaseShape& phase, int64_t capacity) {
  if (phase.rows == PhaseShape::Rows::fixed) return phase.most_rows;
  if (!has_all_rows(phase)) return most_rows(shape.layout, capacity, shape.world_size);
  return phase.most_rows ? std::min(capacity, phase.most_rows) : capacity;
}

int64_t segment_bytes(const PhaseShape& phase, int64_t rows) {
  return cdiv(rows * phase.columns * dtype_bytes(phase.dtype), kSegmentAlignment) * kSegmentAlignment;
}

}  // namespace

int64_t num_segments(const PhaseShape& phase, int world_size) {
  return phase.rows == PhaseShape::Rows::of_root || phase.rows == PhaseShape::Rows::shared ? 1 : world_size;
}

int64_t staging_bytes(const ExchangeShape& shape, int64_t capacity, size_t num_phases) {
  int64_t bytes = 0;
  for (const PhaseShape& phase : std::span(shape.phases).first(num_phases))
    bytes += num_segments(phase, shape.world_size) * segment_bytes(phase, room(shape, phase, capacity));
  return bytes;
}

int64_t flags_per_source(const ExchangeShape& shape, int64_t capacity) {
  int64_t most = 1;
  for (const PhaseShape& phase : shape.phases)
    most = std::max(most, cdiv(room(shape, phase, capacity), phase.chunk_rows));
  return most * static_cast<int64_t>(shape.phases.size());
}

Var rows_of(KernelBuilder& b, Var view, Operand first, Var count) {
  const int64_t columns = view.type().shape[1];
  const Operand width = columns == kDynamic ? Operand(b.size(view, 1)) : Operand(columns);
  return b.slice(view, {first, 0}, {count, width});
}

Var in_turn(KernelBuilder& b, Operand first, Operand last, Var start, const std::function<Var(Var i)>& next) {
  return b.for_loop(first, last, 1, {start}, [&](Var i, std::vector<Var> before) {
    return b.if_then(
        before[0], [&] { return std::vector{next(i)}; }, [&] { return before; });
  })[0];
}

Exchange::Exchange(KernelBuilder& b, const Protocol& protocol, ExchangeShape shape, const ChannelViews& channel,
                   Var length)
    : b_(b),
      protocol_(protocol),
      shape_(std::move(shape)),
      block_(channel.block),
      counters_(channel.counters),
      length_(length) {
  for (const PhaseShape& phase : shape_.phases)
    if (phase.is_joined &&
        (b.is_for_gpu() || phase.rows != PhaseShape::Rows::of_source || shape_.layout != RowLayout::contiguous))
      throw Error(ErrorCode::invalid_argument,
                  "transfer = join: only what ranks on CPUs gather of contiguous rows is joined; leave it out");
  b.schedule({{"in_order", int64_t{1}}});
  identity_ = b.binary(OpKind::bit_xor, channel.op_id, shape_.identity);
}

Var Exchange::rank() { return word(channel::rank); }
Var Exchange::epoch() { return b_.binary(OpKind::bit_and, word(channel::epoch) + 1, channel::kEpochMask); }
Var Exchange::parity() { return b_.binary(OpKind::bit_and, epoch(), 1); }

Var Exchange::expected() {
  Var mixed = b_.binary(OpKind::bit_xor, length_, identity_ * kMixer) * kMixer;
  Var hash = b_.binary(OpKind::bit_and, b_.binary(OpKind::shr, mixed, 40), (int64_t{1} << channel::kHashBits) - 1);
  return b_.binary(OpKind::bit_or, b_.binary(OpKind::shl, epoch(), channel::kHashBits), hash);
}

Var Exchange::word(int64_t index) { return b_.load_scalar(block_, {index}); }

Var Exchange::peer_word(Var peer, int64_t which) {
  return b_.load_scalar(block_, {peer * channel::num_peer_words + (channel::peers + which)});
}

Var Exchange::kept(Var source) { return b_.load_scalar(block_, {source + int64_t{channel::kept}}); }

Var Exchange::peer(Var i) { return (rank() + 1 + i) % shape_.world_size; }
Var Exchange::first_row(Var rank) { return rank * length_ / shape_.world_size; }
Var Exchange::num_rows(Var rank) {
  if (shape_.layout == RowLayout::contiguous) return first_row(rank + 1) - first_row(rank);
  return pieces_of(shape_.layout, rank, length_, shape_.world_size).num_rows;
}

Var Exchange::segment_rows(int phase, Var owner, Var source) {
  const PhaseShape& shape = shape_of(phase);
  if (shape.rows == PhaseShape::Rows::fixed) return b_.constant(DType::i64, shape.most_rows);
  if (shape.rows == PhaseShape::Rows::of_source) return num_rows(source);
  if (shape.rows == PhaseShape::Rows::of_owner || shape.rows == PhaseShape::Rows::shared) return num_rows(owner);
  if (shape.rows == PhaseShape::Rows::all)
    return shape.most_rows ? b_.select(length_ <= shape.most_rows, length_, 0) : length_;
  return b_.select(b_.compare(Compare::eq, source, shape.root), length_, 0);
}

Var Exchange::num_chunks(int phase, Var owner, Var source) {
  return b_.max(b_.cdiv(segment_rows(phase, owner, source), shape_of(phase).chunk_rows), 1);
}

Var Exchange::most_chunks(int phase) {
  const PhaseShape& shape = shape_of(phase);
  if (shape.rows == PhaseShape::Rows::fixed) return b_.constant(DType::i64, cdiv(shape.most_rows, shape.chunk_rows));
  Var rows = has_all_rows(shape) ? length_ : most_rows(length_);
  return b_.cdiv(rows, shape.chunk_rows);
}

// The most rows that a rank owns, as most_rows() in seqtile/seqpar.h computes it.
Var Exchange::most_rows(Var length) {
  if (shape_.layout == RowLayout::contiguous) return b_.cdiv(length, shape_.world_size);
  return b_.cdiv(length, 2 * shape_.world_size) * 2;
}

Var Exchange::room(const PhaseShape& phase) {
  if (phase.rows == PhaseShape::Rows::fixed) return b_.constant(DType::i64, phase.most_rows);
  Var capacity = word(channel::capacity);
  if (!has_all_rows(phase)) return most_rows(capacity);
  return phase.most_rows ? b_.min(capacity, phase.most_rows) : capacity;
}

Var Exchange::is_aborted() {
  return b_.compare(Compare::ne, b_.atomic_load(abort_word(rank()), {0}, "relaxed", "sys"), 0);
}

void Exchange::role(std::string_view name, const Body& body) {
  noted_.clear();
  timed(name, body);
  const auto role = std::ranges::find(protocol_.roles, name, &ProtocolRole::name);
  PeerSteps wanted;
  if (role != protocol_.roles.end())
    for (const PeerSteps& loop : role->loops) wanted.insert(wanted.end(), loop.begin(), loop.end());
  if (shape_.world_size > 1 && noted_ != wanted)  // alone, a rank takes no steps
    throw Error(ErrorCode::internal,
                fmt::format("role '{}' does not take the steps of the protocol '{}'", name, protocol_.name));
}

// A step that is taken again at once is taken for other peers.
void Exchange::note(Action action, int phase) {
  const ProtocolStep step{action, phase};
  if (noted_.empty() || noted_.back() != step) noted_.push_back(step);
}

void Exchange::last_role() {
  timed("last", [&] {
    for (int phase = 0; phase < protocol_.num_phases; ++phase)
      b_.for_each(0, shape_.world_size - 1, 1, [&](Var i) {
        Var source = peer(i);
        b_.for_each(0, num_chunks(phase, rank(), source), 1,
                    [&](Var chunk) { wait_for_flag(phase, source, chunk, b_.constant(DType::i64, int64_t{-1})); });
      });
  });
}

void Exchange::timed(std::string_view role, const Body& body) {
  role_ = timeline::role_word(role);
  record(timeline::begin);
  body();
  record(timeline::end);
  role_ = 0;
}

// One load and a branch where nobody looks.
void Exchange::record(timeline::Kind kind, int64_t phase, Operand peer, Operand chunk) {
  constexpr int64_t kWords = timeline::num_event_words;
  Var address = word(channel::timeline);
  b_.when(b_.compare(Compare::ne, address, 0), [&] {
    Var time = b_.clock(block_, {int64_t{channel::clock_function}});
    Var number = b_.atomic("add", b_.view_at(address, DType::i64, {1}), {0}, 1, "relaxed", "gpu");
    Var capacity = word(channel::timeline_events);
    Var events = b_.view_at(address + 8 * kWords, DType::i64, {capacity, kWords});
    Var place = number % capacity, program = b_.program_id(0);
    const Operand words[] = {time, epoch(), role_, int64_t{kind}, phase, peer, chunk, program};
    for (int64_t i = 0; i < kWords; ++i) b_.store_scalar(events, {place, i}, words[i]);
  });
}

void Exchange::refuse_above(int64_t most_rows) {
  b_.when(length_ > most_rows, [&] {
    raise(b_.constant(DType::i64, int64_t{channel::too_long}), rank(), b_.constant(DType::i64, int64_t{-1}), length_);
  });
}

// In a staging, or without one from the begin of any.
Var Exchange::segment_address(int phase, const Address& staging, Var source) {
  const PhaseShape& shape = shape_of(phase);
  const auto bytes = [&](const PhaseShape& p) {
    return b_.cdiv(room(p) * (p.columns * dtype_bytes(p.dtype)), kSegmentAlignment) * kSegmentAlignment;
  };
  Var parity_bytes = word(channel::parity_bytes), offset = parity() * parity_bytes;
  if (staging) offset = staging() + offset;
  for (int before = 0; before < shape_.first_phase + phase; ++before)
    offset = offset + bytes(shape_.phases[before]) * num_segments(shape_.phases[before], shape_.world_size);
  if (shape.is_joined) return offset + first_row(source) * (shape.columns * dtype_bytes(shape.dtype));
  return num_segments(shape, shape_.world_size) > 1 ? offset + source * bytes(shape) : offset;
}

// The segment of `source`: one writer, its source.
Var Exchange::segment(int phase, const Address& staging, Var source, Var rows, std::optional<DType> as) {
  const PhaseShape& shape = shape_of(phase);
  Var address = segment_address(phase, staging, source);
  const DType dtype = as.value_or(shape.dtype);
  return b_.view_at(address, dtype, {rows, shape.columns * dtype_bytes(shape.dtype) / dtype_bytes(dtype)});
}

// Joined, a rank is a peer of its own, and keeps its rows where it reads those of all.
Var Exchange::target(int phase, Var peer, Var rows, std::optional<DType> as) {
  note(Action::write, phase);
  const auto staging = [&] { return peer_word(peer, channel::staging_address); };
  if (!shape_of(phase).is_joined) return segment(phase, staging, rank(), rows, as);
  Var is_own = b_.compare(Compare::eq, peer, rank());
  return segment(
      phase, [&] { return b_.select(is_own, kept(peer), staging()); }, rank(), rows, as);
}

Var Exchange::source(int phase, Var source, Var rows, std::optional<DType> as) {
  note(Action::read, phase);
  if (is_pulled(phase))
    return segment(
        phase, [&] { return kept(source); }, source, rows, as);
  Var self = rank();
  return segment(
      phase, [&] { return peer_word(self, channel::staging_address); }, source, rows, as);
}

Var Exchange::all_rows(int phase) {
  note(Action::read, phase);
  Var first = b_.constant(DType::i64, int64_t{0});
  return segment(phase, [&] { return kept(rank()); }, first, length_, {});
}

// Of the flags of any rank, those of this epoch's parity.
Var Exchange::first_flag(int phase, Var source, Var per_source) {
  Var of_phases_before = flags_per_phase(per_source) * int64_t{shape_.first_phase + phase};
  return (parity() * shape_.world_size + source) * per_source + of_phases_before;
}

Var Exchange::flags_per_phase(Var per_source) { return per_source / static_cast<int64_t>(shape_.phases.size()); }

// The flags of `source` at `owner`: [chunks, words of a sector].
Var Exchange::flag(int phase, Var owner, Var source) {
  Var per_source = word(channel::flags_per_source), first = first_flag(phase, source, per_source);
  Var offset = first * channel::kFlagBytes, address = peer_word(owner, channel::flags_address) + offset;
  return b_.view_at(address, DType::i64, {flags_per_phase(per_source), channel::kFlagBytes / 8});
}

Var Exchange::abort_word(Var rank) { return b_.view_at(peer_word(rank, channel::abort_address), DType::i64, {1}); }

void Exchange::publish(int phase, Var peer, Var chunk) {
  note(Action::publish, phase);
  record(timeline::publish, phase, peer, chunk);
  const auto store_flag = [&] { b_.signal("set", flag(phase, peer, rank()), {chunk, 0}, expected(), "sys"); };
  if (b_.is_for_gpu()) return store_flag();  // ranks of several nodes are CPUs
  b_.when(
      is_remote(peer), [&] { hand_over(phase, peer, chunk); }, store_flag);
}

Var Exchange::is_remote(Var peer) {
  Var bit = b_.binary(OpKind::shr, word(channel::remote_ranks), peer);
  return b_.compare(Compare::ne, b_.binary(OpKind::bit_and, bit, 1), 0);
}

// To a rank of another node: the rows stand in the send buffer for its staging. The proxy thread sends them.
void Exchange::hand_over(int phase, Var peer, Var chunk) {
  const PhaseShape& shape = shape_of(phase);
  const int64_t element_bytes = dtype_bytes(shape.dtype), pitch = shape.columns * element_bytes;
  Var source = rank(), first = chunk * shape.chunk_rows, before = segment_rows(phase, peer, source) - first;
  Var rows = b_.max(b_.min(before, shape.chunk_rows), 0);
  Var of_rows_before = first * pitch, data = segment_address(phase, {}, source) + of_rows_before;
  Var row_bytes = b_.constant(DType::i64, pitch);
  if (shape.rows == PhaseShape::Rows::shared) {
    const int64_t groups = shape.columns / shape.column_group, group_bytes = shape.column_group * element_bytes;
    Var own = source * groups / shape_.world_size, next = (source + 1) * groups / shape_.world_size;
    data = data + own * group_bytes, row_bytes = (next - own) * group_bytes;
  }
  Var flag = (first_flag(phase, source, word(channel::flags_per_source)) + chunk) * channel::kFlagBytes;
  Var value = expected();

  constexpr int64_t kWords = proxy_queue::num_entry_words;
  Var address = word(channel::proxy_queue), capacity = word(channel::proxy_queue_entries);
  Var number = b_.atomic("add", b_.view_at(address, DType::i64, {1}), {0}, 1, "relaxed", "gpu");
  Var entries = b_.view_at(address + 8 * kWords, DType::i64, {capacity, kWords}), place = number % capacity;
  const Operand words[] = {peer, data, rows, row_bytes, pitch, flag, value};
  for (int64_t i = proxy_queue::peer; i < kWords; ++i)
    b_.store_scalar(entries, {place, i}, words[i - proxy_queue::peer]);
  b_.signal("set", entries, {place, int64_t{proxy_queue::ready}}, number + 1, "sys");
}

Var Exchange::await(int phase, Var source, Var first, Var last, Var tile) {
  note(Action::await, phase);
  return in_turn(b_, first, last, b_.compare(Compare::eq, first, first),
                 [&](Var chunk) { return wait_for_flag(phase, source, chunk, tile); });
}

// What this rank sends to itself comes in any case; what peers would send is there already where nobody is awaited.
Var Exchange::wait_for_flag(int phase, Var source, Var chunk, Var tile) {
  record(timeline::wait, phase, source, chunk);
  Var flags = flag(phase, rank(), source);
  Var is_there = b_.logical_and(word(channel::timeout_ns) < 0, b_.compare(Compare::ne, source, rank()));
  Var outcome = b_.if_then(
      is_there, [&] { return std::vector{b_.constant(DType::i64, int64_t{channel::arrived})}; },
      [&] {
        return std::vector{b_.await(flags, {chunk, 0}, expected(), block_)};
      })[0];
  b_.when(
      b_.compare(Compare::ne, outcome, channel::arrived),
      [&] {
        raise(outcome, source, tile, b_.atomic_load(flags, {chunk, 0}, "relaxed", "sys"));
      },
      [&] { record(timeline::arrive, phase, source, chunk); });
  return b_.compare(Compare::eq, outcome, channel::arrived);
}

// The first program of a rank that gives up says why; whoever gives up tells all ranks, the own one first.
void Exchange::raise(Var kind, Var peer, Var tile, Var seen) {
  Var is_first = b_.compare(Compare::eq, b_.cas(block_, {int64_t{channel::claim}}, 0, 1, "relaxed", "gpu"), 0);
  b_.when(is_first, [&] {
    const Var words[] = {kind, identity_, epoch(), rank(), peer, tile, expected(), seen};
    for (int64_t i = 0; i < channel::num_record_words; ++i) b_.store_scalar(block_, {channel::record + i}, words[i]);
  });
  b_.for_each(0, shape_.world_size, 1,
              [&](Var i) { b_.signal("set", abort_word((rank() + i) % shape_.world_size), {0}, rank() + 1, "sys"); });
}

void Exchange::leave(const std::vector<Var>& outputs) {
  Var before = b_.cast(b_.atomic("add", counters_, {0}, 1, "acq_rel", "gpu"), DType::i64);
  b_.when(b_.compare(Compare::eq, before, b_.num_programs(0) - 1), [&] {
    b_.store_scalar(counters_, {0}, 0);
    b_.store_scalar(block_, {int64_t{channel::epoch}}, epoch());
    b_.when(is_aborted(), [&] {
      for (const Var& output : outputs) fill_with_nan(output);
    });
  });
}

void Exchange::fill_with_nan(Var output) {
  constexpr int64_t kColumns = 256;
  Var nan = b_.full({1, kColumns}, std::numeric_limits<double>::quiet_NaN(), output.type().dtype);
  b_.for_each(0, b_.size(output, 0), 1, [&](Var row) {
    b_.for_each(0, b_.size(output, 1), kColumns, [&](Var column) { b_.store(output, {row, column}, nan); });
  });
}

namespace {

void run(Exchange& ex, const ProgramKind& kind, Var index) {
  if (kind.role.empty()) kind.body(index);
  else ex.role(kind.role, [&] { kind.body(index); });
}

}  // namespace

void run_program(KernelBuilder& b, Exchange& ex, Var id, std::span<const ProgramKind> kinds) {
  const ProgramKind& first = kinds.front();
  const auto others = [&] { run_program(b, ex, id - first.count, kinds.subspan(1)); };
  b.when(id<first.count, [&] { run(ex, first, id); }, kinds.size()> 1 ? others : std::function<void()>());
}

void run_program(KernelBuilder& b, Exchange& ex, Var id, const ProgramKind& senders, Var behind,
                 const ProgramKind& users) {
  const auto last = [&] { b.when(b.compare(Compare::eq, behind, users.count), [&] { ex.last_role(); }); };
  const auto others = [&] {
    b.when(
        behind < users.count, [&] { run(ex, users, behind); }, last);
  };
  b.when(
      id < senders.count, [&] { run(ex, senders, id); }, others);
}

}  // namespace seqtile::kernels::seqpar
