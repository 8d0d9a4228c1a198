// tools/cli/ranks/rank_reference.cpp -- see rank_reference.h.
// SPDX-License-Identifier: Apache-2.0
//
// Both operations use the reference of `linear`: on the gathered rows with this rank's weights, or on the operands of
// each rank, added up. Ranks may be processes, so that their requests and rows go through the fabric.
#include "tools/cli/ranks/rank_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "seqtile/ops/linear.h"

namespace seqtile::cli {
namespace {

using autotune::Problem;
using autotune::Workload;
using Rows = std::vector<std::vector<double>>;

const Tensor* find_tensor(const Problem& problem, const std::string& name) {
  const auto& args = problem.schema->args;
  const auto found = std::ranges::find(args, name, &autotune::ArgSpec::name);
  return found == args.end() ? nullptr : &problem.tensors[static_cast<size_t>(found - args.begin())];
}

/// Some rows of a matrix, copied together.
struct Picked {
  std::string bytes;
  Tensor tensor;
};

size_t row_bytes_of(const Tensor& matrix) { return static_cast<size_t>(matrix.sizes[1] * dtype_bytes(matrix.dtype)); }

std::string_view row_of(const Tensor& matrix, int64_t row) {
  const auto* bytes = static_cast<const char*>(matrix.data);
  return {bytes + row * matrix.strides[0] * dtype_bytes(matrix.dtype), row_bytes_of(matrix)};
}

/// `bytes` as the rows of a matrix like `matrix`.
Picked picked_rows(const Tensor& matrix, std::string bytes) {
  Picked picked{std::move(bytes), matrix};
  picked.tensor.data = picked.bytes.data();
  picked.tensor.sizes[0] = static_cast<int64_t>(picked.bytes.size() / row_bytes_of(matrix));
  picked.tensor.strides[0] = matrix.sizes[1];
  return picked;
}

template <class T>
std::string as_text(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// `count` values of `text`, from index `first` on.
template <class T>
std::vector<T> values_of(const std::string& text, size_t first, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), text.data() + first * sizeof(T), count * sizeof(T));
  return values;
}

/// The rows of the whole sequence that the ranks ask for, in the order of the ranks.
struct Asked {
  std::vector<int64_t> rows;
  size_t own_first = 0;            ///< index of this rank's first row in `rows`
  std::vector<int64_t> first_row;  ///< the first row of the sequence that each rank owns, then the end of the sequence

  size_t owner_of(int64_t row) const {
    return static_cast<size_t>(std::ranges::upper_bound(first_row, row) - first_row.begin() - 1);
  }
};

/// Exchanges the requests of all ranks. Collective. This rank owns `num_owned` rows of the sequence. With `are_own`,
/// `rows` count from the first of them.
Asked ask_ranks(Fabric& fabric, int64_t num_owned, bool are_own, std::span<const int64_t> rows) {
  std::vector<int64_t> mine{num_owned};
  mine.insert(mine.end(), rows.begin(), rows.end());
  Asked asked{.first_row = {0}};
  for (const std::string& text : fabric.all_gather(as_text<int64_t>(mine))) {
    const std::vector<int64_t> theirs = values_of<int64_t>(text, 0, text.size() / sizeof(int64_t));
    const int64_t first = asked.first_row.back();
    if (std::ssize(asked.first_row) == fabric.rank() + 1) asked.own_first = asked.rows.size();
    for (size_t i = 1; i < theirs.size(); ++i) asked.rows.push_back((are_own ? first : 0) + theirs[i]);
    asked.first_row.push_back(first + theirs[0]);
  }
  return asked;
}

/// The reference of `linear` for the rows of `x`; `problem` has the other operands by name.
Rows products(const autotune::Registry& registry, const Workload& workload, const Problem& problem, Tensor x) {
  const autotune::OpDef& linear = registry.find("linear");
  const autotune::Schema schema = linear.schema(workload);
  Problem plain{&workload, &schema, {x.sizes[0]}, {}};
  for (const autotune::ArgSpec& arg : schema.args)
    plain.tensors.push_back(arg.name == "x" ? x : *find_tensor(problem, arg.name));
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < x.sizes[0]; ++row) rows.push_back(row);
  Rows outputs;
  linear.reference(plain, rows, outputs);
  return outputs;
}

