// bench/suites/seqpar_bench.cpp -- products that communicate inside their launch, against the same work in two steps.
// SPDX-License-Identifier: Apache-2.0
//
// The methods:
//   fused               one launch per rank; partial sums travel in the operands' format, as in the other methods
//   fused_f32           as fused, but partial sums travel in f32, which is the operation's default
//   fused_nowait        the same kernel without waiting for peers; the difference to fused is the cost of waiting
//   unfused             two launches: all_gather, then linear, or linear, then reduce_scatter or all_reduce
//   compute_lower_bound linear alone
//   comms_lower_bound   the exchange alone, by memcpy and barriers
//   gloo                torch.distributed and F.linear, in two processes
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/fused_race.h"
#include "bench/suites.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/ranks.h"

namespace seqtile::bench {
namespace {

enum class Kind { gather, scatter, all_reduce };

constexpr const char* kOperations[] = {"fused_allgather_and_linear", "fused_linear_and_reducescatter",
                                       "linear_and_allreduce"};

struct Shape {
  Kind kind;
  DType dtype;
  int64_t m, n, k;  ///< of the whole layer; a gather cuts n, a sum cuts k
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
  return Op{{.n = shape.own_n(), .k = shape.own_k(), .dtype = shape.dtype}}.workload({.world_size = kRaceRanks});
}

autotune::Workload fused_workload(const Shape& shape, DType transport) {
  using namespace kernels::seqpar;
  if (shape.gathers()) return workload_of<FusedAllgatherAndLinear>(shape);
  autotune::Workload workload = shape.kind == Kind::scatter ? workload_of<FusedLinearAndReducescatter>(shape)
                                                            : workload_of<LinearAndAllreduce>(shape);
  workload.fields.set("transport", std::string(dtype_name(transport)));
  return workload;
}

/// The exchange as a separate operation.
autotune::Workload exchange_workload(const Shape& shape) {
  using namespace kernels::seqpar;
  const Ranks ranks{.world_size = kRaceRanks};
  const int64_t n = shape.gathers() ? shape.k : shape.n;
  switch (shape.kind) {
    case Kind::gather: return AllGather{n, shape.dtype}.workload(ranks);
    case Kind::scatter: return ReduceScatter{n, shape.dtype}.workload(ranks);
    case Kind::all_reduce: break;
  }
  return AllReduce{n, shape.dtype}.workload(ranks);
}

class ProductRacer : public Racer {
 public:
  ProductRacer(const Environment& environment, const Shape& shape, const RankContext& context)
      : shape_(shape),
        context_(context),
        rank_(context.fabric.rank()),
        x_(shape.dtype, {shape.m, shape.own_k()}),
        w_(shape.dtype, {shape.own_n(), shape.own_k()}),
        gathered_(shape.dtype, {shape.m, shape.own_k()}),
        whole_(shape.dtype, {shape.m, shape.own_n()}),
        y_(shape.dtype, {shape.result_rows(rank_), shape.own_n()}),
        expected_(shape.dtype, {shape.result_rows(rank_), shape.own_n()}),
        plain_(environment.prepare(linear_workload(shape))),
        exchange_(environment, context.fabric, exchange_workload(shape), shape.m),
        fused_(environment, context.fabric, fused_workload(shape, shape.dtype), shape.m),
        fused_f32_(environment, context.fabric, fused_workload(shape, DType::f32), shape.m) {
    x_.fill(1, 1);  // equal on all ranks: the same rows that a peer would send
    w_.fill(static_cast<uint64_t>(rank_) + 2, 1 / std::sqrt(static_cast<double>(shape.own_k())));
  }

  void run(const std::string& method) override {
    if (method == "fused") return run_fused(fused_, true);
    if (method == "fused_f32") return run_fused(fused_f32_, true);
    if (method == "fused_nowait") return run_fused(fused_, false);
    if (method == "compute_lower_bound") return run_plain(x_, whole_);
    if (method == "unfused") return run_unfused();
    shape_.gathers() ? gather() : reduce();
  }

  void make_reference() override {
    if (shape_.gathers()) {
      gather();
      run_plain(gathered_, expected_);
    } else {
      run_plain(x_, whole_);
      reduce();
    }
  }

  bool is_checked(const std::string& method) const override { return method == "unfused" || Racer::is_checked(method); }

  void poison() override {
    y_.poison();
    gathered_.poison();
  }

  double difference() const override { return largest_error(y_, expected_); }

  void check() const override {
    exchange_.check();
    fused_.check();
    fused_f32_.check();
  }

 private:
  void run_fused(FusedContestant& fused, bool waits) {
    fused.run(waits, {own_x(), w_.tensor(), y_.tensor()}, shape_.m);
  }

  Tensor own_x() const {
    return shape_.gathers() ? rows_of(x_, shape_.first_row(rank_), shape_.own_rows(rank_)) : x_.tensor();
  }

  void run_unfused() {
    if (shape_.gathers()) {
      exchange_.run(true, {own_x(), gathered_.tensor()}, shape_.m);
      run_plain(gathered_, y_);
    } else {
      run_plain(x_, whole_);
      exchange_.run(true, {whole_.tensor(), y_.tensor()}, shape_.m);
    }
  }

