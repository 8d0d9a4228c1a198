// tests/kernels/seqpar/norm_backward_test.cpp -- a norm's gradients on every rank, its weight's over all rows.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/ranks.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <optional>

#include <fmt/core.h>

#include "kernels/norm/rms_norm_backward_kernel.h"
#include "seqtile/kernel.h"
#include "tests/support/kernels/kernel_table.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/sharded_rows.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqtile::testing::configs_on;
using seqtile::testing::kKernelDTypes;
using seqtile::testing::kSharedGpus;
using seqtile::testing::kSimulatedGpus;
using seqtile::testing::kSimulatedRanks;
using seqtile::testing::launch_of;
using seqtile::testing::library_op;
using seqtile::testing::RankCall;
using seqtile::testing::RankOptions;
using seqtile::testing::RankOutcome;
using seqtile::testing::require_success;
using seqtile::testing::RowMatrix;
using seqtile::testing::run_rank_op;

namespace {

constexpr seqpar::RowLayout kLayouts[] = {seqpar::RowLayout::contiguous, seqpar::RowLayout::zigzag};

struct Case {
  int world_size = 2;
  int64_t n = 72;
  bool residual = false;
  seqpar::RowLayout layout = seqpar::RowLayout::contiguous;
  DType dtype = DType::f32;
  std::vector<int64_t> lengths = {0, 1, 5, 64, 200, 131, 3};
  int64_t programs = 32;  ///< two groups of programs that add up their parts
  std::optional<autotune::Config> config = {};

  autotune::Workload workload() const {
    const seqpar::SequenceParallelRmsNormBackward op{
        .norm = {.n = n, .residual = residual, .weight_offset = 0.5, .dtype = dtype}, .layout = layout};
    return library_op("sequence_parallel_rms_norm_backward").normalize(op.workload({.world_size = world_size}));
  }
};

/// The whole sequence of one call, with dweight of each rank.
struct Sequence {
  Sequence(const Case& c, int64_t length, uint64_t seed)
      : dy(c.dtype, length, c.n),
        x(c.dtype, length, c.n),
        residual(c.dtype, length, c.n),
        dx(c.dtype, length, c.n),
        weight(c.dtype, 1, c.n) {
    fill_normal(dy.tensor, 0, 1, seed);
    fill_normal(x.tensor, 0, 1, seed + 1);
    fill_normal(residual.tensor, 0, 1, seed + 2);
    fill_normal(weight.tensor, 0.5, 0.1, seed + 3);
    for (int rank = 0; rank < c.world_size; ++rank) dweights.emplace_back(DType::f32, 1, c.n);
  }
  RowMatrix dy, x, residual, dx, weight;
  std::deque<RowMatrix> dweights;
};

class Run {
 public:
  explicit Run(const Case& c) : case_(c), op_(library_op("sequence_parallel_rms_norm_backward")), w_(c.workload()) {
    calls_.resize(static_cast<size_t>(c.world_size));
    config_ = c.config.value_or(autotune::Config{{"rows", int64_t{2}}, {"programs", c.programs}});
    for (const int64_t length : c.lengths) add(length);
  }

  RankOutcome on(const RankOptions& options) {
    RankOutcome outcome = run_rank_op(w_, config_, case_.lengths, options, calls_);
    for (size_t call = 0; call < sequences_.size(); ++call)
      for (int rank = 0; rank < case_.world_size; ++rank)
        testing::put_rows(calls_[static_cast<size_t>(rank)][call].tensors[case_.residual ? 4 : 3],
                          owned_rows(rank, case_.lengths[call]), sequences_[call].dx);
    return outcome;
  }

  const std::deque<Sequence>& sequences() const { return sequences_; }

  /// Empty, or the first element too far from f64; dweight must be the same on all ranks.
  std::string difference() const {
    for (size_t call = 0; call < sequences_.size(); ++call) {
      const Sequence& all = sequences_[call];
      for (const RowMatrix& dweight : all.dweights)
        if (dweight.bytes != all.dweights[0].bytes)
          return fmt::format("length {}: dweight differs", case_.lengths[call]);
      if (std::string text = difference_in(all, case_.lengths[call]); !text.empty()) return text;
    }
    return "";
  }

 private:
  std::vector<int32_t> owned_rows(int rank, int64_t length) const {
    return testing::owned_rows(case_.layout, rank, length, case_.world_size);
  }

