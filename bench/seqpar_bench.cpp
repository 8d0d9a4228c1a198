// bench/seqpar_bench.cpp -- products that communicate inside their launch, against the same work in two steps.
// SPDX-License-Identifier: Apache-2.0
//
// The methods are those that users of sequence parallelism know:
//   fused               one launch of each rank; partial sums travel in the operands' format, as in the other methods
//   fused_f32           partial sums travel in f32: what an operation does unless told otherwise
//   fused_nowait        the same kernel with nobody to wait for: what waiting costs is the difference
//   unfused             the exchange by memcpy and a barrier, then linear (or linear, then the exchange)
//   compute_lower_bound linear alone, comms_lower_bound the exchange alone
//   gloo                torch.distributed and F.linear, in two processes
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "bench/environment.h"
#include "bench/operands.h"
#include "bench/rank_race.h"
#include "bench/stats.h"
#include "bench/suites.h"
#include "jit/error.h"
#include "kernels/linear.h"
#include "kernels/seqpar/fused_handle.h"

namespace seqtile::bench {
namespace {

enum class Kind { gather, scatter, all_reduce };

constexpr const char* kOperations[] = {"fused_allgather_and_linear", "fused_linear_and_reducescatter",
                                       "linear_and_allreduce"};

struct Shape {
  Kind kind;
  DType dtype;
  int64_t m, n, k;  ///< of the whole layer: a gather cuts n, a sum k
  bool gathers() const { return kind == Kind::gather; }
  int64_t own_n() const { return gathers() ? n / kRaceRanks : n; }
  int64_t own_k() const { return gathers() ? k : k / kRaceRanks; }
  int64_t first_row(int rank) const { return rank * m / kRaceRanks; }
  int64_t own_rows(int rank) const { return first_row(rank + 1) - first_row(rank); }
  int64_t result_rows(int rank) const { return kind == Kind::scatter ? own_rows(rank) : m; }
};

autotune::Workload linear_workload(const Shape& shape) {
  return kernels::Linear{.n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype}.workload();
}

template <class Op>
autotune::Workload workload_of(const Shape& shape) {
  return Op{.world_size = kRaceRanks, .n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype}.workload();
}

autotune::Workload fused_workload(const Shape& shape, DType transport) {
  using namespace kernels::seqpar;
  if (shape.gathers()) return workload_of<FusedAllgatherAndLinear>(shape);
  autotune::Workload workload = shape.kind == Kind::scatter ? workload_of<FusedLinearAndReducescatter>(shape)
                                                            : workload_of<LinearAndAllreduce>(shape);
  workload.fields.set("transport", std::string(dtype_name(transport)));
  return workload;
}

Tensor rows_of(const Operand& operand, int64_t first, int64_t count) {
  Tensor tensor = operand.tensor();
  tensor.data = static_cast<std::byte*>(tensor.data) + first * tensor.strides[0] * dtype_bytes(tensor.dtype);
  tensor.sizes[0] = count;
  return tensor;
}

/// A fused operation of one rank, with peers to wait for and without.
class Fused {
 public:
  Fused(const Environment& environment, Fabric& fabric, const autotune::Workload& workload, int64_t capacity)
      : handle_(environment.prepare(workload)) {
    waiting_ = std::make_unique<Channel>(fabric, kernels::seqpar::channel_options({workload}, capacity));
    ChannelOptions preset = waiting_->options();
    preset.awaits_peers = false;
    preset_ = std::make_unique<Channel>(fabric, preset);
  }
  void run(bool waits, const Tensor& x, const Tensor& w, const Tensor& y, int64_t length) {
    const auto own = (waits ? waiting_ : preset_)->tensors();
    const Tensor tensors[] = {x, w, y, own[0], own[1], own[2]};
    handle_.handle(tensors, length, std::array<int64_t, 1>{});
  }
  void check() const {
    if (const auto record = waiting_->abort_record()) throw Error(ErrorCode::aborted, record->text());
  }

