// bench/suites/host_bench.cpp -- host times around kernels: lookup, call, check of indices, compilation, opening.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <random>
#include <set>

#include "autotune/engine/index_check.h"
#include "autotune/keys.h"
#include "bench/operands.h"
#include "bench/stats.h"
#include "bench/suites.h"
#include "seqtile.h"
#include "seqtile/compiler.h"
#include "seqtile/stores.h"

namespace seqtile::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTop = 4096;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

/// Records and binaries in a folder that the destructor removes.
class SyntheticCache {
 public:
  SyntheticCache(const Environment& environment, int threads, std::string device = "cpu")
      : registry_(environment.registry()),
        threads_(threads),
        folder_(std::filesystem::temp_directory_path() / fmt::format("seqtile_bench_{}", getpid())),
        device_name_(std::move(device)),
        device_(open_device(device_name_, threads)) {
    std::filesystem::create_directories(folder_);
    artifacts_ = cache::ArtifactDb::open(artifacts_path(), cache::default_key_path());
  }
  ~SyntheticCache() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  SyntheticCache(const SyntheticCache&) = delete;
  SyntheticCache& operator=(const SyntheticCache&) = delete;

  /// Adds every bucket of 1..kTop with its default configuration.
  void add_whole_ladder(int64_t n) {
    const autotune::OpDef& op = registry_.find("linear");
    const autotune::Workload& workload =
        workloads_.emplace_back(op.normalize({"linear", DType::f32, threads_, {{"n", n}, {"k", 576}}}));
    for (const autotune::Bucket& bucket : autotune::buckets(1, kTop)) {
      add(workload, bucket, op.default_config(workload, bucket.hi, device_->target()));
    }
  }

  /// Adds the last `count` buckets with the default configuration of the longest length, so that they share one binary.
  void add_one_binary(int64_t n, size_t count) {
    const autotune::OpDef& op = registry_.find("rms_norm");
    const autotune::Workload& workload =
        workloads_.emplace_back(op.normalize({"rms_norm", DType::f32, threads_, {{"n", n}}}));
    const autotune::Config config = op.default_config(workload, kTop, device_->target());
    const auto ladder = autotune::buckets(1, kTop);
    for (size_t i = ladder.size() - count; i < ladder.size(); ++i) add(workload, ladder[i], config);
  }

  /// Adds the bucket of `length` with its default configuration.
  void add_bucket(const autotune::Workload& given, int64_t length) {
    const autotune::OpDef& op = registry_.find(given.operation);
    const autotune::Workload& workload = workloads_.emplace_back(op.normalize(given));
    add(workload, autotune::bucket(length), op.default_config(workload, length, device_->target()));
  }

  void publish() { cache::TuningStore::open(tuning_path(), cache::OpenMode::read_write)->publish_all(records_); }

  std::unique_ptr<Engine> open_engine(Executor* executor = nullptr) const {
    EngineOptions options;
    options.device = device_name_;
    options.threads = threads_;
    options.executor = executor;
    options.cache = tuning_path();
    options.artifacts = artifacts_path();
    options.policy = MissPolicy::strict;
    return Engine::open(options, registry_);
  }
  /// The options of open_engine(), for the C interface.
  std::string c_options() const {
    return fmt::format(R"({{"threads": {}, "cache": "{}", "artifacts": "{}", "policy": "strict"}})", threads_,
                       tuning_path(), artifacts_path());
  }
  const std::vector<autotune::Workload>& workloads() const { return workloads_; }

 private:
  std::string tuning_path() const { return (folder_ / "tuning.db").string(); }
  std::string artifacts_path() const { return (folder_ / "artifacts.db").string(); }

  void add(const autotune::Workload& workload, const autotune::Bucket& bucket, const autotune::Config& config) {
    const autotune::OpDef& op = registry_.find(workload.operation);
    cache::Record record;
    record.bucket_version = autotune::kBucketVersion;
    record.lo = bucket.lo;
    record.hi = record.measured_length = bucket.hi;
    record.origin = cache::Origin::tuned;
    record.config_json = config.json();
    record.median_us = record.default_us = 1;
    record.samples = 1;
    records_.push_back(
        {autotune::make_key(op, workload, device_->info(), autotune::TuneOptions{}.policy), std::move(record)});
    const auto key = autotune::make_artifact_key(op, workload, config, device_->target());
    if (!compiled_.insert(key.hash).second) return;
    const auto function = autotune::build_kernel(op, workload, config, device_->target());
    artifacts_->store(key, compile(*function, device_->target()));
  }

