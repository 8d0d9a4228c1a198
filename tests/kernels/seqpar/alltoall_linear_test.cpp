// tests/kernels/seqpar/alltoall_linear_test.cpp -- the product behind attention, from columns that ranks share.
// SPDX-License-Identifier: Apache-2.0
//
// The columns of a row meet in one matrix, so any operands must give the bits of one rank. The result of one rank is
// compared with f64.
#include "seqtile/ops/ranks.h"

#include <catch2/catch.hpp>
#include <deque>
#include <optional>

#include <fmt/core.h>

#include "seqtile/kernel.h"
#include "seqtile/seqpar.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/sharded_rows.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqtile::testing::configs_on;
using seqtile::testing::difference_from;
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

constexpr int64_t kHeadDim = 8, kN = 40;

struct Case {
  int world_size = 2;
  int64_t heads = 6;
  DType dtype = DType::f32;
  std::vector<int64_t> lengths = {0, 1, 5, 64, 200, 131, 3};
  std::optional<autotune::Config> config = std::nullopt;  ///< default: short chunks of the default tile

  autotune::Workload workload() const {
    return library_op("fused_alltoall_and_linear")
        .normalize(seqpar::FusedAlltoallAndLinear{
            .heads = heads, .head_dim = kHeadDim, .n = kN, .residual = true, .dtype = dtype}
                       .workload({.world_size = world_size}));
  }
};

/// Part of a matrix, with the row pitch of the matrix.
Tensor part_of(const Tensor& whole, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  Tensor part = whole;
  part.data = static_cast<std::byte*>(whole.data) + (row * whole.strides[0] + column) * dtype_bytes(whole.dtype);
  part.sizes[0] = rows, part.sizes[1] = columns;
  return part;
}

class Run {
 public:
  explicit Run(const Case& c)
      : case_(c),
        op_(library_op("fused_alltoall_and_linear")),
        w_(c.workload()),
        calls_(static_cast<size_t>(c.world_size)) {}

  RankOutcome on(const RankOptions& options) {
    const Target target = target_of(options);
    autotune::Workload of_one_rank = w_;
    of_one_rank.fields.set("world_size", int64_t{1});
    autotune::Config config = op_.default_config(of_one_rank, 32, target);  // the same tile for any number of ranks
    config.set("chunk_rows", int64_t{16});
    if (case_.config) config = *case_.config;
    for (const int64_t length : case_.lengths) add(length, config);
    return run_rank_op(w_, config, case_.lengths, options, calls_);
  }

  const std::deque<RowMatrix>& results() const { return y_; }

  std::string difference() const {
    const auto limit = op_.tolerance(w_, {});
    for (size_t call = 0; call < y_.size(); ++call) {
      const auto wanted = [&](int64_t row, int64_t column) {
        return read_element(residual_[call].tensor, row * kN + column) +
               product_at(x_[call].tensor, row, weight_[call].tensor, column);
      };
      const std::string name = fmt::format("length {}, y", case_.lengths[call]);
      if (std::string text = difference_from(wanted, y_[call].tensor, name, limit); !text.empty()) return text;
    }
    return "";
  }

