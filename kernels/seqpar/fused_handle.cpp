// kernels/seqpar/fused_handle.cpp -- see fused_handle.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/fused_handle.h"

#include <fmt/format.h>

#include "jit/error.h"
#include "kernels/seqpar/alltoall_linear.h"
#include "kernels/seqpar/collectives.h"
#include "kernels/seqpar/context_attention.h"
#include "kernels/seqpar/context_attention_backward.h"
#include "kernels/seqpar/fused_op.h"
#include "kernels/seqpar/linear_alltoall.h"
#include "kernels/seqpar/matmul_backward.h"
#include "kernels/seqpar/norm_backward.h"

namespace seqtile::kernels::seqpar {
namespace {

ExchangeShape exchange_of(const autotune::Workload& workload) {
  if (workload.operation == "context_attention_forward") return context_attention_exchange(workload);
  if (workload.operation == "context_attention_backward") return context_backward_exchange(workload);
  if (workload.operation == "fused_alltoall_and_linear") return alltoall_linear_exchange(workload);
  if (workload.operation == "fused_linear_and_alltoall") return linear_alltoall_exchange(workload);
  if (workload.operation == "sequence_parallel_rms_norm_backward") return norm_backward_exchange(workload);
  if (is_matmul_backward(workload)) return matmul_backward_exchange(workload);
  return workload.fields.contains("k") ? linear_exchange(workload) : collective_exchange(workload);
}

ChannelNeeds channel_needs(const autotune::Workload& workload, int64_t capacity) {
  return needs_of(exchange_of(workload), capacity);
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check_length(const Channel& channel, const char* what, int64_t length) {
  if (length < 0) refuse(fmt::format("{} {} is negative; a rank without rows takes part with 0", what, length));
  if (length > channel.options().capacity)
    refuse(fmt::format("{} {} is above the channel's capacity {}; Channel::reserve() more", what, length,
                       channel.options().capacity));
}

/// Visits the arguments whose dimension `axis` is `symbol`. A call with too few tensors is the handle's to refuse.
template <class Visit>
void for_each_cut(const Handle& handle, std::span<const Tensor> tensors, size_t axis, const char* symbol,
                  const Visit& visit) {
  const std::vector<autotune::ArgSpec>& args = handle.schema().args;
  if (args.size() != tensors.size()) return;
  for (size_t i = 0; i < args.size(); ++i)
    if (axis < args[i].dims.size() && args[i].dims[axis].symbol == symbol) visit(args[i].name, tensors[i].sizes[axis]);
}

void check_columns(const Channel& channel, const autotune::Workload& workload, const Handle& handle,
                   std::span<const Tensor> tensors) {
  const int rank = channel.fabric().rank();
  for (const bool of_keys : {false, true}) {
    const char* symbol = of_keys ? "own_kv_columns" : "own_columns";
    for_each_cut(handle, tensors, 1, symbol, [&](const std::string& name, int64_t columns) {
      if (const int64_t owned = owned_columns(workload, rank, of_keys); columns != owned)
        refuse(fmt::format("argument '{}': rank {} of {} owns {} columns, the tensor has {}", name, rank,
                           channel.fabric().world_size(), owned, columns));
    });
  }
}

}  // namespace

int64_t owned_columns(const autotune::Workload& workload, int rank, bool of_keys) {
  if (workload.operation == "fused_linear_and_alltoall") return own_head_columns(workload, rank, of_keys);
  return own_columns(workload, rank);
}

ChannelOptions channel_options(const std::vector<autotune::Workload>& operations, int64_t capacity) {
  ChannelOptions options;
  options.capacity = capacity;
  int number = 0;
  for (const autotune::Workload& operation : operations) {
    const ChannelNeeds needs = channel_needs(operation, capacity);
    options.staging_bytes = std::max(options.staging_bytes, needs.staging_bytes);
    options.flags_per_source = std::max(options.flags_per_source, needs.flags_per_source);
    const autotune::Fields common = common_arguments(operation);
    const std::string name = fmt::format("operation {}", ++number);
    options.agreed.emplace_back(name, common.get_string("operation"));
    for (const auto& [field, value] : common.values())
      options.agreed.emplace_back(name + "'s " + field,
                                  std::visit([](const auto& v) { return fmt::format("{}", v); }, value));
  }
  return options;
}

void check_channel(const autotune::Workload& workload, const Channel& channel) {
  const int64_t world_size = workload.fields.get_int("world_size");
  if (world_size != channel.fabric().world_size())
    refuse(fmt::format("{}: world_size is {}, the channel's fabric has {} ranks", workload.operation, world_size,
                       channel.fabric().world_size()));
  const std::string kind = channel.fabric().kind(), fabric = workload.fields.get_string("fabric");
  if (fabric != kind)
    refuse(fmt::format("{}: fabric is {}, the channel's is {}; it is part of the key of what was tuned",
                       workload.operation, fabric, kind));
  const ChannelNeeds needs = channel_needs(workload, channel.options().capacity);
  if (needs.staging_bytes > channel.options().staging_bytes ||
      needs.flags_per_source > channel.options().flags_per_source)
    refuse(
        fmt::format("{}: it needs {} bytes of staging and {} flags of each rank for {} rows, the channel has {} and "
                    "{}; name the operation in channel_options(), or Channel::reserve() more",
                    workload.operation, needs.staging_bytes, needs.flags_per_source, channel.options().capacity,
                    channel.options().staging_bytes, channel.options().flags_per_source));
}

void check_call(const Channel& channel, const autotune::Workload& workload, const Handle& handle,
                std::span<const Tensor> tensors, int64_t length) {
  check_length(channel, "length", length);
  const int rank = channel.fabric().rank(), size = channel.fabric().world_size();
  const int64_t owned = own_rows(workload, rank, length);
  for_each_cut(handle, tensors, 0, "own_rows", [&](const std::string& name, int64_t rows) {
    if (rows != owned)
      refuse(fmt::format("argument '{}': rank {} of {} owns {} of {} rows, the tensor has {}", name, rank, size, owned,
                         length, rows));
  });
  check_columns(channel, workload, handle, tensors);
}

void check_capture(const Channel& channel, const autotune::Workload& workload, const Handle& handle,
                   std::span<const Tensor> tensors, int64_t capacity) {
  check_length(channel, "capacity", capacity);
  const int size = channel.fabric().world_size();
  const int64_t most = most_rows(layout_of(workload), capacity, size);
  for_each_cut(handle, tensors, 0, "own_rows", [&](const std::string& name, int64_t rows) {
    if (rows < most)
      refuse(fmt::format("argument '{}': a graph for {} rows of {} ranks needs {} on every rank, the tensor has {}",
                         name, capacity, size, most, rows));
  });
  check_columns(channel, workload, handle, tensors);
}

}  // namespace seqtile::kernels::seqpar