 private:
  TunedHandle handle_;
  std::unique_ptr<Channel> waiting_, preset_;
};

class ProductRacer : public Racer {
 public:
  ProductRacer(const Environment& environment, const Shape& shape, const Meeting& meeting)
      : shape_(shape),
        meeting_(meeting),
        rank_(meeting.fabric.rank()),
        x_(shape.dtype, {shape.m, shape.own_k()}),
        w_(shape.dtype, {shape.own_n(), shape.own_k()}),
        gathered_(shape.dtype, {shape.m, shape.own_k()}),
        whole_(shape.dtype, {shape.m, shape.own_n()}),
        fused_y_(shape.dtype, {shape.result_rows(rank_), shape.own_n()}),
        plain_y_(shape.dtype, {shape.result_rows(rank_), shape.own_n()}),
        plain_(environment.prepare(linear_workload(shape))),
        fused_(environment, meeting.fabric, fused_workload(shape, shape.dtype), shape.m),
        fused_f32_(environment, meeting.fabric, fused_workload(shape, DType::f32), shape.m) {
    x_.fill(1, 1);  // the same rows on all ranks: those that a peer would send
    w_.fill(static_cast<uint64_t>(rank_) + 2, 1 / std::sqrt(static_cast<double>(shape.own_k())));
  }

  void run(const std::string& method) override {
    if (method == "fused") return run_fused(fused_, true);
    if (method == "fused_f32") return run_fused(fused_f32_, true);
    if (method == "fused_nowait") return run_fused(fused_, false);
    if (method == "compute_lower_bound") return run_plain(x_.tensor());
    const bool computes = method == "unfused";
    if (shape_.gathers()) {
      gather();
      if (computes) run_plain(gathered_.tensor());
    } else {
      if (computes) run_plain(x_.tensor());
      reduce();
    }
  }

  void poison() override { fused_y_.fill_nan(); }

  double difference() const override {
    double worst = 0;
    const Operand& plain = shape_.gathers() ? whole_ : plain_y_;
    for (int64_t i = 0; i < fused_y_.tensor().num_elements(); i += 7) {
      const double error = std::abs(fused_y_.value(i) - plain.value(i)) / (1 + std::abs(plain.value(i)));
      worst = std::isnan(error) ? 1e9 : std::max(worst, error);
    }
    return worst;
  }

  void check() const override {
    fused_.check();
    fused_f32_.check();
  }

 private:
  void run_fused(Fused& fused, bool waits) {
    const Tensor x = shape_.gathers() ? rows_of(x_, shape_.first_row(rank_), shape_.own_rows(rank_)) : x_.tensor();
    fused.run(waits, x, w_.tensor(), fused_y_.tensor(), shape_.m);
  }

  void run_plain(const Tensor& x) {
    const Tensor tensors[] = {x, w_.tensor(), whole_.tensor()};
    plain_.handle(tensors, shape_.m);
  }

  ProductRacer& racer(size_t rank) { return static_cast<ProductRacer&>(*meeting_.racers[rank]); }

  /// This rank's rows of `from` to all ranks' operands.
  void give(const Operand& from, Operand ProductRacer::*to) {
    const int64_t first = shape_.first_row(rank_);
    const Tensor own = rows_of(from, first, shape_.own_rows(rank_));
    for (size_t peer = 0; peer < kRaceRanks; ++peer) {
      void* there = rows_of(racer(peer).*to, first, own.sizes[0]).data;
      if (there != own.data)
        std::memcpy(there, own.data, static_cast<size_t>(own.num_elements() * dtype_bytes(own.dtype)));
    }
    meeting_.barrier.arrive_and_wait();
  }

  void gather() { give(x_, &ProductRacer::gathered_); }

  void reduce() {
    meeting_.barrier.arrive_and_wait();  // partial sums of all ranks are there
    const int64_t first = shape_.first_row(rank_) * shape_.n, count = shape_.own_rows(rank_) * shape_.n;
    const int64_t bytes = dtype_bytes(shape_.dtype), at = shape_.kind == Kind::scatter ? 0 : first;
    const auto of = [&](const Operand& operand, int64_t element) { return operand.as<std::byte>() + element * bytes; };
    add_elements(shape_.dtype, of(racer(0).whole_, first), of(racer(1).whole_, first), of(plain_y_, at), count);
    meeting_.barrier.arrive_and_wait();  // and have been read
    if (shape_.kind == Kind::all_reduce) give(plain_y_, &ProductRacer::plain_y_);
  }