  const autotune::Registry& registry_;
  int threads_;
  std::filesystem::path folder_;
  std::string device_name_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<cache::ArtifactDb> artifacts_;
  std::vector<autotune::Workload> workloads_;
  std::vector<cache::KeyedRecord> records_;
  std::set<std::string> compiled_;
};

std::vector<int64_t> random_lengths(int count) {
  std::mt19937_64 random(1);
  std::vector<int64_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % kTop));
  return lengths;
}

/// Processor time of this process, which other load on the machine hardly changes.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Result with_quantiles(std::vector<double> seconds, double unit, const std::string& suffix) {
  Result result;
  result.implementation = "seqtile";
  result.calls = static_cast<int64_t>(seconds.size());
  result.counters = {{"p50_" + suffix, median(seconds) / unit}, {"p99_" + suffix, quantile(seconds, 0.99) / unit}};
  result.seconds = std::move(seconds);
  return result;
}

/// Times batches of 16 lookups of random lengths, because reading the clock takes about as long as one lookup.
Result measure_lookup(const Environment& environment, int threads) {
  SyntheticCache cache(environment, threads);
  cache.add_whole_ladder(576);
  cache.publish();
  const auto engine = cache.open_engine();
  const Handle handle = engine->prepare(cache.workloads()[0]);
  const auto lengths = random_lengths(1 << 16);
  std::vector<double> seconds;
  bool is_hit = true;
  for (size_t i = 0; i + 16 <= lengths.size(); i += 16) {
    const auto start = Clock::now();
    for (size_t j = i; j < i + 16; ++j) is_hit = handle.lookup(lengths[j]) && is_hit;
    seconds.push_back(seconds_between(start, Clock::now()) / 16);
  }
  Result result = with_quantiles(std::move(seconds), 1e-9, "ns");
  if (!is_hit) result.failure = "a length of 1..4096 found no record";
  return result;
}

/// Records the time of the hand-off and runs nothing.
class StampingExecutor : public Executor {
 public:
  explicit StampingExecutor(int workers) : workers_(workers) {}
  int num_workers() const override { return workers_; }
  void run(int64_t, Task, void*) override { stamp = Clock::now(); }
  Clock::time_point stamp{};

 private:
  int workers_;
};

Result measure_call(const Environment& environment, int threads) {
  SyntheticCache cache(environment, threads);
  cache.add_whole_ladder(576);
  cache.publish();
  StampingExecutor executor(threads);
  const auto engine = cache.open_engine(&executor);
  const Handle handle = engine->prepare(cache.workloads()[0]);
  const int64_t n = cache.workloads()[0].fields.get_int("n"), k = cache.workloads()[0].fields.get_int("k");
  const Operand x(DType::f32, {kTop, k}), w(DType::f32, {n, k}), y(DType::f32, {kTop, n});
  Tensor tensors[] = {x.tensor(), w.tensor(), y.tensor()};
  std::vector<double> seconds;
  for (int64_t length : random_lengths(20000)) {
    tensors[0].sizes[0] = tensors[2].sizes[0] = length;
    executor.stamp = {};
    const auto start = Clock::now();
    handle(tensors, length);
    // A grid that runs inline on the caller is not handed to the executor.
    if (executor.stamp != Clock::time_point{}) seconds.push_back(seconds_between(start, executor.stamp));
  }
  Result result = with_quantiles(std::move(seconds), 1e-6, "us");
  if (result.calls == 0) result.failure = "no call reached the executor";
  return result;
}

