// tests/support/ranks/collective_run.h -- collectives and fused products on several ranks, compared bit for bit.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include "autotune/call_sizes.h"
#include "jit/base/cdiv.h"
#include "seqtile/operations.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/sharded_rows.h"

namespace seqtile::testing {

constexpr int64_t kChunkRows = 16;
inline const std::vector<int64_t> kLengths = {0, 1, 5, 64, 129, 3};

inline const autotune::Registry& registry() {
  static const autotune::Registry operations = kernels::make_registry();
  return operations;
}

/// Several calls of one operation on all ranks of a world. x holds whole numbers whose sums are exact in all dtypes;
/// the weights of products are 0 and 1. The all-to-alls are named to_heads and to_sequence.
class CollectiveRun {
 public:
  CollectiveRun(const std::string& operation, autotune::Fields fields, int world_size, DType dtype,
                const std::string& reduction, std::vector<int64_t> lengths = kLengths,
                const autotune::Config* config = nullptr)
      : name_(operation),
        op_(registry().find(operation.starts_with("to_") ? "all_to_all" : operation)),
        world_size_(world_size),
        lengths_(std::move(lengths)) {
    fields.set("world_size", int64_t{world_size});
    if (operation.starts_with("to_")) fields.set("direction", operation);
    w_ = op_.normalize({op_.name, dtype, 1, fields});
    if (is_product()) {
      config_ = op_.default_config(w_, 64, target_of({}));
      config_.set("chunk_rows", cdiv(kChunkRows, config_.get_int("block_m")) * config_.get_int("block_m"));
    } else {
      config_.set("chunk_rows", kChunkRows);
      if (operation == "reduce_scatter" || operation == "all_reduce") config_.set("sum_rows", int64_t{8});
      else config_.set("push_programs", int64_t{2});
    }
    if (operation == "all_reduce") config_.set("reduction", std::string("two_shot"));
    if (!reduction.empty()) config_.set("reduction", reduction);
    if (config) config_ = *config;
    for (const int64_t length : lengths_) add(length);
  }

  /// Moves the outputs so far back that they end behind their memory.
  void shorten_outputs() {
    for (auto& rank : calls_)
      for (RankCall& call : rank) call.tensors[1].data = static_cast<std::byte*>(call.tensors[1].data) + 200;
  }

  /// Makes x part of y on all ranks: y itself, or for an all-gather the rank's own rows of y.
  void work_in_place() {
    for (size_t rank = 0; rank < calls_.size(); ++rank)
      for (size_t call = 0; call < calls_[rank].size(); ++call) {
        Tensor& x = calls_[rank][call].tensors[0];
        const Tensor& y = calls_[rank][call].tensors[1];
        const int64_t row = op_.name == "all_gather" ? first_row(static_cast<int>(rank), call) : 0;
        std::byte* to = static_cast<std::byte*>(y.data) + row * y.sizes[1] * dtype_bytes(y.dtype);
        std::memcpy(to, x.data, static_cast<size_t>(x.num_elements() * dtype_bytes(x.dtype)));
        x.data = to;
      }
  }

  /// Places x and y of one call of one rank in this memory.
  void place(size_t rank, size_t call, void* memory) {
    for (size_t i = 0; i < 2; ++i) calls_[rank][call].tensors[i].data = memory;
    y_[call * static_cast<size_t>(world_size_) + rank].tensor.data = memory;
  }

  std::unique_ptr<ir::Function> kernel(const Target& target) const { return rank_kernel(w_, config_, target); }
  /// Makes room for calls of the channel's capacity, which fixes the length of segments.
  void enlarge(ChannelOptions& options) const { testing::enlarge(options, w_, config_); }
  RankOutcome on(const RankOptions& options) { return run_rank_op(w_, config_, lengths_, options, calls_); }