/// The product without the residual, which finish() adds.
kernels::Linear product_of(const Workload& w) {
  auto product = kernels::op_of<kernels::Linear>(w);
  product.residual = false;
  return product;
}

Rows gather_reference(const autotune::Registry& registry, const Problem& own, Fabric& fabric,
                      std::span<const int64_t> rows) {
  const Tensor& x = *find_tensor(own, "x");
  const Asked asked = ask_ranks(fabric, x.sizes[0], false, rows);
  const auto rank = static_cast<size_t>(fabric.rank());
  std::string mine;  // the rows that this rank owns, of all rows asked for
  for (const int64_t row : asked.rows)
    if (asked.owner_of(row) == rank) mine += row_of(x, row - asked.first_row[rank]);
  const std::vector<std::string> given = fabric.all_gather(mine);
  std::vector<size_t> taken(given.size());  // bytes used of each rank's text
  std::string picked;
  for (size_t i = 0; i < asked.own_first + rows.size(); ++i) {
    const size_t owner = asked.owner_of(asked.rows[i]), first = taken[owner];
    taken[owner] += row_bytes_of(x);
    if (i >= asked.own_first) picked += given[owner].substr(first, row_bytes_of(x));
  }
  return products(registry, product_of(*own.workload).workload(), own, picked_rows(x, picked).tensor);
}

void accumulate(std::vector<double>& sums, const std::vector<double>& terms) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
}

/// The outputs from the sums of the rows that this rank owns: bias, residual and norm.
Rows finish(const Problem& own, std::span<const int64_t> rows, std::vector<double> sums) {
  const auto n = static_cast<size_t>(own.workload->fields.get_int("n"));
  const Tensor *bias = find_tensor(own, "bias"), *residual = find_tensor(own, "residual"),
               *weight = find_tensor(own, "norm_weight");
  const double eps = own.workload->fields.get_double("eps", 0);
  std::vector<double> normed;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<double> row(sums.begin() + static_cast<int64_t>(r * n),
                            sums.begin() + static_cast<int64_t>((r + 1) * n));
    if (bias) accumulate(row, read_row(*bias, 0));
    if (residual) accumulate(row, read_row(*residual, rows[r]));
    std::copy(row.begin(), row.end(), sums.begin() + static_cast<int64_t>(r * n));
    if (!weight) continue;
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    const std::vector<double> weights = read_row(*weight, 0);
    for (size_t i = 0; i < n; ++i) normed.push_back(row[i] * scale * weights[i]);
  }
  Rows outputs{std::move(sums)};
  if (weight) outputs.push_back(std::move(normed));
  return outputs;
}

Rows reduce_reference(const autotune::Registry& registry, const Problem& own, Fabric& fabric,
                      std::span<const int64_t> rows) {
  const Asked asked = ask_ranks(fabric, find_tensor(own, "y")->sizes[0], true, rows);
  const Tensor& x = *find_tensor(own, "x");
  std::string operands;
  for (const int64_t row : asked.rows) operands += row_of(x, row);
  kernels::Linear product = product_of(*own.workload);
  product.bias = false;
  const Rows part = products(registry, product.workload(), own, picked_rows(x, operands).tensor);
  const size_t n = part[0].size() / std::max<size_t>(asked.rows.size(), 1);
  std::vector<double> sums(rows.size() * n);
  for (const std::string& theirs : fabric.all_gather(as_text<double>(part[0])))
    accumulate(sums, values_of<double>(theirs, asked.own_first * n, sums.size()));
  return finish(own, rows, std::move(sums));
}

}  // namespace

std::vector<std::vector<double>> rank_reference(const autotune::Registry& registry, const Problem& own, Fabric& fabric,
                                                std::span<const int64_t> rows) {
  const bool is_gather = own.workload->operation == "fused_allgather_and_linear";
  return (is_gather ? gather_reference : reduce_reference)(registry, own, fabric, rows);
}

}  // namespace seqtile::cli