/// Times the smallest call of a decode step that has index tensors, attention of one sequence to one key with the heads
/// of SmolLM2-135M, and beside it the check of these tensors, which is a part of the call.
Result measure_index_check(const Environment& environment, int threads) {
  constexpr int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;
  constexpr int kBatches = 20000, kCalls = 16;
  SyntheticCache cache(environment, threads);
  cache.add_bucket({"attention_forward",
                    DType::f32,
                    threads,
                    {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"head_dim", kHeadDim}, {"phase", "decode"}}},
                   1);
  cache.publish();
  const auto engine = cache.open_engine();
  const Handle handle = engine->prepare(cache.workloads()[0]);
  Operand q(DType::f32, {1, kHeads, kHeadDim}), k(DType::f32, {1, kKvHeads, kHeadDim}),
      v(DType::f32, {1, kKvHeads, kHeadDim}), out(DType::f32, {1, kHeads, kHeadDim}), lse(DType::f32, {1, kHeads});
  for (Operand* operand : {&q, &k, &v}) operand->fill(1, 1);
  int32_t q_start[] = {0, 1}, kv_start[] = {0}, kv_len[] = {1};
  const Tensor tensors[] = {q.tensor(),
                            k.tensor(),
                            v.tensor(),
                            make_tensor(q_start, DType::i32, {2}),
                            make_tensor(kv_start, DType::i32, {1}),
                            make_tensor(kv_len, DType::i32, {1}),
                            out.tensor(),
                            lse.tensor()};
  const autotune::Schema schema = environment.registry().find("attention_forward").schema(cache.workloads()[0]);
  const autotune::IndexCheck check(schema, schema.symbols);
  const std::vector<int64_t> symbols(schema.symbols.size(), 1);
  std::vector<double> calls, checks;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) handle(tensors, 1);
    const auto middle = Clock::now();
    for (int i = 0; i < kCalls; ++i) check.check(tensors, symbols);
    checks.push_back(seconds_between(middle, Clock::now()) / kCalls);
    calls.push_back(seconds_between(start, middle) / kCalls);
  }
  Result result = with_quantiles(std::move(calls), 1e-9, "ns");
  result.counters["check_p50_ns"] = median(checks) * 1e9;
  result.counters["check_p99_ns"] = quantile(checks, 0.99) * 1e9;
  result.counters["check_percent"] = 100 * median(checks) / median(result.seconds);
  return result;
}

DLTensor dlpack_of(Tensor& tensor) {
  DLTensor dl{};
  dl.data = tensor.data;
  dl.device = {kDLCPU, 0};
  dl.ndim = tensor.rank;
  dl.dtype = {kDLFloat, 32, 1};
  dl.shape = tensor.sizes.data();
  dl.strides = tensor.strides.data();
  return dl;
}

/// Times a call through the C interface beside the same call of the C++ handle, in turns: a row of 16 elements, so that
/// the kernel takes next to nothing.
Result measure_c_call(const Environment& environment) {
  constexpr int64_t kN = 16;
  constexpr int kBatches = 20000, kCalls = 16;
  SyntheticCache cache(environment, 1);
  cache.add_bucket({"rms_norm", DType::f32, 1, {{"n", kN}}}, 1);
  cache.publish();
  const auto engine = cache.open_engine();
  const Handle handle = engine->prepare(cache.workloads()[0]);
  seqtile_engine* c_engine = nullptr;
  seqtile_op* c_op = nullptr;
  Result result;
  if (seqtile_engine_open(cache.c_options().c_str(), &c_engine) ||
      seqtile_engine_prepare(c_engine, "rms_norm", R"({"n": 16})", &c_op)) {
    result.failure = seqtile_last_error();
  } else {
    Operand x(DType::f32, {1, kN}), weight(DType::f32, {kN}), y(DType::f32, {1, kN});
    x.fill(1, 1);
    Tensor tensors[] = {x.tensor(), weight.tensor(), y.tensor()};
    const DLTensor dl[] = {dlpack_of(tensors[0]), dlpack_of(tensors[1]), dlpack_of(tensors[2])};
    const DLTensor* const arguments[] = {&dl[0], &dl[1], &dl[2]};
    handle(tensors, 1);
    const std::vector<double> want = read_elements(tensors[2]);
    fill_normal(tensors[2], 0, 1, 2);
    std::vector<double> of_handle, of_c;
    bool is_ok = seqtile_op_call(c_op, arguments, 3, SEQTILE_LENGTH_OF_TENSORS, nullptr) == SEQTILE_OK &&
                 read_elements(tensors[2]) == want;
    for (int batch = 0; batch < kBatches; ++batch) {
      const auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) handle(tensors, 1);
      const auto middle = Clock::now();
      for (int i = 0; i < kCalls; ++i)
        is_ok = seqtile_op_call(c_op, arguments, 3, SEQTILE_LENGTH_OF_TENSORS, nullptr) == SEQTILE_OK && is_ok;
      of_c.push_back(seconds_between(middle, Clock::now()) / kCalls);
      of_handle.push_back(seconds_between(start, middle) / kCalls);
    }
    result = with_quantiles(of_c, 1e-9, "ns");
    result.counters["handle_p50_ns"] = median(of_handle) * 1e9;
    result.counters["more_p50_ns"] = (median(of_c) - median(of_handle)) * 1e9;
    if (!is_ok) result.failure = fmt::format("a call failed, or has another result: {}", seqtile_last_error());
  }
  seqtile_op_release(c_op);
  seqtile_engine_release(c_engine);
  return result;
}

