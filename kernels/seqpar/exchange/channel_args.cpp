// kernels/seqpar/exchange/channel_args.cpp -- see channel_args.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/channel_args.h"

#include <algorithm>
#include <cstring>

#include "jit/abi/channel_block.h"
#include "jit/fabric/core/wait.h"
#include "seqtile/abi.h"
#include "seqtile/kernel.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Problem;

namespace {

constexpr int64_t kWordsPerFlag = channel::kFlagBytes / 8;

/// Where the tensor `name` stands in the schema.
const Tensor& find(const Problem& problem, std::string_view name) {
  const auto found = std::ranges::find(problem.schema->args, name, &autotune::ArgSpec::name);
  return problem.tensors[static_cast<size_t>(found - problem.schema->args.begin())];
}

int64_t address_of(const Tensor& tensor) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.data)); }

/// Of the segments of a phase: offset of the first one, and from one to the next.
std::pair<int64_t, int64_t> place_of(const ExchangeShape& shape, int phase, int64_t capacity) {
  const auto number = static_cast<size_t>(phase);
  const int64_t first = staging_bytes(shape, capacity, number), end = staging_bytes(shape, capacity, number + 1);
  return {first, (end - first) / num_segments(shape.phases[number], shape.world_size)};
}

/// From the place that stands for a peer's staging to the next peer's. This rank writes to its own segments there: of
/// one phase they do not overlap where the places are a segment apart.
int64_t peer_stride(const ExchangeShape& shape, int64_t capacity) {
  const bool is_single = shape.phases.size() == 1;
  return staging_bytes(shape, capacity) / (is_single ? num_segments(shape.phases[0], shape.world_size) : 1);
}

/// Behind what stands for all stagings: where the rows of phase 0 are joined.
int64_t joined_offset(const ExchangeShape& shape, int64_t capacity) {
  return 2 * 2 * staging_bytes(shape, capacity) + shape.world_size * peer_stride(shape, capacity);
}

int64_t joined_bytes(const ExchangeShape& shape, int64_t capacity) {
  return shape.presets_joined ? 2 * staging_bytes(shape, capacity) : 0;
}

void join_rows(const Problem& problem, const Tensor& staging, const ExchangeShape& shape) {
  const int64_t length = problem.symbols[0];
  const PhaseShape& phase = shape.phases[0];
  for (int parity = 0; parity < 2; ++parity)
    for (int source = 0; source < shape.world_size; ++source) {
      const int64_t rows = num_rows(shape.layout, source, length, shape.world_size);
      const int64_t first = position_of_row(shape.layout, source, 0, length, shape.world_size);
      const int64_t row_bytes = phase.columns * dtype_bytes(phase.dtype);
      std::memcpy(static_cast<std::byte*>(staging.data) + joined_offset(shape, length) +
                      parity * staging_bytes(shape, length) + first * row_bytes,
                  staged_rows(problem, shape, 0, source, rows, parity).data, static_cast<size_t>(rows * row_bytes));
    }
}

/// Both parities hold the same, so that every launch computes the same.
void fill_staging(const Problem& problem, const Tensor& staging, const ExchangeShape& shape, uint64_t seed) {
  const int64_t capacity = problem.symbols[0], parity_bytes = staging_bytes(shape, capacity);
  auto* base = static_cast<std::byte*>(staging.data);
  for (size_t phase = 0; phase < shape.phases.size(); ++phase) {
    const auto [first, stride] = place_of(shape, static_cast<int>(phase), capacity);
    const DType dtype = shape.phases[phase].dtype;
    const int64_t bytes = stride * num_segments(shape.phases[phase], shape.world_size);
    const Tensor segments = make_tensor(base + first, dtype, {bytes / dtype_bytes(dtype)});
    fill_normal(segments, 0, 1, seed + phase);
  }
  std::memcpy(base + parity_bytes, base, static_cast<size_t>(parity_bytes));
  if (shape.presets_joined) join_rows(problem, staging, shape);
}

void fill_block(const Problem& problem, const Tensor& tensor, const ExchangeShape& shape, int rank) {
  const Tensor &staging = find(problem, "staging"), &flags = find(problem, "flags");
  auto* block = static_cast<int64_t*>(tensor.data);
  std::fill_n(block, channel::num_words, 0);
  block[channel::rank] = rank;
  block[channel::capacity] = problem.symbols[0];
  block[channel::timeout_ns] = -1;
  const int64_t parity_bytes = staging_bytes(shape, problem.symbols[0]);
  const int64_t stride = peer_stride(shape, problem.symbols[0]);
  block[channel::parity_bytes] = parity_bytes;
  const int64_t flag_words = (flags.sizes[0] - kWordsPerFlag) / 2;
  block[channel::flags_per_source] = flag_words / (2 * shape.world_size * kWordsPerFlag);
  block[channel::wait_function] = static_cast<int64_t>(reinterpret_cast<intptr_t>(&fabric::wait_for_flag));
  for (int peer = 0; peer < shape.world_size; ++peer) {
    int64_t* words = &block[channel::peers + channel::num_peer_words * peer];
    // What would go to peers is kept apart from what this rank sends to itself, and waits for.
    const bool is_own = peer == rank;
    words[channel::staging_address] = address_of(staging) + (is_own ? 0 : 2 * parity_bytes + peer * stride);
    words[channel::flags_address] = address_of(flags) + (is_own ? 0 : flag_words * 8);
    words[channel::abort_address] = address_of(flags) + (flags.sizes[0] - kWordsPerFlag) * 8;
    block[channel::kept + peer] =
        address_of(staging) + (is_own && shape.presets_joined ? joined_offset(shape, problem.symbols[0]) : 0);
  }
}

}  // namespace

