// bench/seqpar_bench.cpp -- products that communicate inside their launch, against the same work in two steps.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads of one core each, aligned before every timed call; a call's time is that of its slowest rank. The
// methods are those that users of sequence parallelism know:
//   fused               one launch of each rank
//   fused_nowait        the same kernel with nobody to wait for: what waiting costs is the difference
//   unfused             the exchange by memcpy and a barrier, then linear (or linear, then the exchange)
//   compute_lower_bound linear alone, comms_lower_bound the exchange alone
// All methods are verified against `unfused`; their order changes at random from round to round.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "bench/environment.h"
#include "bench/operands.h"
#include "bench/stats.h"
#include "bench/suites.h"
#include "jit/error.h"
#include "kernels/linear.h"
#include "kernels/seqpar/fused_handle.h"

namespace seqtile::bench {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::seqpar::FusedAllgatherAndLinear;
using kernels::seqpar::FusedHandle;
using kernels::seqpar::FusedLinearAndReducescatter;

constexpr int kRanks = 2;
const std::vector<std::string> kMethods = {"fused", "fused_nowait", "unfused", "compute_lower_bound",
                                           "comms_lower_bound"};

struct Shape {
  bool gathers;
  DType dtype;
  int64_t m, n, k;  ///< of the whole layer: a gather cuts n, a reduction k
  int64_t own_n() const { return gathers ? n / kRanks : n; }
  int64_t own_k() const { return gathers ? k : k / kRanks; }
  int64_t first_row(int rank) const { return rank * m / kRanks; }
};

Tensor rows_of(const Operand& operand, int64_t first, int64_t count) {
  Tensor tensor = operand.tensor();
  tensor.data = static_cast<std::byte*>(tensor.data) + first * tensor.strides[0] * dtype_bytes(tensor.dtype);
  tensor.sizes[0] = count;
  return tensor;
}

/// One rank's tensors, handles and methods.
class RankBench {
 public:
  RankBench(const Environment& environment, const Shape& shape, Fabric& fabric, std::vector<RankBench*>& ranks,
            std::barrier<>& meeting)
      : shape_(shape),
        ranks_(ranks),
        meeting_(meeting),
        rank_(fabric.rank()),
        x_(shape.dtype, {shape.m, shape.own_k()}),
        w_(shape.dtype, {shape.own_n(), shape.own_k()}),
        gathered_(shape.dtype, {shape.m, shape.own_k()}),
        whole_(shape.dtype, {shape.m, shape.own_n()}),
        fused_y_(shape.dtype, {shape.gathers ? shape.m : own_rows(), shape.own_n()}),
        plain_y_(shape.dtype, {shape.gathers ? shape.m : own_rows(), shape.own_n()}) {
    x_.fill(1, 1);  // the same rows on all ranks: those that a peer would send
    w_.fill(static_cast<uint64_t>(rank_) + 2, 1 / std::sqrt(static_cast<double>(shape.own_k())));
    const kernels::Linear linear{.n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype};
    plain_ = environment.prepare(linear.workload());
    const autotune::Workload fused = workload();
    fused_ = environment.prepare(fused);
    waiting_ = std::make_unique<Channel>(fabric, kernels::seqpar::channel_options({fused}, shape.m));
    ChannelOptions preset = waiting_->options();
    preset.deadline = std::chrono::nanoseconds(-1);
    preset_ = std::make_unique<Channel>(fabric, preset);
  }

  static autotune::Workload workload_of(const Shape& shape) {
    if (shape.gathers)
      return FusedAllgatherAndLinear{.world_size = kRanks, .n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype}
          .workload();
    return FusedLinearAndReducescatter{
        .world_size = kRanks, .n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype}
        .workload();
  }
  autotune::Workload workload() const { return workload_of(shape_); }

  void run(const std::string& method) {
    if (method == "fused") return run_fused(*waiting_);
    if (method == "fused_nowait") return run_fused(*preset_);
    if (method == "compute_lower_bound") return run_plain(x_.tensor());
    if (shape_.gathers) {
      gather();
      if (method == "unfused") run_plain(gathered_.tensor());
    } else {
      if (method == "unfused") run_plain(x_.tensor());
      reduce();
    }
  }

