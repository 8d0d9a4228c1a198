// include/seqtile/seqpar.h -- rows and heads of ranks, and operations that are prepared on a channel.
// SPDX-License-Identifier: Apache-2.0
//
// RowLayout says which rows a rank owns. Contiguous: rank r of P owns rows [floor(r s / P), floor((r + 1) s / P)).
// Zigzag: the sequence of s rows is cut into 2 P chunks by the same rule, and rank r owns chunk r and behind it chunk 2
// P - 1 - r, so that under a causal mask all ranks have the same work. P = 2, s = 10:
//
//   chunks 0 1 | 2 3 4 | 5 6 | 7 8 9     rank 0 owns 0 1 7 8 9, rank 1 owns 2 3 4 5 6
//
// In both the rows of a rank are in the order of the sequence: what a query sees under a causal mask of another rank's
// keys are always that rank's first ones.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/abi.h"
#include "seqtile/engine.h"
#include "seqtile/fabric.h"
#include "seqtile/operation.h"

namespace seqtile {
struct Protocol;
}

namespace seqtile::kernels::seqpar {

// What the kernels of an operation exchange, inside the library.
struct ExchangeShape;

enum class RowLayout : uint8_t { contiguous, zigzag };
inline constexpr std::array<std::string_view, 2> kRowLayoutNames = {"contiguous", "zigzag"};

int64_t num_rows(RowLayout layout, int rank, int64_t length, int world_size);
/// The most rows that any rank owns at any length up to this one. In the zigzag layout they may be one more than
/// ceil(length / P).
int64_t most_rows(RowLayout layout, int64_t length, int world_size);

/// Where a rank's row stands in the sequence: what rotary embeddings, masks and labels go by.
int64_t position_of_row(RowLayout layout, int rank, int64_t row, int64_t length, int world_size);
/// Writes the positions of all rows of a rank, as `Rope` takes them. Requires: as many as the rank owns.
void fill_positions(RowLayout layout, int rank, int64_t length, int world_size, std::span<int32_t> positions);

inline constexpr std::array<std::string_view, 8> kFabricNames = {
    "threads", "processes", "sim:sm_80", "sim:sm_90a", "virtual:sm_80", "virtual:sm_90a", "cuda:sm_80", "cuda:sm_90a"};

/// The ranks that an operation runs on: their number, and the kind of fabric that joins them. Both are part of the key.
struct Ranks {
  int64_t world_size = 0;          ///< 0: not known yet
  std::string fabric = "threads";  ///< Fabric::kind()

  void fields(FieldVisitor& v) {
    v.integer("world_size", world_size, 1, channel::kMaxRanks);
    v.choice("fabric", fabric, kFabricNames);
  }
  int size() const { return static_cast<int>(world_size); }
  /// The rank whose call is measured and verified: it has the most rows where rows are contiguous.
  int longest() const { return size() - 1; }
  /// The first row of a rank's rows where rows are contiguous.
  int64_t first_row(int rank, int64_t length) const { return rank * length / world_size; }
  /// The most rows of a rank, at least 1.
  int64_t rows_of_rank(int64_t length, RowLayout layout = RowLayout::contiguous) const {
    return std::max<int64_t>(1, most_rows(layout, length, size()));
  }
  /// Ranks are threads or processes, on CPUs.
  bool are_on_cpus() const { return fabric.find(':') == std::string::npos; }
  /// Ranks that share a GPU have one launch: one kernel, so the same static arguments and the same configuration.
  bool share_a_launch() const { return fabric.starts_with("virtual:"); }
};

/// The workload of an operation on these ranks.
template <class Op>
autotune::Workload workload_on(Op op, const Ranks& ranks) {
  op.ranks = ranks;
  return workload_of(op);
}

/// The ranks that a workload names; none where it is not one over ranks.
inline Ranks ranks_of(const autotune::Workload& w) {
  return {w.fields.get_int("world_size", 0), w.fields.get_string("fabric", "")};
}
inline Ranks ranks_of(const Fabric& fabric) { return {fabric.world_size(), fabric.kind()}; }

// Tensors may have a rank's own rows, or the columns of its own heads.

inline constexpr Extent kOwnRows{"own_rows"}, kOwnColumns{"own_columns"}, kOwnKvColumns{"own_kv_columns"};

/// A tensor of a contained operation that has other sizes here.
struct Cut {
  std::string_view name;
  Extent rows = 0;
  std::optional<Extent> columns = {};  ///< absent: as they are
};

/// Passes the tensors of a contained operation on, the tensors of the list with their own sizes.
template <class Visitor>
class CutTensors : public TensorVisitor<CutTensors<Visitor>> {
 public:
  /// Requires: at most kMost cuts. A call packs its tensors through this class, so that it allocates nothing.
  CutTensors(Visitor& to, std::initializer_list<Cut> cuts) : to_(to), count_(cuts.size()) {
    std::ranges::copy(cuts, cuts_.begin());
  }
  template <class Slot>
  void visit(autotune::ArgRole role, std::string_view name, Slot& slot, Extents extents, const TensorOptions& options) {
    const auto end = cuts_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto cut = std::find_if(cuts_.begin(), end, [&](const Cut& c) { return c.name == name; });
    if (cut == end) to_.visit(role, name, slot, extents, options);
    else to_.visit(role, name, slot, {cut->rows, cut->columns.value_or(extents.begin()[1])}, options);
  }

