// tests/kernels/seqpar/linear_alltoall_test.cpp -- the product in front of attention; ranks get their heads' columns.
// SPDX-License-Identifier: Apache-2.0
//
// An element is the same sum on each rank, so any operands must give each rank the bits of one rank's columns. The
// result of one rank is compared with f64.
#include "seqtile/ops/ranks.h"

#include <catch2/catch.hpp>
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include <fmt/core.h>

#include "seqtile/kernel.h"
#include "seqtile/seqpar.h"
#include "tests/support/kernels/kernel_table.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/sharded_rows.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqpar::GroupedHeads;
using seqtile::testing::configs_on;
using seqtile::testing::difference_from;
using seqtile::testing::kKernelDTypes;
using seqtile::testing::kSharedGpus;
using seqtile::testing::kSimulatedGpus;
using seqtile::testing::kSimulatedRanks;
using seqtile::testing::launch_of;
using seqtile::testing::library_op;
using seqtile::testing::product_at;
using seqtile::testing::RankCall;
using seqtile::testing::RankOptions;
using seqtile::testing::RankOutcome;
using seqtile::testing::require_success;
using seqtile::testing::RowMatrix;
using seqtile::testing::run_rank_op;

namespace {

constexpr int64_t kHeadDim = 8, kK = 24;

struct Case {
  int world_size = 2;
  int64_t heads = 6, kv_heads = 3;
  DType dtype = DType::f32;
  bool bias = true;
  std::vector<int64_t> lengths = {0, 1, 5, 64, 200, 131, 3};
  std::optional<autotune::Config> config = {};

  autotune::Workload workload() const {
    const seqpar::FusedLinearAndAlltoall op{
        .heads = heads, .kv_heads = kv_heads, .head_dim = kHeadDim, .k = kK, .bias = bias, .dtype = dtype};
    return library_op("fused_linear_and_alltoall").normalize(op.workload({.world_size = world_size}));
  }
  GroupedHeads grouped() const { return {heads, kv_heads, kHeadDim, world_size}; }
};

class Run {
 public:
  explicit Run(const Case& c)
      : case_(c), op_(library_op("fused_linear_and_alltoall")), w_(c.workload()), heads_(c.grouped()) {
    calls_.resize(static_cast<size_t>(c.world_size));
    for (const bool of_keys : {false, true, true}) {
      fill_normal(weights_.emplace_back(c.dtype, heads_.all_columns(of_keys), kK).tensor, 0, 0.2, weights_.size());
      fill_normal(biases_.emplace_back(c.dtype, 1, heads_.all_columns(of_keys)).tensor, 0, 1, 10 + biases_.size());
    }
  }

  RankOutcome on(const RankOptions& options) {
    const Target target = target_of(options);
    Case of_one_rank = case_;
    of_one_rank.world_size = 1;
    // The tile is the same for any number of ranks.
    autotune::Config config = op_.default_config(of_one_rank.workload(), 16, target);
    config.set("chunk_rows", std::max<int64_t>(16, config.get_int("block_m")));
    if (case_.config) config = *case_.config;
    for (const int64_t length : case_.lengths) add(length, config);
    return run_rank_op(w_, config, case_.lengths, options, calls_);
  }

  const GroupedHeads& heads() const { return heads_; }
  /// Output `i` of a call.
  const Tensor& output(int rank, size_t call, size_t i) const {
    const std::vector<Tensor>& tensors = calls_[static_cast<size_t>(rank)][call].tensors;
    return tensors[tensors.size() - 3 + i];
  }

  /// Compares a run of one rank, which has all columns, with f64.
  std::string difference() const {
    const auto limit = op_.tolerance(w_, {});
    for (size_t call = 0; call < case_.lengths.size(); ++call)
      for (size_t i = 0; i < 3; ++i) {
        const auto wanted = [&](int64_t row, int64_t column) {
          return product_at(x_[call].tensor, row, weights_[i].tensor, column) +
                 (case_.bias ? read_element(biases_[i].tensor, column) : 0);
        };
        const std::string name = fmt::format("length {}, y{}", case_.lengths[call], i + 1);
        if (std::string text = difference_from(wanted, output(0, call, i), name, limit); !text.empty()) return text;
      }
    return "";
  }

