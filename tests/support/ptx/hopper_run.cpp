// tests/support/ptx/hopper_run.cpp -- runs the kernels of hopper_kernels.h on the PTX machine and compares with f64.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "jit/sim/memory/sim_tensor_map.h"
#include "jit/sim/values/float_formats.h"
#include "tests/support/ptx/hopper_kernels.h"

namespace seqtile::testing {
namespace {

using sim::append_param;

constexpr uint16_t kGuard = 0xabcd;
constexpr size_t kGuards = 64;

/// bf16 data between guard words, in memory registered with the machine.
class Buffer {
 public:
  Buffer(sim::Machine& machine, const std::string& name, size_t count)
      : machine_(machine), words_(count + 2 * kGuards) {
    std::fill(words_.begin(), words_.end(), kGuard);
    machine.register_memory(name, data(), count * 2);
  }
  void randomize(std::mt19937& random, float range) {
    std::uniform_real_distribution<float> uniform(-range, range);
    for (size_t i = 0; i < size(); ++i) data()[i] = static_cast<uint16_t>(sim::float_to_bf16(uniform(random)));
  }
  void poison() { machine_.poison(data(), size() * 2); }
  uint16_t* data() { return words_.data() + kGuards; }
  size_t size() const { return words_.size() - 2 * kGuards; }
  double operator[](size_t i) const { return sim::bf16_to_float(words_[kGuards + i]); }
  bool is_guarded() const {
    for (size_t i = 0; i < kGuards; ++i)
      if (words_[i] != kGuard || words_[words_.size() - 1 - i] != kGuard) return false;
    return true;
  }

 private:
  sim::Machine& machine_;
  std::vector<uint16_t> words_;
};

template <size_t rank>
void append_map(std::vector<std::byte>& params, Buffer& buffer, const uint64_t (&size)[rank],
                const uint64_t (&stride)[rank - 1], const uint32_t (&box)[rank]) {
  append_param(params,
               sim::encode_tensor_map(sim::TensorElement::bf16, buffer.data(), size, stride, box, sim::Swizzle::b128));
}

/// Keeps the element with the largest error.
struct Worst {
  double error = 0;
  size_t index = 0;
  double have = 0, want = 0;
  void add(size_t at, double is, double should, double scale) {
    const double off = std::isnan(is) ? std::numeric_limits<double>::infinity()
                       : is == should ? 0
                                      : std::fabs(is - should) / scale;
    if (off > error) error = off, index = at, have = is, want = should;
  }
  std::string describe(const sim::Machine& machine, const void* element, double limit) const {
    if (error <= limit) return "";
    const auto writer = machine.last_writer(element);
    const std::string store = writer ? fmt::format("last stored by PTX line {}, CTA {} warp {} lane {}", writer->line,
                                                   writer->cta, writer->warp, writer->lane)
                                     : "never stored";
    return fmt::format("{} is {}, should be {} ({})", machine.describe(element), have, want, store);
  }
};

sim::Options recording(sim::Options options) {
  options.record_writers = true;
  return options;
}

}  // namespace

HopperResult run(const HopperProduct& p, const std::string& text, const sim::Options& options) {
  sim::Machine machine;
  std::mt19937 random(7);
  const auto m = static_cast<size_t>(p.m), n = static_cast<size_t>(p.n), k = static_cast<size_t>(p.k);
  Buffer a(machine, "a", m * k), b(machine, "b", n * k), c(machine, "c", m * n);
  a.randomize(random, 1), b.randomize(random, 1), c.poison();
  std::vector<std::byte> params;
  append_map<2>(params, a, {k, m}, {2 * k}, {64, 128});
  append_map<2>(params, b, {k, n}, {2 * k}, {64, static_cast<uint32_t>(p.block_n / p.cluster)});
  append_map<2>(params, c, {n, m}, {2 * n}, {64, 64});
  const int row_blocks = p.m / (128 * p.cluster);
  for (const int value : {row_blocks, row_blocks * (p.n / p.block_n), p.k / 64}) append_param(params, value);
  sim::LaunchShape shape;
  shape.grid = {p.clusters * p.cluster, 1, 1}, shape.cluster = {p.cluster, 1, 1};
  shape.threads = 384, shape.shared_bytes = p.shared_bytes();
  HopperResult result;
  result.launch = machine.launch(sim::decode_text(text, "product"), shape, params, recording(options));
  Worst worst;
  for (size_t row = 0; row < m; ++row)
    for (size_t column = 0; column < n; ++column) {
      double want = 0;
      for (size_t q = 0; q < k; ++q) want += a[row * k + q] * b[column * k + q];
      worst.add(row * n + column, c[row * n + column], want, std::sqrt(static_cast<double>(k)));
    }
  result.error = worst.error;
  result.wrong =
      c.is_guarded() ? worst.describe(machine, c.data() + worst.index, 0.01) : "a guard word around c changed";
  return result;
}

namespace {

struct AttentionData {
  AttentionData(sim::Machine& machine, const HopperAttention& a)
      : q(machine, "q", size(a.q_len, a.heads, a)),
        k(machine, "k", size(a.kv_len, a.kv_heads, a)),
        v(machine, "v", size(a.kv_len, a.kv_heads, a)),
        o(machine, "o", size(a.q_len, a.heads, a)),
        lse(size(a.q_len, a.heads, a) / static_cast<size_t>(a.head_dim), 0) {
    std::mt19937 random(11);
    // A peaked softmax shows errors that a flat one hides.
    q.randomize(random, 3), k.randomize(random, 3), v.randomize(random, 1), o.poison();
    machine.register_memory("lse", lse.data(), lse.size() * 4);
    machine.poison(lse.data(), lse.size() * 4);
  }
  static size_t size(int length, int heads, const HopperAttention& a) {
    return static_cast<size_t>(length) * static_cast<size_t>(heads) * static_cast<size_t>(a.head_dim);
  }
  Buffer q, k, v, o;
  std::vector<float> lse;
};

/// Appends the tensor map of [length, heads, head_dim], in boxes of `rows` rows and `panels` times 64 columns.
void append_heads(std::vector<std::byte>& params, Buffer& buffer, int length, int heads, int head_dim, int rows,
                  int panels) {
  const auto row = static_cast<uint64_t>(2 * heads * head_dim);
  append_map<4>(params, buffer,
                {64, static_cast<uint64_t>(length), static_cast<uint64_t>(head_dim / 64), static_cast<uint64_t>(heads)},
                {row, 128, static_cast<uint64_t>(2 * head_dim)},
                {64, static_cast<uint32_t>(rows), static_cast<uint32_t>(panels), 1});
}

/// Computes one row of the reference. Returns lse.
double attend(const HopperAttention& a, const AttentionData& data, int row, int head, std::vector<double>& out) {
  const auto d = static_cast<size_t>(a.head_dim);
  const int kv_head = head / (a.heads / a.kv_heads);
  const int keys = a.is_causal ? std::min(a.kv_len, row + a.kv_len - a.q_len + 1) : a.kv_len;
  const auto at = [&](int r, int heads, int h) { return (static_cast<size_t>(r * heads + h)) * d; };
  out.assign(d, 0);
  std::vector<double> weights;
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int key = 0; key < keys; ++key) {
    double dot = 0;
    for (size_t i = 0; i < d; ++i) dot += data.q[at(row, a.heads, head) + i] * data.k[at(key, a.kv_heads, kv_head) + i];
    weights.push_back(dot / std::sqrt(static_cast<double>(d)));
    top = std::max(top, weights.back());
  }
  if (keys <= 0) return top;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (int key = 0; key < keys; ++key)
    for (size_t i = 0; i < d; ++i)
      out[i] += weights[static_cast<size_t>(key)] / sum * data.v[at(key, a.kv_heads, kv_head) + i];
  return top + std::log(sum);
}

}  // namespace