  /// Largest difference between the results of fused and unfused, over the size of the values.
  double difference() const {
    double worst = 0;
    const Operand& plain = shape_.gathers ? whole_ : plain_y_;
    const int64_t elements = fused_y_.tensor().num_elements();
    for (int64_t i = 0; i < elements; i += 7)
      worst = std::max(worst, std::abs(fused_y_.value(i) - plain.value(i)) / (1 + std::abs(plain.value(i))));
    return worst;
  }

  void check() const {
    if (const auto record = waiting_->abort_record()) throw Error(ErrorCode::aborted, record->text());
  }

 private:
  int64_t own_rows() const { return shape_.first_row(rank_ + 1) - shape_.first_row(rank_); }

  void run_fused(Channel& channel) {
    const int64_t first = shape_.first_row(rank_);
    const Tensor x = shape_.gathers ? rows_of(x_, first, own_rows()) : x_.tensor();
    const auto own = channel.tensors();
    const Tensor tensors[] = {x, w_.tensor(), fused_y_.tensor(), own[0], own[1], own[2]};
    fused_.handle(tensors, shape_.m, std::array<int64_t, 1>{});
  }

  void run_plain(const Tensor& x) {
    const Tensor tensors[] = {x, w_.tensor(), whole_.tensor()};
    plain_.handle(tensors, shape_.m);
  }

  void gather() {
    const int64_t first = shape_.first_row(rank_);
    const Tensor own = rows_of(x_, first, own_rows());
    const size_t bytes = static_cast<size_t>(own.num_elements() * dtype_bytes(own.dtype));
    for (RankBench* peer : ranks_) std::memcpy(rows_of(peer->gathered_, first, own_rows()).data, own.data, bytes);
    meeting_.arrive_and_wait();
  }

  void reduce() {
    meeting_.arrive_and_wait();  // partial sums of all ranks are there
    const int64_t first = shape_.first_row(rank_) * shape_.n, count = own_rows() * shape_.n;
    if (shape_.dtype == DType::f32) {
      auto* to = plain_y_.as<float>();
      std::memcpy(to, ranks_[0]->whole_.as<float>() + first, static_cast<size_t>(count) * sizeof(float));
      for (size_t r = 1; r < ranks_.size(); ++r) {
        const float* from = ranks_[r]->whole_.as<float>() + first;
        for (int64_t i = 0; i < count; ++i) to[i] += from[i];
      }
    } else {
      const uint16_t *a = ranks_[0]->whole_.as<uint16_t>() + first, *b = ranks_[1]->whole_.as<uint16_t>() + first;
      auto* to = plain_y_.as<uint16_t>();
      for (int64_t i = 0; i < count; ++i) to[i] = f32_to_bf16(bf16_to_f32(a[i]) + bf16_to_f32(b[i]));
    }
    meeting_.arrive_and_wait();  // and have been read
  }

  const Shape shape_;
  std::vector<RankBench*>& ranks_;
  std::barrier<>& meeting_;
  const int rank_;
  Operand x_, w_, gathered_, whole_, fused_y_, plain_y_;
  TunedHandle plain_, fused_;
  std::unique_ptr<Channel> waiting_, preset_;
};

/// Seconds of each method, by round: of the slowest rank.
using Times = std::vector<std::vector<double>>;

class Race {
 public:
  Race(const Environment& environment, const Shape& shape, const std::vector<std::string>& methods, int rounds)
      : environment_(environment), shape_(shape), methods_(methods), rounds_(rounds) {}

  Times run() {
    auto fabrics = make_thread_fabric(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        try {
          race(*fabrics[static_cast<size_t>(rank)]);
        } catch (const std::exception& error) {
          // the other rank waits at the barrier: a benchmark that cannot go on ends the program
          fmt::print(stderr, "seqtile bench: {}\n", error.what());
          std::exit(3);
        }
      });
    for (std::thread& thread : threads) thread.join();
    Times slowest = times_[0];
    for (size_t method = 0; method < slowest.size(); ++method)
      for (size_t round = 0; round < slowest[method].size(); ++round)
        for (const Times& times : times_)
          slowest[method][round] = std::max(slowest[method][round], times[method][round]);
    return slowest;
  }
  double max_error() const { return max_error_; }

