// tests/support/ranks/backward_run.cpp -- see backward_run.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/backward_run.h"

#include <algorithm>

#include <fmt/core.h>

#include "autotune/call/call_values.h"
#include "seqtile/ops/ranks.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/sharded_rows.h"

namespace seqtile::testing::backward {

using namespace seqtile::kernels;
using autotune::Config;

namespace {

/// A configuration of small tiles, so that a call has several programs of each role.
Config config_of(const Case& c, bool is_gpu) {
  if (c.config) return *c.config;
  Config config{{"chunk_rows", int64_t{is_gpu ? 32 : 24}}, {"push_programs", int64_t{1}}};
  const auto set = [&](const char* name, int64_t value) { config.set(name, value); };
  if (is_gpu) {
    for (const char* name : {"block_m", "block_n", "block_k", "wgrad_block_m", "wgrad_block_n", "wgrad_block_k"})
      set(name, 32);
    set("num_warps", 4), set("num_stages", 3);
  } else {
    for (const char* name : {"form", "wgrad_form"}) config.set(name, std::string("outer"));
    set("block_m", 24), set("block_n", 32), set("mr", 6), set("nr", 16), set("kc", 32);
    set("wgrad_block_m", 18), set("wgrad_block_n", 32), set("wgrad_mr", 6), set("wgrad_nr", 16), set("wgrad_kc", 16);
  }
  if (c.is_trailing) config.set("order", std::string("rotate"));
  return config;
}

/// sum += a b, or sum += a^T b.
void add_product(std::vector<float>& sum, const Matrix& a, const Matrix& b, bool transposes_a) {
  const int64_t rows = transposes_a ? a.columns : a.rows, depth = transposes_a ? a.rows : a.columns;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < depth; ++i)
      if (const float factor = transposes_a ? a.at(i, row) : a.at(row, i); factor != 0)
        for (int64_t column = 0; column < b.columns; ++column)
          sum[static_cast<size_t>(row * b.columns + column)] += factor * b.at(i, column);
}

std::string difference_of(Matrix& got, int64_t first_row, const std::vector<float>& want, const std::string& name) {
  const float* wanted = want.data() + first_row * got.columns;
  return difference_from([&](int64_t row, int64_t column) { return wanted[row * got.columns + column]; }, got.tensor(),
                         name);
}

}  // namespace

autotune::Workload Case::workload() const {
  const int64_t n2 = n.size() > 1 ? n[1] : 0, n3 = n.size() > 2 ? n[2] : 0;
  if (is_trailing)
    return seqpar::SequenceParallelTrailingMatmulBackward{n[0], k, accumulate, f32_gradient, dtype}.workload(
        {.world_size = world_size});
  return seqpar::SequenceParallelLeadingMatmulBackward{n[0], n2, n3, k, accumulate, f32_gradient, DType::f32, dtype}
      .workload({.world_size = world_size});
}

Matrix::Matrix(int64_t rows, int64_t columns, DType dtype) : rows(rows), columns(columns), dtype(dtype) {
  bytes.assign(static_cast<size_t>(rows * columns * dtype_bytes(dtype)) + 64, autotune::kPoison);
}

Matrix::Matrix(int64_t rows, int64_t columns, DType dtype, std::mt19937& random) : Matrix(rows, columns, dtype) {
  for (int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(static_cast<float>(random() % 8 == 0));
    write_element(tensor(), i, values.back());
  }
}

Tensor Matrix::part(int64_t first, int64_t count) {
  return make_tensor(bytes.data() + first * columns * dtype_bytes(dtype), dtype, {count, columns});
}

