// tests/support/kernels/guarded_call.cpp -- see guarded_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/guarded_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "autotune/call/call_values.h"
#include "autotune/call_sizes.h"
#include "seqtile/error.h"

namespace seqtile::testing {

using autotune::ArgRole;
using autotune::kPoison;

namespace {

constexpr int64_t kGuard = 67, kRowPadding = 5, kInnerPadding = 3;  // elements, unless rows must be aligned

/// Gives the tensor padded rows, between poison. The last element of an input ends at a page that must not be read.
/// Packed weights (rank 3) have dense panels, because packing makes them so.
void surround(Tensor& tensor, ArgRole role, int64_t alignment, std::unique_ptr<GuardedBytes>& memory) {
  int64_t stride = 1, elements = 1;
  const int64_t size = dtype_bytes(tensor.dtype), vector = alignment / size;
  const auto padding = [&](int64_t odd) { return vector > 1 ? vector : odd; };
  const int64_t guard = vector > 1 ? 8 * vector : kGuard;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    elements += (tensor.sizes[d] - 1) * stride;
    stride *= tensor.sizes[d];
    if (d > 0 && (d == 1 || role != ArgRole::weight)) stride += padding(d == 1 ? kRowPadding : kInnerPadding);
  }
  if (role == ArgRole::output) elements += guard;
  // Whole vectors let the data end at the end of a page.
  if (vector > 1) elements = (elements + vector - 1) / vector * vector;
  memory = std::make_unique<GuardedBytes>(static_cast<size_t>((guard + elements) * size), kPoison);
  tensor.data = memory->data() + guard * size;
}

std::vector<std::byte> bytes_of(const GuardedBytes& memory) { return {memory.bytes().begin(), memory.bytes().end()}; }

}  // namespace

GuardedCall::GuardedCall(const autotune::OpDef& op, const autotune::Workload& workload, std::vector<int64_t> symbols,
                         uint64_t seed, int64_t alignment)
    : op_(op), workload_(workload), schema_(op.schema(workload)) {
  problem_.workload = &workload_;
  problem_.schema = &schema_;
  problem_.symbols = std::move(symbols);
  memory_.resize(schema_.args.size());
  problem_.tensors = autotune::describe_args(schema_, problem_.symbols);
  for (size_t i = 0; i < schema_.args.size(); ++i)
    surround(problem_.tensors[i], schema_.args[i].role, alignment, memory_[i]);
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    if (schema_.args[i].role == ArgRole::output) continue;
    autotune::fill_input(op, problem_, i, seed + i);
  }
}

const Tensor& GuardedCall::tensor(const std::string& name) const {
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].name == name) return problem_.tensors[i];
  throw Error(ErrorCode::internal, "the schema has no argument " + name);
}

void GuardedCall::poison_outputs() {
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].role == ArgRole::output) std::ranges::fill(memory_[i]->bytes(), kPoison);
}

std::vector<int64_t> GuardedCall::sample_rows(int64_t most) const {
  int64_t count = 0;
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].role == ArgRole::output) count = std::max(count, problem_.tensors[i].sizes[0]);
  std::vector<int64_t> rows;
  const int64_t taken = std::min(count, most);
  for (int64_t i = 0; i < taken; ++i) rows.push_back(taken == count ? i : i * (count - 1) / (taken - 1));
  return rows;
}

std::vector<std::vector<double>> GuardedCall::want(std::span<const int64_t> rows) const {
  std::vector<std::vector<double>> outputs;
  op_.reference(problem_, rows, outputs);
  return outputs;
}

std::string GuardedCall::check(std::span<const int64_t> rows, const std::vector<std::vector<double>>& want) const {
  const auto tolerance = op_.tolerance(workload_, problem_.symbols);
  size_t output = 0;
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    if (schema_.args[i].role != ArgRole::output) continue;
    const Tensor& tensor = problem_.tensors[i];
    const std::string& name = schema_.args[i].name;
    const std::vector<double>& expected = want.at(output++);
    std::vector<double> got;
    for (const int64_t row : rows)
      if (row < tensor.sizes[0]) std::ranges::copy(read_row(tensor, row), std::back_inserter(got));
    if (got.size() != expected.size())
      return fmt::format("{}: the reference has {} values, {} are needed", name, expected.size(), got.size());
    const autotune::Difference worst = autotune::compare(got, expected, tolerance);
    if (!worst.is_within()) {
      const auto width = static_cast<size_t>(tensor.num_elements() / tensor.sizes[0]);
      return fmt::format("{} row {} element {}: {}, should be {}, {} tolerances apart", name,
                         rows[worst.element / width], worst.element % width, worst.got, worst.want, worst.tolerances);
    }
    std::vector<std::byte> guard = bytes_of(*memory_[i]);
    Tensor copy = tensor;
    copy.data = guard.data() + (static_cast<const std::byte*>(tensor.data) - memory_[i]->data());
    autotune::poison(copy);
    if (!autotune::is_poison(guard)) return name + ": something was written outside of the tensor";
  }
  return "";
}

std::vector<std::vector<std::byte>> GuardedCall::output_bytes() const {
  std::vector<std::vector<std::byte>> result;
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].role == ArgRole::output) result.push_back(bytes_of(*memory_[i]));
  return result;
}

}  // namespace seqtile::testing
