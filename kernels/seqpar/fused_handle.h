// kernels/seqpar/fused_handle.h -- a prepared fused operation of one rank, with its channel.
// SPDX-License-Identifier: Apache-2.0
//
//   Channel channel(fabric, 8192);                                                    // collective; rows at most
//   const auto up = engine->prepare(FusedAllgatherAndLinear{.n = n, .k = k}, channel);  // collective
//   up({.x = x, .w = w, .y = y}, length);                                              // one launch
//
// The engine's device is the fabric's. All ranks prepare and call the operations of a channel in the same order, and
// call them from one stream.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "jit/fabric/core/channel.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/operations/fused_linear.h"
#include "kernels/seqpar/prepare.h"

namespace seqtile::kernels::seqpar {

/// What a channel needs for calls of these operations with up to `capacity` rows of all ranks.
ChannelOptions channel_options(const std::vector<autotune::Workload>& operations, int64_t capacity);

/// Errors: invalid_argument where the operation is for another world size or kind of fabric than the channel's.
void check_channel(const autotune::Workload& workload, const Channel& channel);
/// Errors: invalid_argument where the length is above the channel's capacity, or a tensor of own rows or own columns
/// has not those that this rank owns, or lies in an output, but not as those.
void check_call(const Channel& channel, const autotune::Workload& workload, const Handle& handle,
                std::span<const Tensor> tensors, int64_t length);
/// Errors: invalid_argument where the capacity is above the channel's, or a tensor of own rows or columns has fewer
/// than this rank owns at some length up to it, or lies in an output.
void check_capture(const Channel& channel, const autotune::Workload& workload, const Handle& handle,
                   std::span<const Tensor> tensors, int64_t capacity);

template <class Op>
class FusedHandle {
 public:
  /// Collective, between calls, as the channel may get other memory: all ranks must want the same operation, but for
  /// their shares of the weights; every length is served by what looks on the wire like rank 0's choice. The engine's
  /// miss policy has its say here alone: `background` serves as `nearest` does, and `tune` as `strict`, since a rank
  /// that tunes would leave its peers waiting. The channel outlives the handle. Errors: as prepare_on_all().
  FusedHandle(Engine& engine, const Op& op, Channel& channel)
      : workload_(op.workload(ranks_of(channel.fabric()))),
        channel_(&channel),
        number_(channel.add_operation(workload_.operation)) {
    handle_ = prepare_on_all(engine, workload_, channel, number_);
  }
  /// Collective, between calls: takes over what the stores of the engines hold now. Errors: as before; then the plans
  /// stay as they were.
  void refresh(Engine& engine) {
    refresh_on_all(engine, *channel_);
    handle_ = prepare_on_all(engine, workload_, *channel_, number_);
  }

  /// One launch; a length of 0 takes part too. Errors: as Handle's call, check_call(), and Channel::check_stream().
  /// What peers do wrong shows in Channel::abort_record(), and as NaN in the outputs.
  void operator()(const typename Op::Args& args, int64_t length, Stream stream = {}) const {
    const Call call = pack(args, length);
    check_call(*channel_, workload_, handle_, call.tensors(), length);
    channel_->check_stream(stream);
    handle_(call.tensors(), length, {&number_, 1}, stream);
    channel_->note_stream(stream);
  }
  /// The call with the plan of `capacity`: what a graph captured there computes, bit for bit.
  void call_as(int64_t capacity, const typename Op::Args& args, int64_t length, Stream stream = {}) const {
    const Call call = pack(args, length);
    check_call(*channel_, workload_, handle_, call.tensors(), length);
    channel_->check_stream(stream);
    handle_.call_as(capacity, call.tensors(), length, {&number_, 1}, stream);
    channel_->note_stream(stream);
  }
  /// Handle::capture: one launch for every length from 0 up to `capacity`, each replay an epoch of the channel like any
  /// call. Tensors of own rows have most_rows() of the capacity on every rank (row_layout.h), as a rank may own more
  /// rows at one length than at the next. All ranks must replay at the same length. Errors: as Handle::capture, and
  /// check_capture().
  [[nodiscard]] std::shared_ptr<const void> capture(const typename Op::Args& args, int64_t capacity,
                                                    const int64_t* device_length, Stream stream) const {
    const Call call = pack(args, capacity);
    check_capture(*channel_, workload_, handle_, call.tensors(), capacity);
    channel_->check_stream(stream);
    auto captured = handle_.capture(call.tensors(), capacity, device_length, {&number_, 1}, stream);
    channel_->note_stream(stream);
    channel_->note_capture();
    return captured;
  }
  const Handle& handle() const { return handle_; }

 private:
  Call pack(const typename Op::Args& args, int64_t length) const {
    Call call = Op::pack(args, length);
    for (const Tensor& tensor : channel_->tensors()) call.add(tensor);
    return call;
  }

  autotune::Workload workload_;
  Channel* channel_;
  int64_t number_;  ///< tells operations apart whose static arguments are the same
  Handle handle_;
};

/// Engine::prepare(op, channel) for an operation over ranks.
template <class Op>
FusedHandle<Op> prepare_over(Engine& engine, const Op& op, Channel& channel) {
  return FusedHandle<Op>(engine, op, channel);
}

}  // namespace seqtile::kernels::seqpar
