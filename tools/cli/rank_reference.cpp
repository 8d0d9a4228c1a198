// tools/cli/rank_reference.cpp -- see rank_reference.h.
// SPDX-License-Identifier: Apache-2.0
//
// Both are the reference of `linear`: of the gathered rows with this rank's weights, or of every rank's operands, added
// up.
#include "tools/cli/rank_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/linear.h"
#include "kernels/tensor_values.h"

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

/// Some rows of a matrix, side by side.
struct Picked {
  std::vector<std::byte> bytes;
  Tensor tensor;
};

struct Place {
  const Tensor* matrix;
  int64_t row;
};

Picked pick(const std::vector<Place>& places) {
  Picked picked;
  picked.tensor = *places[0].matrix;
  const auto row_bytes = static_cast<size_t>(picked.tensor.sizes[1] * dtype_bytes(picked.tensor.dtype));
  picked.bytes.resize(places.size() * row_bytes);
  for (size_t i = 0; i < places.size(); ++i) {
    const Tensor& from = *places[i].matrix;
    std::memcpy(picked.bytes.data() + i * row_bytes,
                static_cast<const std::byte*>(from.data) +
                    static_cast<size_t>(places[i].row * from.strides[0] * dtype_bytes(from.dtype)),
                row_bytes);
  }
  picked.tensor.data = picked.bytes.data();
  picked.tensor.sizes[0] = static_cast<int64_t>(places.size());
  picked.tensor.strides[0] = picked.tensor.sizes[1];
  return picked;
}

/// The reference of `linear` for the rows of `x`, the other operands taken from `problem` by name.
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

kernels::Linear product_of(const Workload& w) {
  const autotune::Fields& f = w.fields;
  return {.n = f.get_int("n"),
          .n2 = f.get_int("n2"),
          .n3 = f.get_int("n3"),
          .k = f.get_int("k"),
          .bias = f.get_int("bias") != 0,
          .activation = kernels::parse_activation(f.get_string("activation")),
          .gated = f.get_int("gated") != 0,
          .dtype = w.dtype,
          .threads = w.threads};
}

Workload normalized(const autotune::Registry& registry, const kernels::Linear& op) {
  return registry.find("linear").normalize(op.workload());
}

Rows gather_reference(const autotune::Registry& registry, std::span<const Problem* const> ranks, int rank,
                      std::span<const int64_t> rows) {
  std::vector<Place> places;
  for (int64_t row : rows) {
    size_t owner = 0;  // ranks' rows follow each other
    while (row >= find_tensor(*ranks[owner], "x")->sizes[0]) row -= find_tensor(*ranks[owner++], "x")->sizes[0];
    places.push_back({find_tensor(*ranks[owner], "x"), row});
  }
  const Problem& own = *ranks[static_cast<size_t>(rank)];
  const Picked x = pick(places);
  return products(registry, normalized(registry, product_of(*own.workload)), own, x.tensor);
}

void accumulate(std::vector<double>& sums, const std::vector<double>& terms) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
}

/// What the owner of a row does with its sum.
Rows finish(const Problem& own, std::span<const int64_t> rows, std::vector<double> sums) {
  const auto n = static_cast<size_t>(own.workload->fields.get_int("n"));
  const Tensor *bias = find_tensor(own, "bias"), *residual = find_tensor(own, "residual"),
               *weight = find_tensor(own, "norm_weight");
  const double eps = own.workload->fields.get_double("eps", 0);
  std::vector<double> normed;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<double> row(sums.begin() + static_cast<int64_t>(r * n),
                            sums.begin() + static_cast<int64_t>((r + 1) * n));
    if (bias) accumulate(row, kernels::read_row(*bias, 0));
    if (residual) accumulate(row, kernels::read_row(*residual, rows[r]));
    std::copy(row.begin(), row.end(), sums.begin() + static_cast<int64_t>(r * n));
    if (!weight) continue;
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    const std::vector<double> weights = kernels::read_row(*weight, 0);
    for (size_t i = 0; i < n; ++i) normed.push_back(row[i] * scale * weights[i]);
  }
  Rows outputs{std::move(sums)};
  if (weight) outputs.push_back(std::move(normed));
  return outputs;
}

Rows reduce_reference(const autotune::Registry& registry, std::span<const Problem* const> ranks, int rank,
                      std::span<const int64_t> rows) {
  int64_t first = 0;
  for (int peer = 0; peer < rank; ++peer) first += find_tensor(*ranks[static_cast<size_t>(peer)], "y")->sizes[0];
  std::vector<double> sums;
  for (const Problem* peer : ranks) {
    std::vector<Place> places;
    for (const int64_t row : rows) places.push_back({find_tensor(*peer, "x"), first + row});
    const Picked x = pick(places);
    kernels::Linear product = product_of(*peer->workload);
    product.bias = false;
    const std::vector<double> part = products(registry, normalized(registry, product), *peer, x.tensor)[0];
    if (sums.empty()) sums = part;
    else accumulate(sums, part);
  }
  return finish(*ranks[static_cast<size_t>(rank)], rows, std::move(sums));
}

}  // namespace

std::vector<std::vector<double>> rank_reference(const autotune::Registry& registry,
                                                std::span<const Problem* const> ranks, int rank,
                                                std::span<const int64_t> rows) {
  const bool is_gather = ranks[0]->workload->operation == "fused_allgather_and_linear";
  return (is_gather ? gather_reference : reduce_reference)(registry, ranks, rank, rows);
}

}  // namespace seqtile::cli
