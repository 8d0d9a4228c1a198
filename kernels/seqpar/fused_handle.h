// kernels/seqpar/fused_handle.h -- a prepared fused operation of one rank, with its channel.
// SPDX-License-Identifier: Apache-2.0
//
//   Channel channel(fabric, 8192);                                                    // collective; rows at most
//   const auto up = engine->prepare(FusedAllgatherAndLinear{{.n = n, .k = k}}, channel);  // collective
//   up({.x = x, .w = w, .y = y}, length);                                              // one launch
//
// The engine's device is the fabric's. All ranks prepare and call the operations of a channel in the same order, and
// call them from one stream.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "jit/fabric/core/channel.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/rank_tensors.h"
#include "kernels/seqpar/prepare.h"

namespace seqtile::kernels::seqpar {

/// Needs of a channel for calls of these operations with up to `capacity` rows of all ranks. Errors: invalid_argument
/// on an operation that the registry lacks or that is not one over ranks.
ChannelOptions channel_options(const autotune::Registry& registry, const std::vector<autotune::Workload>& operations,
                               int64_t capacity);

/// The arguments of which a rank has its own rows or its own heads' columns.
class CutArgs {
 public:
  CutArgs() = default;
  CutArgs(const Handle& handle, const Fabric& fabric);

  /// Errors: invalid_argument where the length is above the channel's capacity, or a tensor of own rows or own columns
  /// has not those that this rank owns, or lies in an output, but not as those.
  void check_call(const Channel& channel, std::span<const Tensor> tensors, int64_t length) const;
  /// Errors: invalid_argument where the capacity is above the channel's, or a tensor of own rows or columns has fewer
  /// than this rank owns at some length up to it, or lies in an output.
  void check_capture(const Channel& channel, std::span<const Tensor> tensors, int64_t capacity) const;
  bool needs_sequence() const { return needs_sequence_; }

 private:
  struct Arg {
    size_t place;
    std::string name;
    int64_t columns = -1;  ///< own ones; -1: all
    bool has_own_rows = false;
  };
  struct InPlace {
    size_t input, output;
    std::string input_name, output_name;
  };
  void check_columns(std::span<const Tensor> tensors) const;
  const InPlace* overlapping(std::span<const Tensor> tensors) const;

  std::vector<Arg> args_;
  std::vector<InPlace> in_place_;  ///< inputs of own rows that may lie in an output of all rows
  size_t num_args_ = 0;
  bool needs_sequence_ = false;
  RowLayout layout_ = RowLayout::contiguous;
  int rank_ = 0, world_size_ = 1;
};

/// A prepared operation of one rank by its workload; FusedHandle is the same by its type.
class RankHandle {
 public:
  /// Collective, between calls, as the channel may get other memory: all ranks must want the same operation, but for
  /// their shares of the weights, the fields `shares`. Every length is served by what looks on the wire like rank 0's
  /// choice. The engine's miss policy has its say here alone: `background` serves as `nearest` does, and `tune` as
  /// `strict`, since a rank that tunes would leave its peers waiting. The channel outlives the handle.
  /// Errors: as prepare_on_all().
  RankHandle(Engine& engine, autotune::Workload workload, std::span<const std::string_view> shares, Channel& channel);
  /// Collective, between calls: takes over what the stores of the engines hold now. Errors: as before; then the plans
  /// stay as they were.
  void refresh(Engine& engine);

  /// One launch; a length of 0 takes part too. `call`: all tensors of the schema but the channel's.
  /// Errors: as Handle's call, CutArgs::check_call(), and Channel::check_stream(). What peers do wrong shows in
  /// Channel::abort_record(), and as NaN in the outputs.
  void operator()(Call call, Stream stream = {}) const;
  /// The call with the plan of `capacity`: what a graph captured there computes, bit for bit.
  void call_as(int64_t capacity, Call call, Stream stream = {}) const;
  /// Handle::capture: one launch for every length from 0 up to the call's, each replay an epoch of the channel like any
  /// call. Tensors of own rows have most_rows() of that length on every rank (row_layout.h), as a rank may own more
  /// rows at one length than at the next. All ranks must replay at the same length. Errors: as Handle::capture, and
  /// CutArgs::check_capture().
  [[nodiscard]] std::shared_ptr<const void> capture(Call call, const int64_t* device_length, Stream stream) const;
  const Handle& handle() const { return handle_; }
  bool needs_sequence() const { return cut_.needs_sequence(); }

 private:
  void add_channel(Call& call) const;

  autotune::Workload workload_;
  std::span<const std::string_view> shares_;
  Channel* channel_;
  int64_t number_;  ///< tells operations apart whose static arguments are the same
  Handle handle_;
  CutArgs cut_;
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
    call.length = length;
    if (rank_.needs_sequence()) call.add(sequence_tensor(length));
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