  const Shape shape_;
  const Meeting meeting_;
  const int rank_;
  Operand x_, w_, gathered_, whole_, fused_y_, plain_y_;
  TunedHandle plain_;
  Fused fused_, fused_f32_;
};

std::vector<Result> run_case(Environment& environment, const Shape& shape, const std::vector<std::string>& selected,
                             const RunOptions& options) {
  environment.prepare_tuned(linear_workload(shape), shape.m);
  for (const DType transport : {shape.dtype, DType::f32})
    environment.prepare_tuned(fused_workload(shape, transport), shape.m);
  RankRace race;
  race.enter = [&](const Meeting& meeting) { return std::make_unique<ProductRacer>(environment, shape, meeting); };
  race.difference_limit = shape.dtype == DType::f32 ? 1e-4 : 0.03;  // partial sums are rounded to 16 bits
  race.operation = kOperations[static_cast<int>(shape.kind)];
  race.dtype = shape.dtype, race.m = shape.m, race.n = shape.n, race.k = shape.k;
  const bool has_gloo = std::ranges::find(selected, "gloo") != selected.end();
  std::vector<Result> results = race_ranks(race, selected, options.rounds, has_gloo ? &environment.gloo() : nullptr);
  const auto fused = std::ranges::find(results, "fused", &Result::implementation);
  if (fused == results.end()) return results;
  const auto compare = [&](const char* counter, const char* method, bool is_inverse) {
    const auto other = std::ranges::find(results, method, &Result::implementation);
    if (other != results.end())
      fused->counters[counter] = is_inverse ? median_ratio(*other, *fused) : median_ratio(*fused, *other);
  };
  compare("fused_over_gemm", "compute_lower_bound", false);
  compare("unfused_over_fused", "unfused", true);
  compare("gloo_over_fused", "gloo", true);
  compare("f32_over_fused", "fused_f32", true);
  const auto nowait = std::ranges::find(results, "fused_nowait", &Result::implementation);
  const auto gemm = std::ranges::find(results, "compute_lower_bound", &Result::implementation);
  if (nowait != results.end() && gemm != results.end())
    fused->counters["nowait_over_gemm"] = median_ratio(*nowait, *gemm);
  return results;
}

}  // namespace

void add_seqpar_cases(std::vector<Case>& cases, Environment& environment) {
  struct Layer {
    int64_t n, k;
    std::vector<int64_t> lengths;
  };
  // llama_07B's and llama_70B's projections, and a shape that is bound by communication.
  const Layer layers[] = {
      {4096, 4096, {256, 512, 1024, 2048, 4096}}, {14336, 4096, {256, 1024, 4096}}, {1024, 1024, {8192}}};
  std::vector<std::string> methods = {"fused", "fused_nowait", "unfused", "compute_lower_bound", "comms_lower_bound"};
  if (environment.has_torch()) methods.push_back("gloo");
  for (const Kind kind : {Kind::gather, Kind::scatter, Kind::all_reduce})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const Layer& layer : layers)
        for (const int64_t m : layer.lengths) {
          const bool gathers = kind == Kind::gather;
          const Shape shape{kind, dtype, m, gathers ? layer.n : layer.k, gathers ? layer.k : layer.n};
          Case item;
          item.operation = kOperations[static_cast<int>(kind)];
          item.dtype = dtype_name(dtype);
          item.shape = fmt::format("m{}_n{}_k{}_p{}", m, shape.n, shape.k, kRaceRanks);
          item.group = m >= 1024 ? "m1024.." : "m256..512";
          const double rows = static_cast<double>(m), columns = static_cast<double>(shape.n * shape.k) / kRaceRanks;
          item.work = {2 * rows * columns, columns * static_cast<double>(dtype_bytes(dtype)), 0, dtype};
          item.implementations = methods;
          if (!gathers && dtype != DType::f32) item.implementations.push_back("fused_f32");
          item.run = [&environment, shape](const Case&, const std::vector<std::string>& selected,
                                           const RunOptions& options) {
            return run_case(environment, shape, selected, options);
          };
          cases.push_back(std::move(item));
        }
}

}  // namespace seqtile::bench