 private:
  Visitor& to_;
  static constexpr size_t kMost = 6;
  std::array<Cut, kMost> cuts_;
  const size_t count_;
};

// Heads and GroupedHeads give the columns of a row that belong to a rank's heads. T is a number, or a Var of a kernel
// whose builder is `b`.

/// Rank r owns heads [floor(r heads / P), floor((r + 1) heads / P)), perhaps none.
struct Heads {
  int64_t heads, head_dim, ranks;
  int64_t all_columns() const { return heads * head_dim; }
  int64_t most_columns() const { return (heads + ranks - 1) / ranks * head_dim; }
  bool is_even() const { return heads % ranks == 0; }
  template <class T>
  auto first(T rank) const {
    return rank * heads / ranks * head_dim;
  }
  int64_t columns(int rank) const { return first(rank + 1) - first(rank); }
  template <class Builder, class T>
  T columns(Builder& b, T rank) const {
    return is_even() ? b.constant(DType::i64, most_columns()) : first(rank + 1) - first(rank);
  }
};

/// The columns of the rank's own heads, as a schema names them.
inline Extent own_extent(const Heads& heads) { return heads.is_even() ? Extent(heads.most_columns()) : kOwnColumns; }

/// Query heads of which groups read the same key head. A rank owns whole groups, by the floor rule; where there are
/// fewer key heads than ranks, query heads are cut so, and a rank has every key head that one of its own reads. All
/// members count columns.
class GroupedHeads {
 public:
  GroupedHeads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ranks);
  bool is_even(bool of_keys) const { return is_even_[of_keys]; }
  int64_t all_columns(bool of_keys) const { return (of_keys ? kv_heads_ : heads_) * head_dim_; }
  int64_t most_columns(bool of_keys) const { return most_columns_[of_keys]; }
  /// The first column of a rank's own heads of the queries, or of the keys.
  template <class T>
  T first(T rank, bool of_keys) const {
    return (of_keys ? first_key(rank) : first_query(rank)) * head_dim_;
  }
  int64_t columns(int64_t rank, bool of_keys) const {
    const int64_t queries = first_query(rank + 1) - first_query(rank);
    return (of_keys ? std::min(end_key(rank) - first_key(rank), queries) : queries) * head_dim_;
  }
  template <class Builder, class T>
  T columns(Builder& b, T rank, bool of_keys) const {
    if (is_even(of_keys)) return b.constant(DType::i64, most_columns(of_keys));
    T queries = first_query(rank + int64_t{1}) - first_query(rank);
    if (!of_keys) return queries * head_dim_;
    return b.min(end_key(rank) - first_key(rank), queries) * head_dim_;
  }

 private:
  template <class T>
  T first_query(T rank) const {
    return rank * (heads_ / unit_) / ranks_ * unit_;
  }
  template <class T>
  T first_key(T rank) const {
    return first_query(rank) / group_;
  }
  template <class T>
  T end_key(T rank) const {
    return (first_query(rank + int64_t{1}) + (group_ - 1)) / group_;
  }
  int64_t heads_, kv_heads_, head_dim_, ranks_, group_, unit_;  ///< unit: query heads that stay together
  std::array<bool, 2> is_even_;
  std::array<int64_t, 2> most_columns_;
};

// FusedHandle is a prepared operation of one rank, with its channel.
//
//   Channel channel(fabric, 8192);                                                    // collective; rows at most
//   const auto up = engine->prepare(FusedAllgatherAndLinear{{.n = n, .k = k}}, channel);  // collective
//   up({.x = x, .w = w, .y = y}, length);                                              // one launch
//
// The engine's device is the fabric's. All ranks prepare and call the operations of a channel in the same order, and
// call them from one stream.