  int world_size() const { return world_size_; }
  const std::string& name() const { return name_; }
  bool is_product() const { return op_.name.find("linear") != std::string::npos; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  /// The calls by rank and call.
  const std::vector<std::vector<RankCall>>& calls() const { return calls_; }
  const Tensor& w(int rank) const { return weights_[static_cast<size_t>(rank)].tensor; }
  const autotune::Workload& workload() const { return w_; }
  /// Operands by call and rank.
  const Tensor& x(size_t call, int rank) const { return x_[call * static_cast<size_t>(world_size_) + rank].tensor; }
  const Tensor& y(size_t call, int rank) const { return y_[call * static_cast<size_t>(world_size_) + rank].tensor; }
  int64_t first_row(int rank, size_t call) const { return rank * lengths_[call] / world_size_; }
  int64_t first_column(int rank) const {
    return rank * w_.fields.get_int("heads") / world_size_ * w_.fields.get_int("head_dim");
  }

 private:
  void add(int64_t length) {
    const autotune::Schema schema = op_.schema(w_);
    for (int rank = 0; rank < world_size_; ++rank) {
      RankCall call = launch_of(w_, config_, length);
      const std::vector<int64_t> symbols = op_.on_rank(w_, rank, length).symbols;
      for (const autotune::ArgSpec& arg : schema.args) {
        if (arg.name == "staging") break;  // the channel's tensors follow
        const auto make = [&](std::deque<RowMatrix>& buffers) -> Tensor& {
          const Tensor described = autotune::describe_arg(arg, schema, symbols);
          return buffers.emplace_back(w_.dtype, described.sizes[0], described.sizes[1]).tensor;
        };
        if (arg.role == autotune::ArgRole::output) call.tensors.push_back(make(y_));
        else if (arg.role == autotune::ArgRole::input) call.tensors.push_back(filled(make(x_), -8, 17));
        else if (weights_.size() == static_cast<size_t>(rank)) call.tensors.push_back(filled(make(weights_), 0, 2));
        else call.tensors.push_back(w(rank));
      }
      if (calls_.size() <= static_cast<size_t>(rank)) calls_.emplace_back();
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }
  const Tensor& filled(const Tensor& tensor, double least, uint32_t count) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      write_element(tensor, i, least + static_cast<double>(random_() % count));
    return tensor;
  }

  const std::string name_;
  const autotune::OpDef& op_;
  const int world_size_;
  const std::vector<int64_t> lengths_;
  autotune::Workload w_;
  autotune::Config config_;
  std::mt19937 random_{7};
  std::deque<RowMatrix> x_, y_, weights_;
  std::vector<std::vector<RankCall>> calls_;
};

inline double at(const Tensor& tensor, int64_t row, int64_t column) {
  return read_element(tensor, row * tensor.sizes[1] + column);
}

/// The rank that owns the row or column `i`; first(rank) is the first index of a rank.
template <class First>
int owner_of(int64_t i, First first) {
  int rank = 0;
  while (i >= first(rank + 1)) ++rank;
  return rank;
}

inline double wanted(const CollectiveRun& run, size_t call, int rank, int64_t row, int64_t column) {
  const std::string& operation = run.name();
  const int world_size = run.world_size();
  const auto first = [&](int r) { return run.first_row(r, call); };
  if (operation == "broadcast") return at(run.x(call, world_size - 1), row, column);
  if (operation == "all_gather" || operation == "fused_allgather_and_linear") {
    const int owner = owner_of(row, first);
    const Tensor& x = run.x(call, owner);
    row -= first(owner);
    return run.is_product() ? product_at(x, row, run.w(rank), column) : at(x, row, column);
  }
  if (operation == "to_heads") {
    const int owner = owner_of(row, first);
    return at(run.x(call, owner), row - first(owner), run.first_column(rank) + column);
  }
  if (operation == "to_sequence") {
    const int owner = owner_of(column, [&](int r) { return run.first_column(r); });
    return at(run.x(call, owner), first(rank) + row, column - run.first_column(owner));
  }
  const bool is_scattered = operation == "reduce_scatter" || operation == "fused_linear_and_reducescatter";
  if (is_scattered) row += first(rank);
  double sum = 0;
  for (int source = 0; source < world_size; ++source) {
    const Tensor& x = run.x(call, source);
    sum += run.is_product() ? product_at(x, row, run.w(source), column) : at(x, row, column);
  }
  return sum;
}

/// Empty, or the first wrong element of a result.
inline std::string difference(const CollectiveRun& run) {
  for (size_t call = 0; call < run.lengths().size(); ++call)
    for (int rank = 0; rank < run.world_size(); ++rank) {
      const auto want = [&](int64_t row, int64_t column) { return wanted(run, call, rank, row, column); };
      const std::string name = fmt::format("length {}, rank {}, y", run.lengths()[call], rank);
      if (std::string text = difference_from(want, run.y(call, rank), name); !text.empty()) return text;
    }
  return "";
}

/// A collective and its fields. "to_heads" and "to_sequence" are the directions of all_to_all.
struct CollectiveCase {
  std::string operation;
  autotune::Fields fields;
};

inline CollectiveRun run_of(const CollectiveCase& c, int world_size, DType dtype, const std::string& reduction = "",
                            const autotune::Config* config = nullptr) {
  return {c.operation, c.fields, world_size, dtype, reduction, kLengths, config};
}

inline void check_collective(const CollectiveCase& c, int world_size, DType dtype, const RankOptions& options,
                             const std::string& reduction = "", const autotune::Config* config = nullptr) {
  CollectiveRun run = run_of(c, world_size, dtype, reduction, config);
  INFO(c.operation << " " << reduction << ", " << world_size << " ranks, " << dtype_name(dtype) << " "
                   << (config ? config->json() : ""));
  require_success(run.on(options));
  CHECK(difference(run) == "");
}

inline std::vector<CollectiveCase> collective_cases(int world_size) {
  const autotune::Fields row{{"n", int64_t{37}}};
  std::vector<CollectiveCase> cases;
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce"}) cases.push_back({operation, row});
  cases.push_back({"broadcast", {{"n", int64_t{37}}, {"root", int64_t{world_size - 1}}}});
  for (const int64_t heads : {8, 5})
    for (const char* direction : {"to_heads", "to_sequence"})
      cases.push_back({direction, {{"heads", heads}, {"head_dim", int64_t{12}}}});
  return cases;
}

inline void check_collectives(int world_size, DType dtype, const RankOptions& options) {
  for (const CollectiveCase& c : collective_cases(world_size)) {
    if (c.operation != "all_reduce") check_collective(c, world_size, dtype, options);
    else
      for (const char* reduction : {"one_shot", "two_shot"}) check_collective(c, world_size, dtype, options, reduction);
  }
}

}  // namespace seqtile::testing
