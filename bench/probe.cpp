// bench/probe.cpp -- multiply-add loops on registers, and streaming loops.
// SPDX-License-Identifier: Apache-2.0
#include "bench/probe.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "bench/operands.h"
#include "seqtile/target.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace seqtile::bench {
namespace {

constexpr int64_t kPeakIterations = 100000;
volatile float g_sink;

using PeakLoop = float (*)(int64_t iterations);
struct PeakKernel {
  PeakLoop loop;
  double flops_per_iteration;
};

typedef float Float4 __attribute__((vector_size(16)));

float peak_generic(int64_t iterations) {
  constexpr int kChains = 8;
  Float4 acc[kChains], x = {0.999f, 0.999f, 0.999f, 0.999f}, y = {0.001f, 0.001f, 0.001f, 0.001f};
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int j = 0; j < kChains; ++j) acc[j] = acc[j] * x + y;
  }
  Float4 sum = acc[0];
  for (int j = 1; j < kChains; ++j) sum += acc[j];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

/// One thread's share of a stream. `streams` equal parts of source and target are walked side by side. A group is 16
/// cache lines, of which `writes` are written and the others read.
struct Stream {
  const float* source;
  float* target;
  int64_t groups;  ///< in each part
  int writes, streams;
};

/// Returns a value that depends on all reads, so that the compiler keeps them.
using StreamLoop = float (*)(const Stream& stream);

float stream_generic(const Stream& stream) {
  const int64_t reads = 16 - stream.writes;
  Float4 sum[4] = {};
  const Float4 value = {1.0f, 1.0f, 1.0f, 1.0f};
  for (int64_t g = 0; g < stream.groups; ++g) {
    for (int part = 0; part < stream.streams; ++part) {
      const float* source = stream.source + (part * stream.groups + g) * reads * 16;
      float* target = stream.target + (part * stream.groups + g) * stream.writes * 16;
      for (int64_t i = 0; i < 4 * reads; ++i) sum[i % 4] += *reinterpret_cast<const Float4*>(source + 4 * i);
      for (int64_t i = 0; i < 4 * stream.writes; ++i) *reinterpret_cast<Float4*>(target + 4 * i) = value;
    }
  }
  sum[0] += sum[1] + sum[2] + sum[3];
  return sum[0][0];
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) float peak_avx512(int64_t iterations) {
  constexpr int kChains = 16;
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  __m512 acc[kChains];
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int j = 0; j < kChains; ++j) acc[j] = _mm512_fmadd_ps(acc[j], x, y);
  }
  for (int j = 1; j < kChains; ++j) acc[0] = _mm512_add_ps(acc[0], acc[j]);
  return _mm512_cvtss_f32(acc[0]);
}

__attribute__((target("avx2,fma"))) float peak_avx2(int64_t iterations) {
  constexpr int kChains = 12;
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  __m256 acc[kChains];
  for (auto& a : acc) a = x;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int j = 0; j < kChains; ++j) acc[j] = _mm256_fmadd_ps(acc[j], x, y);
  }
  for (int j = 1; j < kChains; ++j) acc[0] = _mm256_add_ps(acc[0], acc[j]);
  return _mm256_cvtss_f32(acc[0]);
}

__attribute__((target("avx512f,avx512bf16"))) float peak_avx512_bf16(int64_t iterations) {
  constexpr int kChains = 16;
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  __m512 acc[kChains];
  for (auto& a : acc) a = _mm512_setzero_ps();
  for (int64_t i = 0; i < iterations; ++i) {
    for (int j = 0; j < kChains; ++j) acc[j] = _mm512_dpbf16_ps(acc[j], x, x);
  }
  for (int j = 1; j < kChains; ++j) acc[0] = _mm512_add_ps(acc[0], acc[j]);
  return _mm512_cvtss_f32(acc[0]);
}

/// Four sums of two operands each, as in a kernel. The contents of the matrix registers do not matter.
__attribute__((target("amx-tile,amx-bf16"))) float peak_amx(int64_t iterations) {
  alignas(64) static constexpr struct {
    uint8_t palette = 1, rest[15]{};
    uint16_t row_bytes[16]{64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16]{16, 16, 16, 16, 16, 16, 16, 16};
  } kShapes;
  _tile_loadconfig(&kShapes);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 0;
}

template <bool kBypassCache>
__attribute__((target("avx2"))) float stream_avx2(const Stream& stream) {
  constexpr int64_t kPrefetchFloats = 512;
  const int64_t reads = 16 - stream.writes;
  __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0;
  const __m256 value = _mm256_set1_ps(1.0f);
  for (int64_t g = 0; g < stream.groups; ++g) {
    for (int part = 0; part < stream.streams; ++part) {
      const float* source = stream.source + (part * stream.groups + g) * reads * 16;
      float* target = stream.target + (part * stream.groups + g) * stream.writes * 16;
      for (int64_t line = 0; line < reads; ++line, source += 16) {
        _mm_prefetch(reinterpret_cast<const char*>(source + kPrefetchFloats), _MM_HINT_T0);
        sum0 = _mm256_add_ps(sum0, _mm256_load_ps(source));
        sum1 = _mm256_add_ps(sum1, _mm256_load_ps(source + 8));
      }
      for (int64_t line = 0; line < stream.writes; ++line, target += 16) {
        if constexpr (kBypassCache) {
          _mm256_stream_ps(target, value);
          _mm256_stream_ps(target + 8, value);
        } else {
          _mm256_store_ps(target, value);
          _mm256_store_ps(target + 8, value);
        }
      }
    }
  }
  _mm_sfence();
  return _mm256_cvtss_f32(_mm256_add_ps(sum0, sum1));
}

