// bench/suites/collectives_bench.cpp -- collectives in one launch per rank, against memcpy with barriers and gloo.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "bench/environment.h"
#include "bench/fused_race.h"
#include "bench/suites.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/seqpar.h"

namespace seqtile::bench {
namespace {

constexpr int64_t kColumns = 4096;

struct Shape {
  std::string operation;
  DType dtype;
  int64_t m;  ///< rows of kColumns columns; even
  int64_t half() const { return m / kRaceRanks; }
};

autotune::Workload workload_of(const Shape& shape) {
  autotune::Workload workload{
      shape.operation,
      shape.dtype,
      1,
      {{"n", kColumns}, {"world_size", int64_t{kRaceRanks}}, {"fabric", std::string("threads")}}};
  if (shape.operation == "broadcast") workload.fields.set("root", int64_t{0});
  return workload;
}

class CollectiveRacer : public Racer {
 public:
  CollectiveRacer(const Environment& environment, const Shape& shape, const RankContext& context)
      : shape_(shape),
        context_(context),
        rank_(context.fabric.rank()),
        x_(shape.dtype, {shape.operation == "all_gather" ? shape.half() : shape.m, kColumns}),
        fused_y_(shape.dtype, {shape.operation == "reduce_scatter" ? shape.half() : shape.m, kColumns}),
        plain_y_(shape.dtype, {fused_y_.tensor().sizes[0], kColumns}),
        handle_(environment.prepare(workload_of(shape))) {
    x_.fill(static_cast<uint64_t>(rank_) + 1, 1);
    if (is_root())
      for (const Operand* y : {&fused_y_, &plain_y_}) std::memcpy(bytes_of(*y), bytes_of(x_), 2 * half_bytes());
    channel_ = std::make_unique<Channel>(
        context.fabric, kernels::seqpar::channel_options(environment.registry(), {workload_of(shape)}, shape.m));
  }

  void run(const std::string& method) override {
    if (method == "unfused") return run_plain();
    const auto own = channel_->tensors();
    const Tensor tensors[] = {is_root() ? fused_y_.tensor() : x_.tensor(), fused_y_.tensor(), own[0], own[1], own[2]};
    handle_.handle(tensors, shape_.m, std::array<int64_t, 1>{});
  }

  void make_reference() override { run_plain(); }

  void poison() override {
    if (!is_root()) fused_y_.poison();
  }

  double difference() const override { return largest_error(fused_y_, plain_y_); }

  void check() const override { channel_->check(); }

 private:
  /// Whether this rank is the root of a broadcast. The broadcast is in place, as in gloo.
  bool is_root() const { return shape_.operation == "broadcast" && rank_ == 0; }
  CollectiveRacer& racer(size_t rank) { return static_cast<CollectiveRacer&>(*context_.racers[rank]); }
  size_t half_bytes() const { return static_cast<size_t>(shape_.half() * kColumns * dtype_bytes(shape_.dtype)); }
  static std::byte* bytes_of(const Operand& operand) { return operand.as<std::byte>(); }

  void run_plain() {
    const size_t own = static_cast<size_t>(rank_) * half_bytes();
    if (shape_.operation == "broadcast") {
      if (is_root()) std::memcpy(bytes_of(racer(1).plain_y_), bytes_of(plain_y_), 2 * half_bytes());
    } else if (shape_.operation == "all_gather") {
      for (size_t peer = 0; peer < kRaceRanks; ++peer)
        std::memcpy(bytes_of(racer(peer).plain_y_) + own, bytes_of(x_), half_bytes());
    } else {
      const bool is_all = shape_.operation == "all_reduce";
      std::byte* sums = bytes_of(plain_y_) + (is_all ? own : 0);
      add_elements(shape_.dtype, bytes_of(racer(0).x_) + own, bytes_of(racer(1).x_) + own, sums,
                   shape_.half() * kColumns);
      if (is_all) std::memcpy(bytes_of(racer(static_cast<size_t>(1 - rank_)).plain_y_) + own, sums, half_bytes());
    }
    context_.barrier.arrive_and_wait();
  }

  const Shape shape_;
  const RankContext context_;
  const int rank_;
  Operand x_, fused_y_, plain_y_;
  TunedHandle handle_;
  std::unique_ptr<Channel> channel_;
};

std::vector<Result> run_case(Environment& environment, const Shape& shape, const std::vector<std::string>& selected,
                             const RunOptions& options) {
  environment.prepare_tuned(workload_of(shape), shape.m);
  RankRace race;
  race.enter = [&](const RankContext& context) {
    return std::make_unique<CollectiveRacer>(environment, shape, context);
  };
  race.difference_limit = 0;
  race.operation = shape.operation;
  race.dtype = shape.dtype, race.m = shape.m, race.n = kRaceRanks, race.k = kColumns;
  const bool has_gloo = std::ranges::find(selected, "gloo") != selected.end();
  std::vector<Result> results = race_ranks(race, selected, options.rounds, has_gloo ? &environment.gloo() : nullptr);
  const auto fused = std::ranges::find(results, "fused", &Result::implementation);
  for (const Result& result : results)
    if (fused != results.end() && result.implementation != "fused")
      fused->counters[result.implementation + "_over_fused"] = median_ratio(result, *fused);
  return results;
}

}  // namespace

void add_collective_cases(std::vector<Case>& cases, Environment& environment) {
  std::vector<std::string> methods = {"fused", "unfused"};
  if (environment.has_torch()) methods.push_back("gloo");
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce", "broadcast"})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const int64_t mebibytes : {4, 16, 64}) {
        const Shape shape{operation, dtype, (mebibytes << 20) / (kColumns * dtype_bytes(dtype))};
        Case item;
        item.operation = operation;
        item.dtype = dtype_name(dtype);
        item.shape = fmt::format("mib{}_p{}", mebibytes, kRaceRanks);
        item.group = "mib4..64";
        item.work = {0, static_cast<double>(mebibytes << 20), static_cast<double>(mebibytes << 20), dtype};
        item.implementations = methods;
        item.run = [&environment, shape](const Case&, const std::vector<std::string>& selected,
                                         const RunOptions& options) {
          return run_case(environment, shape, selected, options);
        };
        cases.push_back(std::move(item));
      }
}

}  // namespace seqtile::bench
