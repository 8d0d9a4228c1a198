// kernels/seqpar/cut_args.cpp -- see cut_args.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/cut_args.h"

#include <utility>

#include <fmt/format.h>

#include "autotune/call_sizes.h"
#include "autotune/engine/overlap.h"
#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/error.h"

namespace seqtile::kernels::seqpar {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check_length(const Channel& channel, const char* what, int64_t length) {
  if (length < 0) refuse(fmt::format("{} {} is negative; a rank without rows takes part with 0", what, length));
  if (length > channel.options().capacity)
    refuse(fmt::format("{} {} is above the channel's capacity {}; open the channel for more rows, or reserve() them",
                       what, length, channel.options().capacity));
}

}  // namespace

CutArgs::CutArgs(const Handle& handle, const Fabric& fabric)
    : num_args_(handle.schema().args.size()),
      needs_sequence_(seqpar::needs_sequence(handle.schema())),
      layout_(layout_of(handle.workload())),
      rank_(fabric.rank()),
      world_size_(fabric.world_size()) {
  const autotune::Schema& schema = handle.schema();
  const std::vector<int64_t> symbols = handle.operation().on_rank(handle.workload(), rank_, 1).symbols;
  for (size_t i = 0; i < schema.args.size(); ++i) {
    const autotune::ArgSpec& spec = schema.args[i];
    Arg arg{.place = i, .name = spec.name, .has_own_rows = spec.dims[0].symbol == kOwnRows.symbol};
    if (spec.dims.size() > 1 &&
        (spec.dims[1].symbol == kOwnColumns.symbol || spec.dims[1].symbol == kOwnKvColumns.symbol))
      arg.columns = size_of(spec.dims[1], schema, symbols);
    for (const std::string& input : spec.in_place)
      for (const Arg& before : args_)
        if (before.name == input && before.has_own_rows && !arg.has_own_rows)
          in_place_.push_back({before.place, i, input, spec.name});
    if (arg.has_own_rows || arg.columns >= 0) args_.push_back(std::move(arg));
  }
}

void CutArgs::check_columns(std::span<const Tensor> tensors) const {
  for (const Arg& arg : args_)
    if (arg.columns >= 0 && tensors[arg.place].sizes[1] != arg.columns)
      refuse(fmt::format("argument '{}': rank {} of {} owns {} columns, the tensor has {}", arg.name, rank_,
                         world_size_, arg.columns, tensors[arg.place].sizes[1]));
}

/// The first input of own rows that lies in an output which may hold it: work in place. Tensors of another shape are
/// the handle's to refuse.
const CutArgs::InPlace* CutArgs::overlapping(std::span<const Tensor> tensors) const {
  for (const InPlace& pair : in_place_) {
    const Tensor &input = tensors[pair.input], &output = tensors[pair.output];
    if (input.rank == 2 && output.rank == 2 && autotune::overlap(input, output)) return &pair;
  }
  return nullptr;
}

void CutArgs::check_call(const Channel& channel, std::span<const Tensor> tensors, int64_t length) const {
  check_length(channel, "length", length);
  if (tensors.size() != num_args_) return;  // the handle refuses the call
  const int64_t owned = num_rows(layout_, rank_, length, world_size_);
  for (const Arg& arg : args_)
    if (arg.has_own_rows && tensors[arg.place].sizes[0] != owned)
      refuse(fmt::format("argument '{}': rank {} of {} owns {} of {} rows, the tensor has {}", arg.name, rank_,
                         world_size_, owned, length, tensors[arg.place].sizes[0]));
  check_columns(tensors);
  // Peers write all rows of an output but the rank's own: an input in any other place of it would be lost.
  const InPlace* pair = overlapping(tensors);
  if (!pair) return;
  const Tensor& whole = tensors[pair->output];
  const int64_t first = rank_ * length / world_size_;
  const auto* own = static_cast<const std::byte*>(whole.data) + first * whole.strides[0] * dtype_bytes(whole.dtype);
  if (tensors[pair->input].data != own)
    refuse(fmt::format(
        "argument '{}': shares memory with '{}' but is not rows {} to {} of it, which rank {} of {} "
        "owns; give it those rows, or memory of its own",
        pair->input_name, pair->output_name, first, first + tensors[pair->input].sizes[0] - 1, rank_, world_size_));
}

void CutArgs::check_capture(const Channel& channel, std::span<const Tensor> tensors, int64_t capacity) const {
  check_length(channel, "capacity", capacity);
  if (tensors.size() != num_args_) return;
  const int64_t most = most_rows(layout_, capacity, world_size_);
  for (const Arg& arg : args_)
    if (arg.has_own_rows && tensors[arg.place].sizes[0] < most)
      refuse(fmt::format("argument '{}': a graph for {} rows of {} ranks needs {} on every rank, the tensor has {}",
                         arg.name, capacity, world_size_, most, tensors[arg.place].sizes[0]));
  check_columns(tensors);
  if (world_size_ == 1) return;
  if (const InPlace* pair = overlapping(tensors))
    refuse(
        fmt::format("argument '{}': lies in '{}', whose rows of a rank move with the length; a graph needs memory "
                    "of its own",
                    pair->input_name, pair->output_name));
}

}  // namespace seqtile::kernels::seqpar
