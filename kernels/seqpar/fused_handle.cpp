// kernels/seqpar/fused_handle.cpp -- see seqtile/seqpar.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/agreement.h"
#include "kernels/seqpar/cut_args.h"
#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/error.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

RankHandle::RankHandle(Engine& engine, autotune::Workload workload, std::span<const std::string_view> shares,
                       Channel& channel)
    : workload_(std::move(workload)),
      shares_(shares),
      channel_(&channel),
      op_id_(channel.add_operation(workload_.operation)),
      handle_(prepare_on_all(engine, workload_, shares_, channel, op_id_)),
      cut_(std::make_shared<const CutArgs>(handle_, channel.fabric())) {}

void RankHandle::refresh(Engine& engine) {
  fabric::agree(channel_->fabric(), "FusedHandle::refresh", {}, fabric::problem_in([&] {
                  channel_->epoch();  // waits for the launches, which use the plans
                  engine.refresh();
                }));
  handle_ = prepare_on_all(engine, workload_, shares_, *channel_, op_id_);
}

size_t RankHandle::num_tensors() const {
  return handle_.schema().args.size() - channel_->tensors().size() - (cut_->needs_sequence() ? 1 : 0);
}

void RankHandle::set_length(Call& call, int64_t length) const {
  call.length = length;
  if (cut_->needs_sequence()) call.add(sequence_tensor(length));
}

void RankHandle::begin(Call& call, bool is_capture, Stream stream) const {
  for (const Tensor& tensor : channel_->tensors()) call.add(tensor);
  const auto check = is_capture ? &CutArgs::check_capture : &CutArgs::check_call;
  name_errors(workload_.operation, [&] { ((*cut_).*check)(*channel_, call.tensors(), call.length); });
  channel_->check_stream(stream);
}

void RankHandle::operator()(Call call, Stream stream) const {
  begin(call, false, stream);
  handle_(call.tensors(), call.length, {&op_id_, 1}, stream);
  channel_->note_stream(stream);
}

void RankHandle::call_as(int64_t capacity, Call call, Stream stream) const {
  begin(call, false, stream);
  handle_.call_as(capacity, call.tensors(), call.length, {&op_id_, 1}, stream);
  channel_->note_stream(stream);
}

std::shared_ptr<const void> RankHandle::capture(Call call, const int64_t* device_length, Stream stream) const {
  begin(call, true, stream);
  auto captured = handle_.capture(call.tensors(), call.length, device_length, {&op_id_, 1}, stream);
  channel_->note_stream(stream);
  channel_->note_capture();
  return captured;
}

}  // namespace seqtile::kernels::seqpar
