// tests/support/collective_run.h -- collectives on several ranks, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include "kernels/registry.h"
#include "kernels/seqpar/channel_args.h"
#include "kernels/seqpar/collectives.h"
#include "kernels/tensor_values.h"
#include "tests/support/rank_run.h"

namespace seqtile::testing {

constexpr int64_t kChunkRows = 16;
inline const std::vector<int64_t> kLengths = {0, 1, 5, 64, 129, 3};

struct CollectiveBuffer {
  CollectiveBuffer(DType dtype, int64_t rows, int64_t columns) : tensor(make_tensor(nullptr, dtype, {rows, columns})) {
    bytes.assign(static_cast<size_t>(tensor.num_elements() * dtype_bytes(dtype)) + 64, std::byte{0xff});
    tensor.data = bytes.data();
  }
  std::vector<std::byte> bytes;
  Tensor tensor;
};

inline const autotune::Registry& registry() {
  static const autotune::Registry operations = kernels::make_registry();
  return operations;
}

/// One operation on all ranks of a world, several calls; x holds whole numbers whose sums are exact in every dtype.
class CollectiveRun {
 public:
  CollectiveRun(const std::string& operation, autotune::Fields fields, int world_size, DType dtype,
                const std::string& reduction)
      : op_(registry().find(operation)), world_size_(world_size) {
    fields.set("world_size", int64_t{world_size});
    w_ = op_.normalize({operation, dtype, 1, fields});
    config_.set("chunk_rows", kChunkRows);
    if (operation == "reduce_scatter" || operation == "all_reduce") config_.set("sum_rows", int64_t{8});
    else config_.set("push_programs", int64_t{2});
    if (operation == "all_reduce") config_.set("reduction", reduction);
    for (const int64_t length : kLengths) add(length);
  }

  /// Outputs begin so late that they end behind their memory.
  void shorten_outputs() {
    for (auto& rank : calls_)
      for (RankCall& call : rank) call.tensors[1].data = static_cast<std::byte*>(call.tensors[1].data) + 200;
  }

  RankOutcome on(RankOptions options) {
    KernelBuilder b(op_.name);
    op_.build(b, w_, config_, target_of(options));
    const auto function = b.finish();
    const int64_t capacity = *std::ranges::max_element(kLengths);
    const auto needs = kernels::seqpar::needs_of(kernels::seqpar::collective_exchange(w_, kChunkRows), capacity);
    options.world_size = world_size_;
    options.channel.capacity = capacity;
    options.channel.staging_bytes = needs.staging_bytes, options.channel.flags_per_source = needs.flags_per_source;
    return run_ranks(*function, options, calls_);
  }

  /// By call and rank.
  const Tensor& x(size_t call, int rank) const { return x_[call * static_cast<size_t>(world_size_) + rank].tensor; }
  const Tensor& y(size_t call, int rank) const { return y_[call * static_cast<size_t>(world_size_) + rank].tensor; }
  int64_t first_row(int rank, size_t call) const { return rank * kLengths[call] / world_size_; }
  int64_t first_column(int rank) const {
    return rank * w_.fields.get_int("heads") / world_size_ * w_.fields.get_int("head_dim");
  }

 private:
  int64_t dim(const autotune::Dim& d, int rank, int64_t length) const {
    if (d.symbol == "length") return length;
    if (d.symbol == "own_rows") return (rank + 1) * length / world_size_ - rank * length / world_size_;
    if (d.symbol == "own_columns") return first_column(rank + 1) - first_column(rank);
    return d.size;
  }