  void add(int64_t length) {
    const Case& c = case_;
    Sequence& all = sequences_.emplace_back(c, length, 100 * sequences_.size() + 1);
    for (int rank = 0; rank < c.world_size; ++rank) {
      RankCall call = launch_of(w_, config_, length);
      const auto add_rows = [&](const RowMatrix& whole) {
        call.tensors.push_back(parts_.emplace_back(testing::picked_rows(whole, owned_rows(rank, length))).tensor);
      };
      add_rows(all.dy), add_rows(all.x);
      if (c.residual) add_rows(all.residual);
      call.tensors.push_back(make_tensor(all.weight.tensor.data, c.dtype, {c.n}));
      add_rows(all.dx);
      call.tensors.push_back(all.dweights[static_cast<size_t>(rank)].tensor);
      call.tensors.push_back(make_tensor(parts_.emplace_back(DType::i8, length, 1).bytes.data(), DType::i8, {length}));
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }

  std::string difference_in(const Sequence& all, int64_t length) const {
    const auto limit = op_.tolerance(w_, std::vector<int64_t>{length});
    const auto is_near = [&](double got, double want) {
      return std::abs(got - want) <= limit.absolute + limit.relative * std::abs(want);
    };
    const std::vector<double> weight = read_row(all.weight.tensor, 0);
    std::vector<double> dweight(weight.size(), 0.0);
    for (int64_t row = 0; row < length; ++row) {
      const auto want = rms_norm_backward_op::reference_row(op_of<RmsNormBackward>(w_), read_row(all.dy.tensor, row),
                                                            read_row(all.x.tensor, row), weight);
      const std::vector<double> beside = read_row(all.residual.tensor, row), got = read_row(all.dx.tensor, row);
      for (size_t i = 0; i < got.size(); ++i) {
        dweight[i] += want.terms[i];
        if (const double sum = want.dx[i] + (case_.residual ? beside[i] : 0); !is_near(got[i], sum))
          return fmt::format("length {}, dx[{}, {}] is {}, not {}", length, row, i, got[i], sum);
      }
    }
    const std::vector<double> got = read_row(all.dweights[0].tensor, 0);
    for (size_t i = 0; i < got.size(); ++i)
      if (!is_near(got[i], dweight[i]))
        return fmt::format("length {}, dweight[{}] is {}, not {}", length, i, got[i], dweight[i]);
    return "";
  }

  const Case case_;
  const autotune::OpDef& op_;
  const autotune::Workload w_;
  autotune::Config config_;
  std::deque<Sequence> sequences_;
  std::deque<RowMatrix> parts_;
  std::vector<std::vector<RankCall>> calls_;
};

void check(const Case& c, const RankOptions& options) {
  INFO(fmt::format("{}, {} ranks, {}, {}, n {}", options.device, c.world_size, dtype_name(c.dtype),
                   seqpar::kRowLayoutNames[static_cast<size_t>(c.layout)], c.n));
  Run run(c);
  require_success(run.on(options));
  REQUIRE(run.difference() == "");
}

}  // namespace

TEST_CASE("norm backward: right on the CPU, any layout and number of ranks", "[seqpar]") {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  size_t next = 0;
  for (const char* device : {"threads", "processes"})
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const auto layout : kLayouts) {
        const DType dtype = dtypes[next++ % 3];
        check({.world_size = world_size, .residual = next % 2 == 0, .layout = layout, .dtype = dtype},
              {.device = device});
      }
  check({.world_size = 3, .n = 1, .programs = 1}, {});
  check({.world_size = 3, .n = 1500, .lengths = {5, 0, 40}, .programs = 3}, {});
}

TEST_CASE("norm backward: right on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const int world_size : {2, 3})
      check({.world_size = world_size,
             .residual = world_size == 2,
             .layout = kLayouts[world_size == 2 ? 1 : 0],
             .dtype = DType::bf16,
             .lengths = {0, 1, 5, 70}},
            {.device = device});
}

TEST_CASE("norm backward: right on ranks that share a simulated GPU, every check on", "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {2, 4})
      check({.world_size = world_size,
             .layout = seqpar::RowLayout::zigzag,
             .dtype = DType::bf16,
             .lengths = {0, 1, 5, 70}},
            {.device = device});
}

namespace {

/// Checks the configurations of a call.
void check_configs(Case c, const char* device) {
  for (const autotune::Config& config : configs_on(device, c.workload())) {
    INFO(config.json());
    c.config = config;
    check(c, {.device = device});
  }
}

}  // namespace

TEST_CASE("norm backward: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const DType dtype : kKernelDTypes)
      check_configs({.residual = true, .dtype = dtype, .lengths = {0, 1, 5, 131}}, device);
}

TEST_CASE("norm backward: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : kSimulatedRanks)
    for (const int world_size : {1, 2, 3})
      for (const DType dtype : kKernelDTypes)
        for (const auto layout : kLayouts)
          check_configs({.world_size = world_size, .residual = world_size != 2, .layout = layout, .dtype = dtype},
                        device);
}