 private:
  void add(int64_t length, const autotune::Config& config) {
    const Case& c = case_;
    fill_normal(x_.emplace_back(c.dtype, length, kK).tensor, 0, 1, static_cast<uint64_t>(length));
    for (int rank = 0; rank < c.world_size; ++rank) {
      const auto rows = testing::owned_rows(seqpar::RowLayout::contiguous, rank, length, c.world_size);
      RankCall call = launch_of(w_, config, length);
      call.tensors.push_back(parts_.emplace_back(testing::picked_rows(x_.back(), rows)).tensor);
      for (const RowMatrix& weight : weights_) call.tensors.push_back(weight.tensor);
      for (const RowMatrix& bias : biases_)
        if (c.bias) call.tensors.push_back(make_tensor(bias.tensor.data, c.dtype, {bias.tensor.sizes[1]}));
      for (const bool of_keys : {false, true, true})
        call.tensors.push_back(parts_.emplace_back(c.dtype, length, heads_.columns(rank, of_keys)).tensor);
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }

  const Case case_;
  const autotune::OpDef& op_;
  const autotune::Workload w_;
  const GroupedHeads heads_;
  std::deque<RowMatrix> x_, weights_, biases_, parts_;
  std::vector<std::vector<RankCall>> calls_;
};

/// Empty, or the first row of a rank that differs from the run of one rank.
std::string different_bits(const Run& run, const Run& alone, const Case& c) {
  for (int rank = 0; rank < c.world_size; ++rank)
    for (size_t call = 0; call < c.lengths.size(); ++call)
      for (size_t i = 0; i < 3; ++i) {
        const Tensor &part = run.output(rank, call, i), &whole = alone.output(0, call, i);
        const int64_t bytes = dtype_bytes(c.dtype), first = run.heads().first(rank, i > 0);
        for (int64_t row = 0; row < c.lengths[call]; ++row)
          if (std::memcmp(static_cast<const std::byte*>(part.data) + row * part.sizes[1] * bytes,
                          static_cast<const std::byte*>(whole.data) + (row * whole.sizes[1] + first) * bytes,
                          static_cast<size_t>(part.sizes[1] * bytes)) != 0)
            return fmt::format("rank {}, length {}: row {} of y{} differs", rank, c.lengths[call], row, i + 1);
      }
  return "";
}

/// Compares the run with a run of one rank on `alone_on`.
void check(const Case& c, const RankOptions& options, const std::string& alone_on) {
  INFO(options.device << ", " << c.world_size << " ranks, " << c.heads << " heads, " << c.kv_heads << " key heads, "
                      << dtype_name(c.dtype));
  Run run(c);
  require_success(run.on(options));
  Case of_one_rank = c;
  of_one_rank.world_size = 1;
  Run alone(of_one_rank);
  require_success(alone.on({.device = alone_on}));
  REQUIRE(alone.difference() == "");
  REQUIRE(different_bits(run, alone, c) == "");
}

void check(const Case& c, const RankOptions& options) {
  check(c, options, options.device.starts_with("sim:") ? options.device : "threads");
}

/// Checks the configurations of a call.
void check_configs(Case c, const std::string& device) {
  for (const autotune::Config& config : configs_on(device, c.workload())) {
    INFO(config.json());
    c.config = config;
    check(c, {.device = device}, "sim:" + device.substr(device.find(':') + 1));
  }
}

/// Heads that ranks share evenly, groups that ranks share unevenly, and fewer key heads, or heads, than ranks.
constexpr std::pair<int64_t, int64_t> kHeads[] = {{8, 8}, {10, 5}, {12, 2}, {6, 1}, {3, 3}};

}  // namespace

TEST_CASE("linear alltoall: grouped heads are all there, each query head with its key head", "[seqpar]") {
  for (const auto& [heads, kv_heads] : kHeads)
    for (const int world_size : {1, 2, 3, 4, 8, 16}) {
      Case c{.world_size = world_size, .heads = heads, .kv_heads = kv_heads};
      const GroupedHeads grouped = c.grouped();
      int64_t query = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        CHECK(grouped.first(rank, false) == query * kHeadDim);
        for (const int64_t end = query + grouped.columns(rank, false) / kHeadDim; query < end; ++query) {
          const int64_t key = query / (heads / kv_heads) * kHeadDim, first = grouped.first(rank, true);
          CHECK((key >= first && key < first + grouped.columns(rank, true)));
        }
        CHECK(grouped.columns(rank, true) <= grouped.columns(rank, false));
        CHECK(grouped.columns(rank, true) <= grouped.most_columns(true));
      }
      CHECK(query == heads);
    }
}

