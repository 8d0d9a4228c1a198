// kernels/seqpar/fused_handle.h -- a prepared fused operation of one rank, with its channel.
// SPDX-License-Identifier: Apache-2.0
//
//   Channel channel(fabric, channel_options({attention_in.workload(), ...}, 8192));       // collective
//   const FusedHandle<FusedAllgatherAndLinear> op(*engine, attention_in, channel);        // any rank by itself
//   op({.x = x, .w = w, .y = y}, length);                                                  // one launch
//
// The engine's device is the fabric's. All ranks call the operations of a channel in the same order, from one stream.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "jit/channel.h"
#include "kernels/call.h"
#include "kernels/seqpar/fused_linear.h"

namespace seqtile::kernels::seqpar {

/// What a channel needs for calls of these operations with up to `capacity` rows of all ranks.
ChannelOptions channel_options(const std::vector<autotune::Workload>& operations, int64_t capacity);

/// Errors: invalid_argument where the channel cannot carry the operation: another world size, too little staging.
void check_channel(const autotune::Workload& workload, const Channel& channel);
/// Errors: invalid_argument where the length is above the channel's capacity, or this rank's tensor `name`, where one
/// is cut, has not the rows that it owns.
void check_rows(const Channel& channel, const char* name, int64_t rows, int64_t length);

template <class Op>
class FusedHandle {
 public:
  /// The channel outlives the handle. Errors: as Engine::prepare, and check_channel().
  FusedHandle(Engine& engine, const Op& op, Channel& channel)
      : handle_(engine.prepare(op.workload())), channel_(&channel) {
    check_channel(handle_.workload(), channel);
  }

  /// One launch; a length of 0 takes part too. Errors: as Handle's call, and check_rows(). What peers do wrong shows in
  /// Channel::abort_record(), and as NaN in the outputs.
  void operator()(const typename Op::Args& args, int64_t length, Stream stream = {}) const {
    check_rows(*channel_, Op::kCutTensor, Op::cut_rows(args), length);
    Call call = Op::pack(args, length);
    for (const Tensor& tensor : channel_->tensors()) call.add(tensor);
    handle_(call.tensors(), length, {}, stream);
  }
  const Handle& handle() const { return handle_; }

 private:
  Handle handle_;
  Channel* channel_;
};

}  // namespace seqtile::kernels::seqpar
