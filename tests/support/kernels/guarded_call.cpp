// tests/support/kernels/guarded_call.cpp -- see guarded_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/guarded_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autotune/call/problem.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::testing {

using autotune::ArgRole;

namespace {

constexpr int64_t kGuard = 67, kRowPadding = 5, kInnerPadding = 3;  // elements, unless rows must be aligned
constexpr std::byte kPoison{0xff};

/// Makes a tensor with padded rows between poison. The last element of an input ends at a page that must not be read.
/// Packed weights (rank 3) have dense panels, because packing makes them so.
Tensor guarded_tensor(const std::vector<int64_t>& sizes, DType dtype, ArgRole role, int64_t alignment,
                      std::unique_ptr<GuardedBytes>& memory) {
  Tensor tensor{nullptr, dtype, static_cast<int>(sizes.size()), {}, {}};
  int64_t stride = 1, elements = 1;
  const int64_t vector = alignment / dtype_bytes(dtype);
  const auto padding = [&](int64_t odd) { return vector > 1 ? vector : odd; };
  const int64_t guard = vector > 1 ? 8 * vector : kGuard;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.sizes[d] = sizes[d];
    tensor.strides[d] = stride;
    elements += (sizes[d] - 1) * stride;
    stride *= sizes[d];
    if (d > 0 && (d == 1 || role != ArgRole::weight)) stride += padding(d == 1 ? kRowPadding : kInnerPadding);
  }
  if (role == ArgRole::output) elements += guard;
  // Whole vectors let the data end at the end of a page.
  if (vector > 1) elements = (elements + vector - 1) / vector * vector;
  memory = std::make_unique<GuardedBytes>(static_cast<size_t>((guard + elements) * dtype_bytes(dtype)), kPoison);
  tensor.data = memory->data() + guard * dtype_bytes(dtype);
  return tensor;
}

void fill_default(const Tensor& tensor, ArgRole role, uint64_t seed) {
  const double fan_in = static_cast<double>(tensor.sizes[tensor.rank - 1]);
  kernels::fill_normal(tensor, 0, role == ArgRole::weight ? 1 / std::sqrt(fan_in) : 1, seed);
}

/// Sets the bytes of all elements of `tensor` to poison.
void poison(const Tensor& tensor) {
  for_each_row(tensor, [](std::byte* row, size_t bytes) { std::memset(row, static_cast<int>(kPoison), bytes); });
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
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    const Tensor whole = autotune::describe_arg(schema_.args[i], schema_, problem_.symbols);
    const std::vector<int64_t> sizes(whole.sizes.begin(), whole.sizes.begin() + whole.rank);
    problem_.tensors.push_back(
        guarded_tensor(sizes, schema_.args[i].dtype, schema_.args[i].role, alignment, memory_[i]));
  }
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    if (schema_.args[i].role == ArgRole::output) continue;
    if (!op.fill || !op.fill(problem_, i, seed + i)) fill_default(problem_.tensors[i], schema_.args[i].role, seed + i);
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
    size_t e = 0;
    for (const int64_t row : rows) {
      if (row >= tensor.sizes[0]) continue;
      for (const double got : kernels::read_row(tensor, row)) {
        const double limit = tolerance.absolute + tolerance.relative * std::abs(expected.at(e));
        if (!(std::abs(got - expected[e]) <= limit) && got != expected[e])
          return fmt::format("{} row {} element {}: {}, should be {} (+- {})", name, row,
                             e % static_cast<size_t>(tensor.num_elements() / tensor.sizes[0]), got, expected[e], limit);
        ++e;
      }
    }
    if (e != expected.size())
      return fmt::format("{}: the reference has {} values, {} are needed", name, expected.size(), e);
    std::vector<std::byte> guard = bytes_of(*memory_[i]);
    Tensor copy = tensor;
    copy.data = guard.data() + (static_cast<const std::byte*>(tensor.data) - memory_[i]->data());
    poison(copy);
    // One comparison suffices: the first byte is poison, and all bytes equal their neighbours.
    if (guard[0] != kPoison || std::memcmp(guard.data(), guard.data() + 1, guard.size() - 1) != 0)
      return name + ": something was written outside of the tensor";
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