 private:
  void add(int64_t length, const autotune::Config& config) {
    const seqpar::Ranks ranks = seqpar::ranks_of(w_);
    const seqpar::Heads heads{case_.heads, kHeadDim, ranks.world_size};
    const auto seed = static_cast<uint64_t>(length);
    fill_normal(x_.emplace_back(case_.dtype, length, heads.all_columns()).tensor, 0, 1, seed);
    fill_normal(weight_.emplace_back(case_.dtype, kN, heads.all_columns()).tensor, 0, 0.1, seed + 1);
    fill_normal(residual_.emplace_back(case_.dtype, length, kN).tensor, 0, 1, seed + 2);
    const Tensor& y = y_.emplace_back(case_.dtype, length, kN).tensor;
    for (int rank = 0; rank < case_.world_size; ++rank) {
      const int64_t first = ranks.first_row(rank, length);
      const int64_t rows = ranks.first_row(rank + 1, length) - first;
      RankCall call = launch_of(w_, config, length);
      call.tensors = {own_columns(x_.back().tensor, heads, rank), weight_.back().tensor,
                      part_of(residual_.back().tensor, first, rows, 0, kN), part_of(y, first, rows, 0, kN)};
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }

  /// A copy of the rank's columns: tensors of ranks must not overlap if a run moves them elsewhere.
  Tensor own_columns(const Tensor& x, const seqpar::Heads& heads, int rank) {
    RowMatrix& own = x_parts_.emplace_back(x.dtype, x.sizes[0], heads.columns(rank));
    for (int64_t row = 0; row < x.sizes[0]; ++row)
      for (int64_t i = 0; i < own.tensor.sizes[1]; ++i)
        write_element(own.tensor, row * own.tensor.sizes[1] + i,
                      read_element(x, row * x.sizes[1] + heads.first(rank) + i));
    return own.tensor;
  }

  const Case case_;
  const autotune::OpDef& op_;
  const autotune::Workload w_;
  std::deque<RowMatrix> x_, x_parts_, weight_, residual_, y_;
  std::vector<std::vector<RankCall>> calls_;
};

void check(Case c, const RankOptions& options) {
  INFO(options.device << ", " << c.world_size << " ranks, " << c.heads << " heads, " << dtype_name(c.dtype));
  Run run(c);
  require_success(run.on(options));
  REQUIRE(run.difference() == "");
  c.world_size = 1;
  Run alone(c);
  require_success(alone.on({.device = options.device.starts_with("sim:") ? options.device : "threads"}));
  for (size_t call = 0; call < c.lengths.size(); ++call)
    REQUIRE((run.results()[call].bytes == alone.results()[call].bytes));
}

}  // namespace

TEST_CASE("alltoall linear: the bits of one rank on the CPU, any heads and number of ranks", "[seqpar][sweep]") {
  for (const int world_size : {2, 3, 4, 8})
    for (const int64_t heads : {8, 5})
      check({.world_size = world_size, .heads = heads, .dtype = heads == 8 ? DType::f16 : DType::f32}, {});
}

TEST_CASE("alltoall linear: every combination on the CPU", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes"})
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const int64_t heads : {8, 5})
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
          check({.world_size = world_size, .heads = heads, .dtype = dtype}, {.device = device});
}

TEST_CASE("alltoall linear: the bits of one rank where ranks pause at random", "[seqpar]") {
  for (const char* device : {"threads", "processes", "nodes"})
    for (const int64_t heads : {6, 2})  // with two heads one of three ranks has none
      check({.world_size = 3, .heads = heads, .dtype = DType::bf16}, {.device = device, .seed = 3, .slow_rank = 1});
}

TEST_CASE("alltoall linear: the bits of one rank on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const int world_size : {2, 3})
      check({.world_size = world_size, .heads = 5, .dtype = DType::bf16, .lengths = {0, 1, 5, 70}}, {.device = device});
}

TEST_CASE("alltoall linear: the bits of one rank on ranks that share a simulated GPU, every check on",
          "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {2, 4})
      check({.world_size = world_size, .heads = 5, .dtype = DType::bf16, .lengths = {0, 1, 5, 70}}, {.device = device});
}

namespace {

/// Checks the configurations of a call.
void check_configs(Case c, const RankOptions& options) {
  for (const autotune::Config& config : configs_on(options.device, c.workload())) {
    INFO(config.json());
    c.config = config;
    Run run(c);
    require_success(run.on(options));
    CHECK(run.difference() == "");
  }
}

}  // namespace

TEST_CASE("alltoall linear: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      check_configs({.heads = 5, .dtype = dtype, .lengths = {0, 1, 5, 131}}, {.device = device});
}

TEST_CASE("alltoall linear: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : kSimulatedRanks)
    for (const int world_size : {1, 2, 3})
      for (const int64_t heads : {8, 5})
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
          check_configs({.world_size = world_size, .heads = heads, .dtype = dtype}, {.device = device});
}