bool has_avx512() { return __builtin_cpu_supports("avx512f"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_bf16_dot() { return __builtin_cpu_supports("avx512bf16"); }
bool has_amx() { return host_target().has_matrix_registers; }

PeakKernel peak_kernel(DType dtype) {
  if (dtype == DType::bf16 && has_amx()) return {peak_amx, 4 * 2.0 * 16 * 16 * 32};
  if (dtype == DType::bf16 && has_bf16_dot()) return {peak_avx512_bf16, 16 * 64.0};
  if (has_avx512()) return {peak_avx512, 16 * 32.0};
  if (has_avx2()) return {peak_avx2, 12 * 16.0};
  return {peak_generic, 8 * 8.0};
}

std::vector<StreamLoop> stream_loops() {
  if (has_avx2()) return {stream_avx2<false>, stream_avx2<true>};
  return {stream_generic};
}

#else

bool has_avx512() { return false; }
bool has_avx2() { return false; }
bool has_bf16_dot() { return false; }
bool has_amx() { return false; }
PeakKernel peak_kernel(DType) { return {peak_generic, 8 * 8.0}; }
std::vector<StreamLoop> stream_loops() { return {stream_generic}; }

#endif

/// Keeps the calling thread on the `index`-th core that the process may use, until it is destroyed.
class PinnedToCore {
 public:
  explicit PinnedToCore(int index) {
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    int skip = index % CPU_COUNT(&before_), core = 0;
    while (!CPU_ISSET(core, &before_) || skip-- > 0) ++core;
    CPU_SET(core, &one);
    is_pinned_ = sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~PinnedToCore() {
    if (is_pinned_) sched_setaffinity(0, sizeof before_, &before_);
  }
  PinnedToCore(const PinnedToCore&) = delete;
  PinnedToCore& operator=(const PinnedToCore&) = delete;

 private:
  cpu_set_t before_{};
  bool is_pinned_ = false;
};

/// Runs `body` on `threads` threads at once, each on a core of its own. Returns the seconds from the first start to the
/// last end.
double timed_together(int threads, const std::function<void(int)>& body) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int> waiting{threads};
  std::vector<Clock::time_point> begin(threads), end(threads);
  const auto run = [&](int index) {
    const PinnedToCore pinned(index);
    waiting.fetch_sub(1);
    while (waiting.load() > 0) {
    }
    begin[index] = Clock::now();
    body(index);
    end[index] = Clock::now();
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(run, i);
  run(0);
  for (auto& helper : helpers) helper.join();
  const auto first = *std::min_element(begin.begin(), begin.end());
  return std::chrono::duration<double>(*std::max_element(end.begin(), end.end()) - first).count();
}

/// The dtypes whose peaks bound an operation. Any CPU can compute bf16 in f32, which is faster on some CPUs with bf16
/// instructions.
std::vector<DType> peak_dtypes(DType dtype) {
  if (dtype == DType::bf16 && has_bf16_dot()) return {DType::f32, DType::bf16};
  return {DType::f32};
}

std::map<std::pair<DType, int>, double>& peaks() {
  static std::map<std::pair<DType, int>, double> values;
  return values;
}

std::map<std::pair<int, int>, double>& bandwidths() {
  static std::map<std::pair<int, int>, double> values;
  return values;
}

int written_sixteenths(double read, double written) {
  if (read + written <= 0) return 0;
  return static_cast<int>(std::lround(16 * written / (read + written)));
}

}  // namespace

double probe_peak_gflops(DType dtype, int threads) {
  for (const DType counted : peak_dtypes(dtype)) {
    const PeakKernel kernel = peak_kernel(counted);
    double& best = peaks()[{counted, threads}];
    for (int repeat = 0; repeat < 3; ++repeat) {
      const double seconds = timed_together(threads, [&](int) { g_sink = kernel.loop(kPeakIterations); });
      best = std::max(best, threads * kernel.flops_per_iteration * kPeakIterations / seconds / 1e9);
    }
  }
  return best_peak_gflops(dtype, threads);
}

double probe_bandwidth_gbs(double read, double written, int threads) {
  // Source and target share one buffer. Half of the buffer always suffices for the lines that are read or written.
  static Buffer buffer(2 * rotation_bytes() + (int64_t{1} << 20));
  const int writes = written_sixteenths(read, written);
  const int64_t side_bytes = buffer.bytes() / 2 / threads / 4096 * 4096;
  double& best = bandwidths()[{writes, threads}];
  for (int streams : {1, 4}) {
    const int64_t groups = side_bytes / 64 / std::max(writes, 16 - writes) / streams;
    for (StreamLoop loop : stream_loops()) {
      const double seconds = timed_together(threads, [&](int index) {
        auto* source = reinterpret_cast<float*>(buffer.data() + index * side_bytes);
        auto* target = reinterpret_cast<float*>(buffer.data() + buffer.bytes() / 2 + index * side_bytes);
        g_sink = loop({source, target, groups, writes, streams});
      });
      best = std::max(best, static_cast<double>(threads * groups * streams) * 16 * 64 / seconds / 1e9);
    }
  }
  return best;
}

double best_peak_gflops(DType dtype, int threads) {
  double best = 0;
  for (const DType counted : peak_dtypes(dtype)) best = std::max(best, peaks()[{counted, threads}]);
  return best;
}

double best_bandwidth_gbs(double read, double written, int threads) {
  return bandwidths()[{written_sixteenths(read, written), threads}];
}

std::string probe_isa() {
  std::string isa = has_avx512() ? "avx512f" : has_avx2() ? "avx2+fma" : "generic";
  return has_amx() ? isa + "+bf16+amx" : has_bf16_dot() ? isa + "+bf16" : isa;
}

}  // namespace seqtile::bench