Launch::Launch(const Case& c, int64_t length, std::deque<std::vector<Matrix>>& weights, std::mt19937& random)
    : case_(c), length_(length), weights_(weights), cut_(length, c.is_trailing ? c.n[0] : c.k, c.dtype, random) {
  for (int rank = 0; rank < c.world_size; ++rank) {
    auto& whole = whole_.emplace_back();
    auto& dw = dw_.emplace_back();
    for (const int64_t n : c.n) {
      whole.emplace_back(length, c.is_trailing ? c.k : n, c.dtype, random);
      const DType dw_dtype = c.f32_gradient ? DType::f32 : c.dtype;
      dw.push_back(c.accumulate ? Matrix(n, c.k, dw_dtype, random) : Matrix(n, c.k, dw_dtype));
    }
    dx_.emplace_back(c.is_trailing ? length : rows_of(rank), c.k, c.dtype);
  }
}

std::vector<Tensor> Launch::tensors(size_t rank) {
  std::vector<Tensor> w, whole, dw, all;
  for (size_t i = 0; i < case_.n.size(); ++i) {
    w.push_back(weights_[rank][i].tensor());
    whole.push_back(whole_[rank][i].tensor());
    dw.push_back(dw_[rank][i].tensor());
  }
  const std::vector<Tensor> cut{cut_.part(first_row(static_cast<int>(rank)), rows_of(static_cast<int>(rank)))};
  const auto add = [&](const std::vector<Tensor>& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(case_.is_trailing ? cut : whole), add(w), add(case_.is_trailing ? whole : cut);
  if (case_.accumulate) add(dw);  // in place
  add({dx_[rank].tensor()}), add(dw);
  return all;
}

std::string Launch::difference() {
  std::string text;
  std::vector<float> sums(static_cast<size_t>(length_ * case_.k));
  for (size_t rank = 0; rank < dx_.size() && text.empty(); ++rank) {
    if (case_.is_trailing) std::ranges::fill(sums, 0.0F);
    const size_t first = case_.is_trailing ? rank : 0, last = case_.is_trailing ? rank + 1 : dx_.size();
    for (size_t source = first; source < last && (case_.is_trailing || rank == 0); ++source)
      for (size_t i = 0; i < case_.n.size(); ++i)
        add_product(sums, case_.is_trailing ? cut_ : whole_[source][i], weights_[source][i], false);
    const int64_t row = case_.is_trailing ? 0 : first_row(static_cast<int>(rank));
    text = difference_of(dx_[rank], row, sums, fmt::format("length {}, rank {}, dx", length_, rank));
    for (size_t i = 0; i < case_.n.size() && text.empty(); ++i) text = difference_of_dw(rank, i);
  }
  return text;
}

bool Launch::is_nan() {
  for (size_t rank = 0; rank < dx_.size(); ++rank) {
    std::vector<Matrix*> outputs{&dx_[rank]};
    for (Matrix& dw : dw_[rank]) outputs.push_back(&dw);
    for (Matrix* output : outputs)
      if (!testing::is_nan(output->tensor())) return false;
  }
  return true;
}

std::string Launch::difference_of_dw(size_t rank, size_t i) {
  Matrix& dw = dw_[rank][i];
  std::vector<float> sums = dw.values;
  sums.resize(static_cast<size_t>(dw.rows * dw.columns));
  add_product(sums, case_.is_trailing ? cut_ : whole_[rank][i], case_.is_trailing ? whole_[rank][i] : cut_, true);
  return difference_of(dw, 0, sums, fmt::format("length {}, rank {}, dw of weight {}", length_, rank, i));
}

Problem::Problem(const Case& c, const std::string& device)
    : case_(c),
      workload_(library_op(c.workload().operation).normalize(c.workload())),
      config_(config_of(c, target_of({.device = device}).is_gpu())),
      calls(static_cast<size_t>(c.world_size)) {
  std::mt19937 random(17);
  for (int rank = 0; rank < c.world_size; ++rank) {
    auto& weights = weights_.emplace_back();
    for (const int64_t n : c.n) weights.emplace_back(n, c.k, c.dtype, random);
  }
  for (const int64_t length : c.lengths) {
    Launch& launch = launches.emplace_back(case_, length, weights_, random);
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      calls[rank].push_back(launch_of(workload_, config_, length));
      calls[rank].back().tensors = launch.tensors(rank);
    }
  }
}

}  // namespace seqtile::testing::backward
