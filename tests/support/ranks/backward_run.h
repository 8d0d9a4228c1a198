// tests/support/ranks/backward_run.h -- calls of the backward operations on several ranks, with expected results.
// SPDX-License-Identifier: Apache-2.0
//
// Operands are 0 and 1, mostly 0, so that all orders of the sums give the same bits, in bf16 too.
#pragma once
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "seqtile/op.h"
#include "tests/support/ranks/rank_op_run.h"

namespace seqtile::testing::backward {

struct Case {
  bool is_trailing;
  int world_size;
  std::vector<int64_t> n;  ///< columns of one rank's weights
  int64_t k;
  std::vector<int64_t> lengths;
  DType dtype = DType::f32;
  bool accumulate = false, f32_gradient = false;
  std::optional<autotune::Config> config = std::nullopt;  ///< absent: small tiles

  autotune::Workload workload() const;
};

struct Matrix {
  int64_t rows, columns;
  DType dtype;
  std::vector<float> values;
  std::vector<std::byte> bytes;  ///< NaN if no value is written

  Matrix(int64_t rows, int64_t columns, DType dtype);
  Matrix(int64_t rows, int64_t columns, DType dtype, std::mt19937& random);
  Tensor tensor() { return make_tensor(bytes.data(), dtype, {rows, columns}); }
  Tensor part(int64_t first, int64_t count);
  float at(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * columns + column)]; }
};

/// The tensors of one launch on all ranks. A tensor of which each rank has a part is one matrix here.
class Launch {
 public:
  Launch(const Case& c, int64_t length, std::deque<std::vector<Matrix>>& weights, std::mt19937& random);

  std::vector<Tensor> tensors(size_t rank);
  /// Empty, or the first wrong element.
  std::string difference();
  bool is_nan();

 private:
  std::string difference_of_dw(size_t rank, size_t i);
  int64_t first_row(int rank) const { return rank * length_ / case_.world_size; }
  int64_t rows_of(int rank) const { return first_row(rank + 1) - first_row(rank); }

  const Case& case_;
  const int64_t length_;
  std::deque<std::vector<Matrix>>& weights_;
  Matrix cut_;
  std::deque<std::vector<Matrix>> whole_, dw_;
  std::deque<Matrix> dx_;
};

/// The launches of a case.
class Problem {
 public:
  Problem(const Case& c, const std::string& device);

  RankOutcome on(const RankOptions& options) const {
    return run_rank_op(workload_, config_, case_.lengths, options, calls);
  }

 private:
  const Case case_;
  const autotune::Workload workload_;
  const autotune::Config config_;
  std::deque<std::vector<Matrix>> weights_;

 public:
  std::deque<Launch> launches;
  std::vector<std::vector<RankCall>> calls;
};

}  // namespace seqtile::testing::backward
