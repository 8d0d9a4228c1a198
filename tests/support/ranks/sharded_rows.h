// tests/support/ranks/sharded_rows.h -- tensors of a whole sequence, and of the rows that a rank owns.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "autotune/call/call_values.h"
#include "seqtile/seqpar.h"
#include "seqtile/tensor.h"

namespace seqtile::testing {

/// A matrix with its memory; unwritten elements are NaN. An empty matrix has an address too.
struct RowMatrix {
  RowMatrix(DType dtype, int64_t rows, int64_t columns) : tensor(make_tensor(nullptr, dtype, {rows, columns})) {
    bytes.assign(static_cast<size_t>(tensor.num_elements() * dtype_bytes(dtype)) + 64, autotune::kPoison);
    tensor.data = bytes.data();
  }
  RowMatrix(RowMatrix&&) = default;  // the memory stays where it is
  int64_t row_bytes() const { return tensor.sizes[1] * dtype_bytes(tensor.dtype); }
  std::byte* row(int64_t i) { return bytes.data() + row_bytes() * i; }
  const std::byte* row(int64_t i) const { return bytes.data() + row_bytes() * i; }
  std::vector<std::byte> bytes;
  Tensor tensor;
};

/// Empty, or the worst element of `y` that is not wanted(row, column).
template <class Wanted>
std::string difference_from(const Wanted& wanted, const Tensor& y, const std::string& name,
                            autotune::OpDef::Tolerance tolerance = {0, 0}) {
  const std::vector<double> got = read_elements(y);
  std::vector<double> want;
  for (int64_t i = 0; i < std::ssize(got); ++i) want.push_back(wanted(i / y.sizes[1], i % y.sizes[1]));
  const autotune::Difference worst = autotune::compare(got, want, tolerance);
  const int64_t columns = y.sizes[1], element = static_cast<int64_t>(worst.element);
  if (worst.is_within()) return "";
  return fmt::format("{}[{}, {}] is {}, not {}", name, element / columns, element % columns, worst.got, worst.want);
}

inline bool is_nan(const Tensor& tensor) {
  return std::ranges::all_of(read_elements(tensor), [](double value) { return std::isnan(value); });
}

inline double product_at(const Tensor& x, int64_t row, const Tensor& w, int64_t column) {
  const std::vector<double> left = read_row(x, row), right = read_row(w, column);
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

/// The rows of the sequence that a rank owns.
inline std::vector<int32_t> owned_rows(kernels::seqpar::RowLayout layout, int rank, int64_t length, int world_size) {
  std::vector<int32_t> rows(static_cast<size_t>(kernels::seqpar::num_rows(layout, rank, length, world_size)));
  kernels::seqpar::fill_positions(layout, rank, length, world_size, rows);
  return rows;
}

/// Copies some rows of a matrix into a new one, and rows of a matrix back to their places.
inline RowMatrix picked_rows(const RowMatrix& whole, const std::vector<int32_t>& rows) {
  RowMatrix part(whole.tensor.dtype, static_cast<int64_t>(rows.size()), whole.tensor.sizes[1]);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(part.row(static_cast<int64_t>(i)), whole.row(rows[i]), static_cast<size_t>(whole.row_bytes()));
  return part;
}
inline void put_rows(const Tensor& part, const std::vector<int32_t>& rows, RowMatrix& whole) {
  const auto* data = static_cast<const std::byte*>(part.data);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(whole.row(rows[i]), data + static_cast<int64_t>(i) * whole.row_bytes(),
                static_cast<size_t>(whole.row_bytes()));
}

}  // namespace seqtile::testing
