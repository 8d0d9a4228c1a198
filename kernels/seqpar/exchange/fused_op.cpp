// kernels/seqpar/exchange/fused_op.cpp -- see fused_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/fused_op.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "jit/abi/channel_block.h"
#include "jit/base/hash.h"
#include "kernels/op/tensor_values.h"
#include "kernels/seqpar/rank_ops.h"

namespace seqtile::kernels::seqpar {

using autotune::Problem;
using autotune::Workload;

void read_rank_fields(WorkloadReader& reader) {
  reader.required("world_size", 1, channel::kMaxRanks);
  reader.choice("fabric", {"threads", "processes", "sim:sm_80", "sim:sm_90a", "virtual:sm_80", "virtual:sm_90a",
                           "cuda:sm_80", "cuda:sm_90a"});
}

int world_size_of(const Workload& w) { return static_cast<int>(w.fields.get_int("world_size")); }

bool share_a_launch(const Workload& w) { return w.fields.get_string("fabric", "").starts_with("virtual:"); }

bool has_cpu_ranks(const Workload& w) { return w.fields.get_string("fabric", "").find(':') == std::string::npos; }

int longest_rank(const Workload& w) { return world_size_of(w) - 1; }

int64_t first_row(int rank, int64_t length, int world_size) { return rank * length / world_size; }

RowLayout layout_of(const Workload& w) { return parse_row_layout(w.fields.get_string("layout", "contiguous")); }

int64_t own_rows(const Workload& w, int rank, int64_t length) {
  return num_rows(layout_of(w), rank, length, world_size_of(w));
}

int64_t own_rows(const Workload& w, int64_t length) { return own_rows(w, longest_rank(w), length); }

RowPlace place_of_row(int64_t row, int64_t length, int world_size) {
  return place_of_row(RowLayout::contiguous, row, length, world_size);
}

std::vector<double> gathered_row(const Problem& problem, const ExchangeShape& exchange, const Tensor& own,
                                 int64_t row) {
  const Workload& w = *problem.workload;
  const auto [source, local] = place_of_row(row, problem.symbols[0], world_size_of(w));
  return source == longest_rank(w) ? read_row(own, local) : staged_row(problem, exchange, 0, source, local);
}

namespace {

/// The parameters of a configuration that peers see.
constexpr const char* kWireParameters[] = {"chunk_rows", "reduction", "transfer"};

std::string wire_of(const autotune::Config& config) {
  std::string text;
  for (const char* name : kWireParameters)
    if (const auto found = config.values().find(name); found != config.values().end())
      text += std::visit([&](const auto& value) { return fmt::format(" {}={}", name, value); }, found->second);
  return text;
}

}  // namespace

autotune::Fields common_arguments(const Workload& w) {
  const std::vector<std::string>& shares = rank_op(w.operation).shares;
  const auto may_differ = [&](const std::string& name) {
    return !share_a_launch(w) && std::ranges::find(shares, name) != shares.end();
  };
  autotune::Fields common{{"operation", w.operation}, {"dtype", std::string(dtype_name(w.dtype))}};
  for (const auto& [name, value] : w.fields.values())
    if (!may_differ(name)) common.set(name, value);
  const auto is_there = [&](const char* weight) { return w.fields.get_int(weight, 0) > 0 ? 1 : 0; };
  if (std::ranges::find(shares, "n2") != shares.end())
    common.set("weights", int64_t{1} + is_there("n2") + is_there("n3"));
  return common;
}

bool look_alike(const autotune::Config& a, const autotune::Config& b) { return wire_of(a) == wire_of(b); }

int64_t identity_of(const Workload& w, const autotune::Config& config) {
  const std::string text = common_arguments(w).json() + wire_of(config);
  const auto hash = static_cast<int64_t>(std::stoull(sha256_hex(text).substr(0, 15), nullptr, 16));
  return hash >> channel::kNumberBits << channel::kNumberBits;
}

void add_sequence_arg(autotune::Schema& schema) {
  schema.args.push_back({.name = "sequence", .dtype = DType::i8, .dims = {"length"}, .is_size_only = true});
}

bool fill_sequence_arg(const Problem& problem, size_t arg) {
  if (problem.schema->args[arg].name != "sequence") return false;
  std::memset(problem.tensors[arg].data, 0, static_cast<size_t>(problem.tensors[arg].sizes[0]));
  return true;
}

Tensor sequence_tensor(int64_t length) {
  static char any;  // nobody reads it
  return make_tensor(&any, DType::i8, {length});
}

std::vector<int64_t> symbols_of(const Workload& w, int64_t length, bool is_cut, const ExchangeShape& exchange) {
  std::vector<int64_t> symbols{length};
  if (is_cut) symbols.push_back(own_rows(w, length));
  add_channel_symbols(symbols, exchange, length);
  return symbols;
}

namespace {

/// The phases of reduce_shape() for an all-reduce.
enum Phase { partials, sums, one_shot };

void write_row(const Tensor& tensor, int64_t row, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    write_element(tensor, row * tensor.strides[0] + static_cast<int64_t>(i), values[i]);
}

void fill_own_rows(const Problem& problem, const Tensor& x, uint64_t seed) {
  const Workload& w = *problem.workload;
  fill_normal(x, 0, 1, seed);
  for (int64_t row = 0; row < first_row(longest_rank(w), x.sizes[0], world_size_of(w)); ++row)
    write_row(x, row, std::vector<double>(static_cast<size_t>(x.sizes[1]), 0.0));
}

void fill_staging(const Problem& problem, const ExchangeShape& exchange,
                  const std::function<std::vector<double>(int64_t row)>& idle_row) {
  const Workload& w = *problem.workload;
  const int64_t length = problem.symbols[0], first_own = first_row(longest_rank(w), length, world_size_of(w));
  for (int64_t row = 0; row < first_own; ++row) {
    const RowPlace place = place_of_row(row, length, world_size_of(w));
    write_staged_row(problem, exchange, sums, place.rank, place.row, idle_row(row));
  }
  const auto columns = static_cast<size_t>(exchange.phases[partials].columns);
  for (int64_t row = 0; row < std::min(length, exchange.phases[one_shot].most_rows); ++row)
    for (int source = 0; source < longest_rank(w); ++source)
      write_staged_row(problem, exchange, one_shot, source, row,
                       row < first_own ? std::vector<double>(columns, 0.0)
                                       : staged_row(problem, exchange, partials, source, row - first_own));
}

}  // namespace

bool fill_all_reduce_arg(const Problem& problem, size_t arg, const ExchangeShape& exchange, uint64_t seed,
                         const std::function<std::vector<double>(int64_t row)>& idle_row) {
  const std::string& name = problem.schema->args[arg].name;
  if (name == "x") {
    fill_own_rows(problem, problem.tensors[arg], seed);
    return true;
  }
  if (!fill_channel_arg(problem, arg, exchange, longest_rank(*problem.workload), seed)) return false;
  if (name == "staging") fill_staging(problem, exchange, idle_row);
  return true;
}

}  // namespace seqtile::kernels::seqpar