ChannelOptions channel_options(const ExchangeShape& shape, int64_t capacity) {
  return {.capacity = capacity,
          .staging_bytes = staging_bytes(shape, capacity),
          .flags_per_source = flags_per_source(shape, capacity)};
}

bool needs_sequence(const autotune::Schema& schema) {
  return std::ranges::none_of(schema.args, [](const autotune::ArgSpec& arg) {
    return arg.dims[0].symbol == kLength.symbol && arg.name != "sequence";
  });
}

Tensor sequence_tensor(int64_t length) {
  static char any;  // nobody reads it
  return make_tensor(&any, DType::i8, {length});
}

void add_channel_args(autotune::Schema& schema) {
  if (needs_sequence(schema))
    schema.args.push_back({.name = "sequence", .dtype = DType::i8, .dims = {"length"}, .is_size_only = true});
  schema.least_length = 0;
  schema.symbols.insert(schema.symbols.end(), {"staging_bytes", "flag_words"});
  schema.args.push_back({"staging", ArgRole::input, DType::i8, {"staging_bytes"}});
  schema.args.push_back({"flags", ArgRole::input, DType::i64, {"flag_words"}});
  schema.args.push_back(
      {.name = "channel", .dtype = DType::i64, .dims = {int64_t{channel::num_words}}, .holds_addresses = true});
  schema.scalars.push_back("number");
}

void add_channel_symbols(std::vector<int64_t>& symbols, const ExchangeShape& shape, int64_t capacity) {
  // The rank's own, and what stands for those of the peers. The abort word is behind the flags.
  symbols.push_back(joined_offset(shape, capacity) + joined_bytes(shape, capacity));
  symbols.push_back((2 * 2 * shape.world_size * flags_per_source(shape, capacity) + 1) * kWordsPerFlag);
}

ChannelViews declare_channel(KernelBuilder& b, const std::function<void()>& workspaces) {
  b.view("staging", DType::i8, {kDynamic});
  b.view("flags", DType::i64, {kDynamic});
  Var block = b.view("channel", DType::i64, {channel::num_words});
  if (workspaces) workspaces();
  Var counters = b.view("counters", DType::i32, {kDynamic});
  return {block, counters, b.scalar("number")};
}

bool fill_channel_arg(const Problem& problem, size_t arg, const ExchangeShape& shape, int rank, uint64_t seed) {
  const std::string& name = problem.schema->args[arg].name;
  const Tensor& tensor = problem.tensors[arg];
  if (name == "sequence") std::memset(tensor.data, 0, static_cast<size_t>(tensor.sizes[0]));
  else if (name == "staging") fill_staging(problem, tensor, shape, seed);
  else if (name == "flags") std::memset(tensor.data, 0, static_cast<size_t>(tensor.sizes[0] * 8));
  else if (name == "channel") fill_block(problem, tensor, shape, rank);
  else return false;
  return true;
}

Tensor staged_rows(const Problem& problem, const ExchangeShape& shape, int phase, int source, int64_t rows, int parity,
                   std::optional<DType> as) {
  const auto [first, stride] = place_of(shape, phase, problem.symbols[0]);
  const PhaseShape& what = shape.phases[static_cast<size_t>(phase)];
  const int64_t segment = num_segments(what, shape.world_size) > 1 ? source * stride : 0;
  const int64_t offset = parity * staging_bytes(shape, problem.symbols[0]) + first + segment;
  const DType dtype = as.value_or(what.dtype);
  return make_tensor(static_cast<std::byte*>(find(problem, "staging").data) + offset, dtype,
                     {rows, what.columns * dtype_bytes(what.dtype) / dtype_bytes(dtype)});
}

std::vector<double> staged_row(const Problem& problem, const ExchangeShape& shape, int phase, int source, int64_t row) {
  return read_row(staged_rows(problem, shape, phase, source, row + 1, 0), row);
}

void write_staged_row(const Problem& problem, const ExchangeShape& shape, int phase, int source, int64_t row,
                      const std::vector<double>& values) {
  for (int parity = 0; parity < 2; ++parity) {
    const Tensor segment = staged_rows(problem, shape, phase, source, row + 1, parity);
    for (size_t i = 0; i < values.size(); ++i)
      write_element(segment, row * segment.sizes[1] + static_cast<int64_t>(i), values[i]);
  }
}

}  // namespace seqtile::kernels::seqpar