TEST_CASE("linear alltoall: the bits of one rank on the CPU, any heads and number of ranks", "[seqpar][sweep]") {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  size_t next = 0;
  for (const int world_size : {2, 3, 4, 8})
    for (const auto& [heads, kv_heads] : kHeads)
      check({.world_size = world_size, .heads = heads, .kv_heads = kv_heads, .dtype = dtypes[next++ % 3]}, {});
}

TEST_CASE("linear alltoall: every combination on the CPU", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes"})
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const auto& [heads, kv_heads] : kHeads)
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
          check({.world_size = world_size, .heads = heads, .kv_heads = kv_heads, .dtype = dtype, .bias = heads != 8},
                {.device = device});
}

TEST_CASE("linear alltoall: the bits of one rank where ranks pause at random", "[seqpar]") {
  for (const char* device : {"threads", "processes", "nodes"})
    // The second pair has fewer heads than ranks.
    for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{6, 3}, {2, 1}})
      check({.world_size = 3, .heads = heads, .kv_heads = kv_heads, .dtype = DType::bf16},
            {.device = device, .seed = 3, .slow_rank = 1});
}

TEST_CASE("linear alltoall: the bits of one rank on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const int world_size : {2, 3})
      check({.world_size = world_size, .heads = 6, .kv_heads = 2, .dtype = DType::bf16, .lengths = {0, 1, 5, 70}},
            {.device = device});
}

TEST_CASE("linear alltoall: the bits of one rank on ranks that share a simulated GPU, every check on",
          "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {2, 4})
      check({.world_size = world_size, .heads = 6, .kv_heads = 2, .dtype = DType::bf16, .lengths = {0, 1, 5, 70}},
            {.device = device});
}

TEST_CASE("linear alltoall: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const DType dtype : kKernelDTypes)
      check_configs({.heads = 6, .kv_heads = 2, .dtype = dtype, .lengths = {0, 1, 5, 131}}, device);
}

TEST_CASE("linear alltoall: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : kSimulatedRanks)
    for (const int world_size : {1, 2, 3})
      for (const auto& [heads, kv_heads] : kHeads)
        for (const DType dtype : kKernelDTypes)
          check_configs({.world_size = world_size, .heads = heads, .kv_heads = kv_heads, .dtype = dtype}, device);
}

TEST_CASE("linear alltoall: bad static arguments are refused by name", "[seqpar]") {
  const auto normalized = [](const seqpar::FusedLinearAndAlltoall& op, int world_size = 1) {
    return library_op("fused_linear_and_alltoall").normalize(op.workload({.world_size = world_size}));
  };
  CHECK_THROWS_WITH(normalized({.heads = 3, .kv_heads = 2, .head_dim = 16, .k = 8}),
                    Catch::Contains("must divide heads (3)"));
  CHECK_THROWS_WITH(normalized({.heads = 2, .kv_heads = 2, .head_dim = 16, .k = 8}, 99), Catch::Contains("world_size"));
}
