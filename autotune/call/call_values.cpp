// autotune/call/call_values.cpp -- see call_values.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/call_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "jit/base/assert.h"
#include "jit/base/tensor_runs.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kPatternElements = 65537;  // prime, so that rows of a model's lengths differ from each other

/// kPatternElements normal values in storage format.
const std::vector<std::byte>& pattern_of(DType dtype, double scale) {
  thread_local std::map<std::pair<DType, double>, std::vector<std::byte>> patterns;
  auto& pattern = patterns[{dtype, scale}];
  if (pattern.empty()) {
    pattern.resize(kPatternElements * static_cast<size_t>(dtype_bytes(dtype)));
    fill_normal(make_tensor(pattern.data(), dtype, {kPatternElements}), 0, scale, 42);
  }
  return pattern;
}

/// Index of the first poisoned element, or -1. The loop over a block has no exit and is vectorized, because outputs
/// have hundreds of millions of elements.
template <class T>
int64_t find_poison(std::span<const std::byte> bytes) {
  constexpr int64_t kBlock = 256;
  const T* from = reinterpret_cast<const T*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(T));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    bool is_poisoned = false;
    for (int64_t i = begin; i < end; ++i) is_poisoned |= from[i] == static_cast<T>(-1);
    for (int64_t i = begin; is_poisoned && i < end; ++i)
      if (from[i] == static_cast<T>(-1)) return i;
  }
  return -1;
}

}  // namespace

/// One comparison suffices: the first byte is poison, and all bytes equal their neighbours.
bool is_poison(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == kPoison && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

void poison(const Tensor& tensor) {
  for_each_run_bytes(tensor, [](std::span<std::byte> run) { std::ranges::fill(run, kPoison); });
}

int64_t find_poison(const Tensor& tensor) {
  const int64_t size = dtype_bytes(tensor.dtype);
  const auto find = size == 1   ? find_poison<uint8_t>
                    : size == 2 ? find_poison<uint16_t>
                    : size == 4 ? find_poison<uint32_t>
                                : find_poison<uint64_t>;
  int64_t before = 0, found = -1;
  for_each_run(tensor, [&](int64_t offset, int64_t count) {
    if (found >= 0) return;
    if (const int64_t at = find(bytes_at(tensor, offset, count)); at >= 0) found = before + at;
    before += count;
  });
  return found;
}

bool has_written(const Tensor& tensor) {
  bool has = false;
  for_each_run_bytes(tensor, [&](std::span<const std::byte> run) { has = has || !is_poison(run); });
  return has;
}

void fill_repeating(const Tensor& tensor, double scale, uint64_t phase) {
  if (!is_float(tensor.dtype))
    return for_each_run_bytes(tensor, [](std::span<std::byte> run) { std::ranges::fill(run, std::byte{0}); });
  const std::vector<std::byte>& pattern = pattern_of(tensor.dtype, scale);
  const auto size = static_cast<size_t>(dtype_bytes(tensor.dtype));
  size_t from = phase % kPatternElements;
  for_each_run_bytes(tensor, [&](std::span<std::byte> run) {
    while (!run.empty()) {
      const size_t bytes = std::min(run.size(), pattern.size() - from * size);
      std::memcpy(run.data(), &pattern[from * size], bytes);
      from = (from + bytes / size) % kPatternElements;
      run = run.subspan(bytes);
    }
  });
}

void fill_default(const Tensor& tensor, ArgRole role, uint64_t phase) {
  const bool has_fan_in = role == ArgRole::weight && tensor.rank > 1;
  fill_repeating(tensor, has_fan_in ? 1 / std::sqrt(static_cast<double>(tensor.sizes[tensor.rank - 1])) : 1, phase);
}

void fill_input(const OpDef& op, const Problem& problem, size_t arg, uint64_t seed) {
  if (op.fill && op.fill(problem, arg, seed)) return;
  fill_default(problem.tensors[arg], problem.schema->args[arg].role, 7919 * seed + 104729 * arg);
}

void Difference::add(const Difference& other) {
  const double larger = std::max(relative, other.relative);
  if (other.tolerances > tolerances) *this = other;
  relative = larger;
}

Difference compare(std::span<const double> got, std::span<const double> want, OpDef::Tolerance tolerance) {
  SEQTILE_ASSERT(got.size() == want.size());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double squares = 0;
  for (const double w : want) squares += std::isfinite(w) ? w * w : 0;
  const double scale = std::max(1e-30, std::sqrt(squares / std::max<double>(1, static_cast<double>(want.size()))));
  Difference worst;
  for (size_t e = 0; e < want.size(); ++e) {
    const double g = got[e], w = want[e], error = std::abs(g - w);
    if (g == w) continue;
    Difference here{kInfinity, kInfinity, e, g, w};
    if (std::isfinite(error) && std::isfinite(w)) {
      here.tolerances = error / (tolerance.absolute + tolerance.relative * std::abs(w));
      here.relative = error / std::max(std::abs(w), scale);
    }
    worst.add(here);
  }
  return worst;
}

}  // namespace seqtile::autotune