HopperResult run(const HopperAttention& a, const std::string& text, const sim::Options& options) {
  sim::Machine machine;
  AttentionData data(machine, a);
  const int panels = a.head_dim / 64;
  std::vector<std::byte> params;
  append_heads(params, data.q, a.q_len, a.heads, a.head_dim, HopperAttention::kBlockM, panels);
  append_heads(params, data.k, a.kv_len, a.kv_heads, a.head_dim, a.block_n, panels);
  append_heads(params, data.v, a.kv_len, a.kv_heads, a.head_dim, a.block_n, panels);
  append_heads(params, data.o, a.q_len, a.heads, a.head_dim, 64, 1);
  append_param(params, data.lse.data());
  for (const int value : {a.q_len, a.kv_len, a.heads / a.kv_heads}) append_param(params, value);
  append_param(params, static_cast<float>(std::log2(std::exp(1.0)) / std::sqrt(a.head_dim)));
  sim::LaunchShape shape;
  shape.grid = {(a.q_len + 127) / 128, a.heads, 1};
  shape.threads = 384, shape.shared_bytes = a.shared_bytes();
  HopperResult result;
  result.launch = machine.launch(sim::decode_text(text, "attention"), shape, params, recording(options));
  Worst outputs, sums;
  std::vector<double> want;
  for (int row = 0; row < a.q_len; ++row)
    for (int head = 0; head < a.heads; ++head) {
      const auto sum_at = static_cast<size_t>(head * a.q_len + row);
      sums.add(sum_at, data.lse[sum_at], attend(a, data, row, head, want), 1);
      const size_t first = static_cast<size_t>(row * a.heads + head) * want.size();
      for (size_t i = 0; i < want.size(); ++i) outputs.add(first + i, data.o[first + i], want[i], 1);
    }
  result.error = std::max(outputs.error, sums.error);
  result.wrong = outputs.describe(machine, data.o.data() + outputs.index, 0.01);
  if (result.wrong.empty()) result.wrong = sums.describe(machine, data.lse.data() + sums.index, 1e-4);
  if (!data.o.is_guarded()) result.wrong = "a guard word around o changed";
  return result;
}

}  // namespace seqtile::testing