  void add(int64_t length) {
    const autotune::Schema schema = op_.schema(w_);
    for (int rank = 0; rank < world_size_; ++rank) {
      const auto sizes = [&](size_t arg, int d) {
        return dim(schema.args[arg].dims[static_cast<size_t>(d)], rank, length);
      };
      x_.emplace_back(w_.dtype, sizes(0, 0), sizes(0, 1));
      y_.emplace_back(w_.dtype, sizes(1, 0), sizes(1, 1));
      for (int64_t i = 0; i < x_.back().tensor.num_elements(); ++i)
        kernels::write_element(x_.back().tensor, i, static_cast<double>(random_() % 17) - 8);
      const auto value = [&](const autotune::SizeExpr& size) { return size.value({&length, 1}); };
      const auto grid = op_.grid(w_, config_);
      RankCall call{{value(grid[0]), 1, 1}, {x_.back().tensor, y_.back().tensor}, 1};
      call.num_counters = value(op_.workspaces(w_, config_)[0].elements);
      if (calls_.size() <= static_cast<size_t>(rank)) calls_.emplace_back();
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }

  const autotune::OpDef& op_;
  const int world_size_;
  autotune::Workload w_;
  autotune::Config config_;
  std::mt19937 random_{7};
  std::deque<CollectiveBuffer> x_, y_;
  std::vector<std::vector<RankCall>> calls_;
};

inline double at(const Tensor& tensor, int64_t row, int64_t column) {
  return kernels::read_element(tensor, row * tensor.sizes[1] + column);
}

/// Which rank owns the row or column with index `i`, by where each begins.
template <class First>
int owner_of(int64_t i, First first) {
  int rank = 0;
  while (i >= first(rank + 1)) ++rank;
  return rank;
}

inline double wanted(const std::string& operation, const CollectiveRun& run, int world_size, size_t call, int rank,
                     int64_t row, int64_t column) {
  const auto first = [&](int r) { return run.first_row(r, call); };
  if (operation == "broadcast") return at(run.x(call, world_size - 1), row, column);
  if (operation == "all_gather") {
    const int owner = owner_of(row, first);
    return at(run.x(call, owner), row - first(owner), column);
  }
  if (operation == "to_heads") {
    const int owner = owner_of(row, first);
    return at(run.x(call, owner), row - first(owner), run.first_column(rank) + column);
  }
  if (operation == "to_sequence") {
    const int owner = owner_of(column, [&](int r) { return run.first_column(r); });
    return at(run.x(call, owner), first(rank) + row, column - run.first_column(owner));
  }
  double sum = 0;
  for (int source = 0; source < world_size; ++source)
    sum += at(run.x(call, source), row + (operation == "reduce_scatter" ? first(rank) : 0), column);
  return sum;
}

inline std::string difference(const std::string& operation, const CollectiveRun& run, int world_size) {
  for (size_t call = 0; call < kLengths.size(); ++call)
    for (int rank = 0; rank < world_size; ++rank) {
      const Tensor& y = run.y(call, rank);
      for (int64_t row = 0; row < y.sizes[0]; ++row)
        for (int64_t column = 0; column < y.sizes[1]; ++column) {
          const double want = wanted(operation, run, world_size, call, rank, row, column), got = at(y, row, column);
          if (got != want)
            return fmt::format("length {}, rank {}, y[{}, {}] is {}, not {}", kLengths[call], rank, row, column, got,
                               want);
        }
    }
  return "";
}

inline void check_collective(const std::string& operation, const autotune::Fields& fields, int world_size, DType dtype,
                             RankOptions options, const std::string& reduction = "") {
  const bool is_all_to_all = operation.starts_with("to_");
  autotune::Fields all = fields;
  if (is_all_to_all) all.set("direction", operation);
  CollectiveRun run(is_all_to_all ? "all_to_all" : operation, all, world_size, dtype, reduction);
  const RankOutcome outcome = run.on(std::move(options));
  INFO(operation << " " << reduction << ", " << world_size << " ranks, " << dtype_name(dtype));
  for (const std::string& error : outcome.errors) CHECK(error == "");
  for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
  CHECK(difference(operation, run, world_size) == "");
}

inline void check_collectives(int world_size, DType dtype, const RankOptions& options) {
  const autotune::Fields row{{"n", int64_t{37}}};
  for (const char* operation : {"all_gather", "reduce_scatter"})
    check_collective(operation, row, world_size, dtype, options);
  for (const char* reduction : {"one_shot", "two_shot"})
    check_collective("all_reduce", row, world_size, dtype, options, reduction);
  autotune::Fields from_last = row;
  from_last.set("root", int64_t{world_size - 1});
  check_collective("broadcast", from_last, world_size, dtype, options);
  for (const int64_t heads : {8, 5})
    for (const char* direction : {"to_heads", "to_sequence"})
      check_collective(direction, {{"heads", heads}, {"head_dim", int64_t{12}}}, world_size, dtype, options);
}

}  // namespace seqtile::testing