/// Times the way from building the tile IR to a loaded kernel.
Result measure_compile(const Environment& environment, const autotune::Workload& given, int rounds) {
  const autotune::OpDef& op = environment.registry().find(given.operation);
  const autotune::Workload workload = op.normalize(given);
  const auto device = open_device("cpu", workload.threads);
  const autotune::Config config = op.default_config(workload, 512, device->target());
  std::vector<double> seconds, cpu;
  for (int round = 0; round < rounds; ++round) {
    const double cpu_start = cpu_seconds();
    const auto start = Clock::now();
    const auto function = autotune::build_kernel(op, workload, config, device->target());
    const auto kernel = device->load(compile(*function, device->target()));
    seconds.push_back(seconds_between(start, Clock::now()));
    cpu.push_back(cpu_seconds() - cpu_start);
  }
  Result result = with_quantiles(std::move(seconds), 1e-3, "ms");
  result.counters["cpu_ms"] = median(cpu) * 1e3;
  return result;
}

/// Times opening an engine, preparing every handle and loading every binary.
Result measure_open(SyntheticCache& cache, int rounds) {
  cache.publish();
  std::vector<double> seconds, cpu;
  int64_t compiles = 0;
  for (int round = 0; round < rounds; ++round) {
    const double cpu_start = cpu_seconds();
    const auto start = Clock::now();
    const auto engine = cache.open_engine();
    for (const auto& workload : cache.workloads()) engine->prepare(workload);
    seconds.push_back(seconds_between(start, Clock::now()));
    cpu.push_back(cpu_seconds() - cpu_start);
    compiles += engine->counters().compiles + engine->counters().compiles_at_load;
  }
  Result result = with_quantiles(std::move(seconds), 1e-3, "ms");
  result.counters["compiles"] = static_cast<double>(compiles);
  result.counters["cpu_ms"] = median(cpu) * 1e3;
  return result;
}

Case host_case(std::string operation, std::string shape, int threads,
               std::function<Result(int threads, const RunOptions&)> measure) {
  Case item;
  item.operation = std::move(operation);
  item.dtype = "f32";
  item.shape = std::move(shape);
  item.threads = threads;
  item.implementations = {"seqtile"};
  item.run = [measure, threads](const Case&, const std::vector<std::string>&, const RunOptions& options) {
    return std::vector<Result>{measure(threads, options)};
  };
  return item;
}

std::vector<autotune::Workload> compiled_workloads() {
  return {{"linear", DType::f32, 1, {{"n", 4096}, {"k", 4096}}},
          {"attention_forward", DType::f32, 1, {{"heads", 32}, {"kv_heads", 8}, {"head_dim", 128}}},
          {"rms_norm", DType::f32, 1, {{"n", 4096}}},
          {"softmax", DType::f32, 1, {{"n", 4096}}},
          {"act_and_mul", DType::f32, 1, {{"n", 14336}}}};
}

}  // namespace

void add_host_cases(std::vector<Case>& cases, Environment& environment) {
  for (int threads : environment.options().threads) {
    cases.push_back(host_case("lookup", "n576_k576", threads,
                              [&environment](int t, const RunOptions&) { return measure_lookup(environment, t); }));
    cases.push_back(host_case("call_to_hand_off", "n576_k576", threads,
                              [&environment](int t, const RunOptions&) { return measure_call(environment, t); }));
    cases.push_back(host_case("open", "records1000_binaries100", threads, [&environment](int t, const RunOptions& o) {
      SyntheticCache cache(environment, t);
      for (int i = 0; i < 100; ++i) cache.add_one_binary(16 * (i + 36), 10);
      return measure_open(cache, o.rounds);
    }));
  }
  cases.push_back(host_case("index_check", "decode_heads9_keys1", 1,
                            [&environment](int t, const RunOptions&) { return measure_index_check(environment, t); }));
  cases.push_back(host_case("c_call", "rms_norm_n16", 1,
                            [&environment](int, const RunOptions&) { return measure_c_call(environment); }));
  cases.push_back(host_case("open", "gpu_linear_n4096_k4096", 1, [&environment](int t, const RunOptions& o) {
    SyntheticCache cache(environment, t, "sim:sm_90a");
    cache.add_bucket({"linear", DType::bf16, t, {{"n", 4096}, {"k", 4096}}}, 512);
    return measure_open(cache, o.rounds);
  }));
  for (const autotune::Workload& workload : compiled_workloads()) {
    cases.push_back(host_case("compile", workload.operation, 1, [&environment, workload](int, const RunOptions& o) {
      return measure_compile(environment, workload, o.rounds);
    }));
  }
}

}  // namespace seqtile::bench