 private:
  void race(Fabric& fabric) {
    const auto rank = static_cast<size_t>(fabric.rank());
    RankBench bench(environment_, shape_, fabric, ranks_, meeting_);
    ranks_[rank] = &bench;
    meeting_.arrive_and_wait();
    bench.run("unfused");
    bench.run("fused");
    bench.check();
    if (rank == 0) max_error_ = bench.difference();
    times_[rank].assign(methods_.size(), {});
    std::mt19937 random(11);  // the same on all ranks
    std::vector<size_t> order(methods_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = -1; round < rounds_; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t method : order) {
        meeting_.arrive_and_wait();
        const auto start = Clock::now();
        bench.run(methods_[method]);
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (round >= 0) times_[rank][method].push_back(seconds);
      }
    }
    bench.check();
    meeting_.arrive_and_wait();
  }

  const Environment& environment_;
  const Shape shape_;
  const std::vector<std::string>& methods_;
  const int rounds_;
  std::vector<RankBench*> ranks_ = std::vector<RankBench*>(kRanks);
  std::barrier<> meeting_{kRanks};
  Times times_[kRanks];
  double max_error_ = 0;
};

/// Of the rounds of two methods, side by side.
double ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

std::vector<Result> run_case(const Environment& environment, const Shape& shape,
                             const std::vector<std::string>& selected, const RunOptions& options) {
  const kernels::Linear linear{.n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype};
  environment.prepare_tuned(linear.workload(), shape.m);
  environment.prepare_tuned(RankBench::workload_of(shape), shape.m);
  Race race(environment, shape, selected, options.rounds);
  const Times times = race.run();
  std::vector<Result> results;
  for (size_t i = 0; i < selected.size(); ++i) {
    Result result;
    result.implementation = selected[i];
    result.seconds = times[i];
    result.calls = options.rounds;
    result.max_error = race.max_error();
    results.push_back(std::move(result));
  }
  const auto find = [&](const char* name) {
    const auto found = std::ranges::find(selected, name);
    return found == selected.end() ? nullptr : &times[static_cast<size_t>(found - selected.begin())];
  };
  const auto *fused = find("fused"), *unfused = find("unfused"), *gemm = find("compute_lower_bound"),
             *comms = find("comms_lower_bound");
  for (Result& result : results) {
    if (result.implementation != "fused") continue;
    if (unfused) result.counters["unfused_over_fused"] = ratio(*unfused, *fused);
    if (gemm) result.counters["fused_over_gemm"] = ratio(*fused, *gemm);
    if (gemm && comms) {
      const double exposed = median(*fused) - median(*gemm);
      result.counters["overlap_efficiency"] = 1 - exposed / median(*comms);
    }
  }
  return results;
}

}  // namespace

void add_seqpar_cases(std::vector<Case>& cases, Environment& environment) {
  struct Layer {
    int64_t n, k;
    std::vector<int64_t> lengths;
  };
  const Layer layers[] = {
      {4096, 4096, {256, 512, 1024, 2048, 4096}}, {14336, 4096, {256, 1024, 4096}}, {1024, 1024, {8192}}};
  for (const bool gathers : {true, false})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const Layer& layer : layers)
        for (const int64_t m : layer.lengths) {
          const Shape shape{gathers, dtype, m, gathers ? layer.n : layer.k, gathers ? layer.k : layer.n};
          Case item;
          item.operation = gathers ? "fused_allgather_and_linear" : "fused_linear_and_reducescatter";
          item.dtype = dtype_name(dtype);
          item.shape = fmt::format("m{}_n{}_k{}_p{}", m, shape.n, shape.k, kRanks);
          item.group = m >= 1024 ? "m1024.." : "m256..512";
          const double rows = static_cast<double>(m), columns = static_cast<double>(shape.n * shape.k) / kRanks;
          item.work = {2 * rows * columns, columns * static_cast<double>(dtype_bytes(dtype)), 0, dtype};
          item.implementations = kMethods;
          item.run = [&environment, shape](const Case&, const std::vector<std::string>& selected,
                                           const RunOptions& options) {
            return run_case(environment, shape, selected, options);
          };
          cases.push_back(std::move(item));
        }
}

}  // namespace seqtile::bench