/// Checks of arguments, inside the library.
class CutArgs;

/// A prepared operation of one rank by its workload; FusedHandle is the same by its type.
class RankHandle {
 public:
  /// Collective, between calls, as the channel may get other memory: all ranks must want the same operation, but for
  /// their shares of the weights, the fields `shares`. Every length is served by what looks on the wire like rank 0's
  /// choice. The engine's miss policy has its say here alone: `background` serves as `nearest` does, and `tune` as
  /// `strict`, since a rank that tunes would leave its peers waiting. The channel outlives the handle.
  /// Errors, the same on all ranks: invalid_argument (a static argument is not rank 0's; the operation is for another
  /// fabric), or as Engine::prepare and Channel::reserve.
  RankHandle(Engine& engine, autotune::Workload workload, std::span<const std::string_view> shares, Channel& channel);
  /// Collective, between calls: takes over what the stores of the engines hold now. Errors: as before; then the plans
  /// stay as they were.
  void refresh(Engine& engine);

  /// One launch; a length of 0 takes part too. `call`: all tensors of the schema but the channel's.
  /// Errors: as Handle's call, and invalid_argument where the length is above the channel's capacity, where a tensor of
  /// own rows or own columns has not those that this rank owns, or lies in an output but not as those, or where earlier
  /// calls were on another stream. What peers do wrong shows in Channel::abort_record(), and as NaN in the outputs.
  void operator()(Call call, Stream stream = {}) const;
  /// The call with the plan of `capacity`: what a graph captured there computes, bit for bit.
  void call_as(int64_t capacity, Call call, Stream stream = {}) const;
  /// Handle::capture: one launch for every length from 0 up to the call's, each replay an epoch of the channel like any
  /// call. Tensors of own rows have most_rows() of that length on every rank, as a rank may own more rows at one length
  /// than at the next. All ranks must replay at the same length. Errors: as Handle::capture, and
  /// invalid_argument where the capacity is above the channel's, or a tensor of own rows or columns has fewer than this
  /// rank owns at some length up to it, or lies in an output.
  [[nodiscard]] std::shared_ptr<const void> capture(Call call, const int64_t* device_length, Stream stream) const;
  const Handle& handle() const { return handle_; }
  /// Tensors of a call, which the caller gives: the first ones of the schema.
  size_t num_tensors() const;
  /// Sets the rows of all ranks, and adds the tensor that says it where no other one does.
  void set_length(Call& call, int64_t length) const;

 private:
  /// Adds the channel's tensors and checks the call.
  void begin(Call& call, bool is_capture, Stream stream) const;

  autotune::Workload workload_;
  std::span<const std::string_view> shares_;
  Channel* channel_;
  int64_t op_id_;  ///< tells operations apart whose static arguments are the same
  Handle handle_;
  std::shared_ptr<const CutArgs> cut_;
};

template <class Op>
class FusedHandle {
 public:
  /// Collective, as RankHandle's.
  FusedHandle(Engine& engine, const Op& op, Channel& channel)
      : op_(on(op, channel.fabric())), rank_(engine, workload_of(op_), Op::kShares, channel) {}
  /// Collective, as RankHandle's.
  void refresh(Engine& engine) { rank_.refresh(engine); }

  // RankHandle's, with the tensors of the operation. `length`: rows of all ranks.

  void operator()(const typename Op::Args& args, int64_t length, Stream stream = {}) const {
    rank_(pack(args, length), stream);
  }
  void call_as(int64_t capacity, const typename Op::Args& args, int64_t length, Stream stream = {}) const {
    rank_.call_as(capacity, pack(args, length), stream);
  }
  [[nodiscard]] std::shared_ptr<const void> capture(const typename Op::Args& args, int64_t capacity,
                                                    const int64_t* device_length, Stream stream) const {
    return rank_.capture(pack(args, capacity), device_length, stream);
  }
  const Handle& handle() const { return rank_.handle(); }

 private:
  static Op on(Op op, const Fabric& fabric) {
    op.ranks = ranks_of(fabric);
    return op;
  }
  Call pack(const typename Op::Args& args, int64_t length) const {
    Call call = kernels::pack(op_, args);
    rank_.set_length(call, length);
    return call;
  }

  Op op_;
  RankHandle rank_;
};

/// Engine::prepare(op, channel) for an operation over ranks.
template <class Op>
FusedHandle<Op> prepare_over(Engine& engine, const Op& op, Channel& channel) {
  return FusedHandle<Op>(engine, op, channel);
}

}  // namespace seqtile::kernels::seqpar
