// kernels/seqpar/fused_handle.cpp -- see fused_handle.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/fused_handle.h"

#include <cstddef>

#include <fmt/format.h>

#include "autotune/engine/overlap.h"
#include "jit/base/error.h"
#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/rank_ops.h"

namespace seqtile::kernels::seqpar {
namespace {

ChannelNeeds channel_needs(const autotune::Workload& workload, int64_t capacity) {
  return needs_of(rank_op(workload.operation).exchange(workload, nullptr), capacity);
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
      if (const int64_t owned = rank_op(workload.operation).columns(workload, rank, of_keys); columns != owned)
        refuse(fmt::format("argument '{}': rank {} of {} owns {} columns, the tensor has {}", name, rank,
                           channel.fabric().world_size(), owned, columns));
    });
  }
}

/// Visits each input of own rows that lies in an output which may hold it: work in place. Tensors of other ranks are
/// the handle's to refuse.
template <class Visit>
void for_each_in_place(const Handle& handle, std::span<const Tensor> tensors, const Visit& visit) {
  const std::vector<autotune::ArgSpec>& args = handle.schema().args;
  if (args.size() != tensors.size()) return;
  for (size_t output = 0; output < args.size(); ++output)
    for (const std::string& name : args[output].in_place)
      for (size_t input = 0; input < args.size(); ++input)
        if (args[input].name == name && args[input].dims[0].symbol == "own_rows" && tensors[input].rank == 2 &&
            tensors[output].rank == 2 && autotune::overlap(tensors[input], tensors[output]))
          visit(input, output);
}

/// Peers write all rows of an output but the rank's own: an input in any other place of it would be lost.
void check_in_place(const Channel& channel, const Handle& handle, std::span<const Tensor> tensors, int64_t length) {
  const int rank = channel.fabric().rank(), size = channel.fabric().world_size();
  for_each_in_place(handle, tensors, [&](size_t input, size_t output) {
    const Tensor& whole = tensors[output];
    const int64_t first = first_row(rank, length, size);
    const auto* own = static_cast<const std::byte*>(whole.data) + first * whole.strides[0] * dtype_bytes(whole.dtype);
    if (tensors[input].data != own)
      refuse(
          fmt::format("argument '{}': shares memory with '{}' but is not rows {} to {} of it, which rank {} of {} "
                      "owns; give it those rows, or memory of its own",
                      handle.schema().args[input].name, handle.schema().args[output].name, first,
                      first + tensors[input].sizes[0] - 1, rank, size));
  });
}

}  // namespace

ChannelOptions channel_options(const std::vector<autotune::Workload>& operations, int64_t capacity) {
  ChannelOptions options;
  options.capacity = capacity;
  for (const autotune::Workload& operation : operations) {
    const ChannelNeeds needs = channel_needs(operation, capacity);
    options.staging_bytes = std::max(options.staging_bytes, needs.staging_bytes);
    options.flags_per_source = std::max(options.flags_per_source, needs.flags_per_source);
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
  check_in_place(channel, handle, tensors, length);
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
  if (size == 1) return;
  for_each_in_place(handle, tensors, [&](size_t input, size_t output) {
    refuse(
        fmt::format("argument '{}': lies in '{}', whose rows of a rank move with the length; a graph needs memory of "
                    "its own",
                    handle.schema().args[input].name, handle.schema().args[output].name));
  });
}

}  // namespace seqtile::kernels::seqpar