  void run_plain(const Operand& x, const Operand& y) {
    const Tensor tensors[] = {x.tensor(), w_.tensor(), y.tensor()};
    plain_.handle(tensors, shape_.m);
  }

  ProductRacer& racer(size_t rank) { return static_cast<ProductRacer&>(*context_.racers[rank]); }

  void give(const Operand& from, Operand ProductRacer::*to) {
    const int64_t first = shape_.first_row(rank_), count = shape_.own_rows(rank_);
    give_rows(context_, rows_of(from, first, count),
              [&](size_t rank) { return rows_of(racer(rank).*to, first, count).data; });
  }

  void gather() { give(x_, &ProductRacer::gathered_); }

  void reduce() {
    context_.barrier.arrive_and_wait();  // all ranks have their partial sums
    const int64_t first = shape_.first_row(rank_) * shape_.n, count = shape_.own_rows(rank_) * shape_.n;
    const int64_t bytes = dtype_bytes(shape_.dtype), at = shape_.kind == Kind::scatter ? 0 : first;
    const auto of = [&](const Operand& operand, int64_t element) { return operand.as<std::byte>() + element * bytes; };
    add_elements(shape_.dtype, of(racer(0).whole_, first), of(racer(1).whole_, first), of(expected_, at), count);
    context_.barrier.arrive_and_wait();  // all ranks have read the partial sums
    if (shape_.kind == Kind::all_reduce) give(expected_, &ProductRacer::expected_);
  }

  const Shape shape_;
  const RankContext context_;
  const int rank_;
  Operand x_, w_, gathered_, whole_, y_, expected_;
  TunedHandle plain_;
  FusedContestant exchange_, fused_, fused_f32_;
};

std::vector<Result> run_case(Environment& environment, const Shape& shape, const std::vector<std::string>& selected,
                             const RunOptions& options) {
  environment.prepare_tuned(linear_workload(shape), shape.m);
  environment.prepare_tuned(exchange_workload(shape), shape.m);
  for (const DType transport : {shape.dtype, DType::f32})
    environment.prepare_tuned(fused_workload(shape, transport), shape.m);
  RankRace race;
  race.enter = [&](const RankContext& context) { return std::make_unique<ProductRacer>(environment, shape, context); };
  race.difference_limit = shape.dtype == DType::f32 ? 1e-4 : 0.03;  // 16-bit partial sums are rounded
  race.operation = kOperations[static_cast<int>(shape.kind)];
  race.dtype = shape.dtype, race.m = shape.m, race.n = shape.n, race.k = shape.k;
  const bool has_gloo = std::ranges::find(selected, "gloo") != selected.end();
  std::vector<Result> results = race_ranks(race, selected, options.rounds, has_gloo ? &environment.gloo() : nullptr);
  compare_methods(results);
  return results;
}

}  // namespace

void add_seqpar_cases(std::vector<Case>& cases, Environment& environment) {
  /// A layer. `hidden` columns are gathered to `wide` columns, or `wide` columns are summed to `hidden` columns.
  struct Layer {
    int64_t wide, hidden;
    std::vector<int64_t> lengths;
    const char* scenario = "";
    bool gathers = true, sums = true;
  };
  // Plain projections, a shape that communication bounds, and layers of two models. q, k and v are one weight, and so
  // are gate and up, so the gathering product is wider than the summing product.
  const Layer layers[] = {{4096, 4096, {256, 512, 1024, 2048, 4096}},
                          {14336, 4096, {256, 1024, 4096}},
                          {1024, 1024, {8192}},
                          {3 * 4096, 4096, {256, 1024}, "llama_07B_mha_", true, false},
                          {4096, 4096, {256, 1024}, "llama_07B_mha_", false, true},
                          {2 * 11008, 4096, {256, 1024}, "llama_07B_ffn_", true, false},
                          {11008, 4096, {256, 1024}, "llama_07B_ffn_", false, true},
                          {3 * 8192, 8192, {256}, "llama_70B_mha_", true, false},
                          {8192, 8192, {256}, "llama_70B_mha_", false, true},
                          {2 * 28672, 8192, {256}, "llama_70B_ffn_", true, false},
                          {28672, 8192, {256}, "llama_70B_ffn_", false, true}};
  std::vector<std::string> methods = {"fused", "fused_nowait", "unfused", "compute_lower_bound", "comms_lower_bound"};
  if (environment.has_torch()) methods.push_back("gloo");
  for (const Kind kind : {Kind::gather, Kind::scatter, Kind::all_reduce})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const Layer& layer : layers)
        for (const int64_t m : layer.lengths) {
          const bool gathers = kind == Kind::gather;
          if (!(gathers ? layer.gathers : layer.sums)) continue;
          if (*layer.scenario && dtype != DType::bf16) continue;
          const Shape shape{kind, dtype, m, gathers ? layer.wide : layer.hidden, gathers ? layer.hidden : layer.wide};
          Case item;
          item.operation = kOperations[static_cast<int>(kind)];
          item.dtype = dtype_name(dtype);
          item.shape = fmt::format("m{}_n{}_k{}_{}p{}", m, shape.n, shape.k, layer.scenario, kRaceRanks);
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
