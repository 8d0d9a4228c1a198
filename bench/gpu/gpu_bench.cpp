// bench/gpu/gpu_bench.cpp -- the program seqtile_gpu_bench: our kernels on a GPU beside cuBLAS and a device copy.
// SPDX-License-Identifier: Apache-2.0
//
// Each round overwrites the last-level cache and times every implementation of a case once, between two events. The
// program prints medians over the rounds. Inputs are random, because a GPU draws less power on zeros. The results of
// linear are compared with those of cuBLAS before anything is timed. peers/torch_gpu.py reads the JSON and adds
// PyTorch. If the GPU has code of its own, the portable code of linear competes too. A call's host time is measured
// beside a bare cuLaunchKernel of the same kernel. gpu_goals.h has the goals.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "autotune/call/call_values.h"
#include "bench/gpu/gpu_call.h"
#include "bench/gpu/gpu_goals.h"
#include "bench/peers/cublas.h"
#include "bench/peers/cuda_launch.h"
#include "bench/stats.h"
#include "seqtile/engine.h"
#include "seqtile/error.h"
#include "seqtile/op.h"
#include "seqtile/operations.h"

namespace seqtile::bench {
namespace {

using autotune::Fields;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string device = "cuda:0", filter = ".", cache, artifacts, output;
  int rounds = 15;
  bool list = false, list_workloads = false, small = false;
};

struct GpuCase {
  std::string name, operation;
  Fields fields;
  int64_t length;
};

std::vector<GpuCase> linear_cases(bool small) {
  std::vector<GpuCase> cases;
  const auto add = [&](int64_t m, int64_t n, int64_t k) {
    cases.push_back({fmt::format("linear/bf16/m{}_n{}_k{}", m, n, k), "linear", {{"n", n}, {"k", k}}, m});
  };
  if (small) return add(64, 128, 64), cases;
  add(4096, 4096, 4096);
  add(8192, 8192, 8192);
  // Llama-3-8B: query, key and value, output, gate or up, down.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{6144, 4096}, {4096, 4096}, {14336, 4096}, {4096, 14336}})
    for (const int64_t m : {512, 2048, 8192})
      if (m != 4096 || n != 4096 || k != 4096) add(m, n, k);
  return cases;
}

std::vector<GpuCase> all_cases(bool small) {
  std::vector<GpuCase> cases = linear_cases(small);
  const Fields heads{
      {"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", int64_t{128}}, {"phase", std::string("prefill")}};
  for (const int64_t length : small ? std::vector<int64_t>{64} : std::vector<int64_t>{1024, 2048, 4096, 8192, 16384})
    cases.push_back(
        {fmt::format("attention_forward/bf16/causal_h32_kv8_d128_s{}", length), "attention_forward", heads, length});
  const int64_t rows = small ? 16 : 8192;
  cases.push_back({fmt::format("rms_norm/bf16/m{}_n4096", rows), "rms_norm", {{"n", int64_t{4096}}}, rows});
  cases.push_back({fmt::format("softmax/bf16/m{}_n4096", rows), "softmax", {{"n", int64_t{4096}}}, rows});
  cases.push_back({fmt::format("act_and_mul/bf16/m{}_n14336", rows), "act_and_mul", {{"n", int64_t{14336}}}, rows});
  return cases;
}

int ordinal_of(const std::string& device) {
  const size_t colon = device.find(':');
  return colon == std::string::npos ? 0 : std::atoi(device.c_str() + colon + 1);
}

struct Contestant {
  std::string name;
  std::function<void(Stream)> run;
  std::vector<double> us;
};

constexpr const char* kHostCase = "gpu/host_time/rms_norm_bf16_m1_n4096";

class Program {
 public:
  explicit Program(const Arguments& arguments)
      : arguments_(arguments),
        registry_(kernels::make_registry()),
        engine_(Engine::open(
            {.device = arguments.device, .threads = 1, .cache = arguments.cache, .artifacts = arguments.artifacts},
            registry_)),
        device_(engine_->device()),
        cublas_(device_.info().kind == "cuda" ? open_cublas() : nullptr),
        flush_(device_.memory(), arguments.small ? 1 << 10 : size_t{256} << 20),
        stream_(device_.streams()) {}

  Json run(const GpuCase& item) {
    const autotune::OpDef& op = registry_.find(item.operation);
    const Handle handle = engine_->prepare(autotune::Workload{item.operation, DType::bf16, 1, item.fields});
    GpuCall call(device_, op, handle, item.length);
    std::vector<Contestant> contestants{
        {"seqtile", [&](Stream stream) { handle(call.tensors(), call.length(), call.scalars(handle), stream); }, {}}};
    const autotune::Cost cost = op.cost(handle.workload(), call.symbols());
    const size_t half = static_cast<size_t>(cost.bytes_read + cost.bytes_written) / 2;
    DeviceBuffer from(device_.memory(), half), to(device_.memory(), half);
    std::unique_ptr<BareKernel> portable;
    std::unique_ptr<LoadedKernel> loaded;
    if (item.operation == "linear" && device_.info().kind == "cuda" && device_.target().has_wgmma) {
      portable = std::make_unique<BareKernel>(op, handle, call, portable_target(device_.target()));
      loaded = device_.load(portable->binary());
      contestants.push_back(
          {"portable",
           [&](Stream stream) { device_.launch(*loaded, portable->grid(), portable->slots(), stream); },
           {}});
    }
    if (item.operation == "linear" && cublas_) {
      contestants.push_back({"cublas",
                             [&](Stream stream) {
                               cublas_->linear(call.tensors()[0], call.tensors()[1], output_of(handle, call), stream);
                             },
                             {}});
      compare(item, contestants, output_of(handle, call));
    } else if (item.operation != "linear" && cost.flops < 100 * (cost.bytes_read + cost.bytes_written)) {
      contestants.push_back(
          {"copy", [&](Stream stream) { device_.memory().copy(to.data(), from.data(), half, stream); }, {}});
    }
    time(contestants);
    return report(item, cost, contestants);
  }

  /// Host time of calls issued one after the other; the queue has room for all of them.
  Json run_host() {
    constexpr int kCalls = 200;
    const autotune::OpDef& op = registry_.find("rms_norm");
    const Handle handle = engine_->prepare(autotune::Workload{"rms_norm", DType::bf16, 1, {{"n", int64_t{4096}}}});
    GpuCall call(device_, op, handle, 1);
    const BareKernel bare(op, handle, call, portable_target(device_.target()));
    const auto launch =
        device_.info().kind == "cuda" ? open_cuda_launch(bare.binary(), ordinal_of(arguments_.device)) : nullptr;
    std::vector<Contestant> contestants{
        {"seqtile", [&](Stream stream) { handle(call.tensors(), call.length(), call.scalars(handle), stream); }, {}}};
    if (launch)
      contestants.push_back({"launch", [&](Stream stream) { (*launch)(bare.grid(), bare.slots(), stream); }, {}});
    for (int round = -2; round < 5 * arguments_.rounds; ++round)
      for (Contestant& contestant : contestants) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kCalls; ++i) contestant.run(stream_);
        const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
        device_.streams().synchronize(stream_);
        if (round >= 0) contestant.us.push_back(us.count() / kCalls);
      }
    Json row{{"name", kHostCase}, {"operation", "rms_norm"}, {"length", call.length()}};
    add_times(row, contestants);
    if (launch) row["us_above_launch"] = median(contestants[0].us) - median(contestants[1].us);
    return row;
  }

  std::string peer() const { return cublas_ ? cublas_->version() : "no cuBLAS"; }
  const DeviceInfo& device() const { return device_.info(); }

 private:
  static const Tensor& output_of(const Handle& handle, const GpuCall& call) {
    for (size_t i = 0; i < call.tensors().size(); ++i)
      if (handle.schema().args[i].role == autotune::ArgRole::output) return call.tensors()[i];
    throw Error(ErrorCode::internal, "an operation without an output");
  }

  /// Compares the first results of all contestants with those of the last one, cuBLAS. Errors: wrong_result.
  void compare(const GpuCase& item, std::vector<Contestant>& contestants, const Tensor& output) {
    std::vector<std::vector<double>> results;
    for (Contestant& contestant : contestants) {
      contestant.run(stream_);
      std::vector<uint16_t> values(static_cast<size_t>(std::min<int64_t>(output.num_elements(), 4096)));
      device_.memory().copy(values.data(), output.data, 2 * values.size(), stream_);
      device_.streams().synchronize(stream_);
      results.push_back(read_elements(make_tensor(values.data(), DType::bf16, {std::ssize(values)})));
    }
    for (size_t one = 0; one + 1 < results.size(); ++one) {
      const autotune::Difference difference = autotune::compare(results[one], results.back(), {0.05, 0.02});
      if (!difference.is_within())
        throw Error(ErrorCode::wrong_result,
                    fmt::format("{}: element {} of {} is {}, cuBLAS says {}", item.name, difference.element,
                                contestants[one].name, difference.got, difference.want));
    }
  }

  void time(std::vector<Contestant>& contestants) {
    const auto start = device_.streams().create_event(), end = device_.streams().create_event();
    for (int round = -2; round < arguments_.rounds; ++round)  // two to warm up
      for (Contestant& contestant : contestants) {
        device_.memory().fill(flush_.data(), static_cast<uint8_t>(round), flush_.bytes(), stream_);
        start->record(stream_);
        contestant.run(stream_);
        end->record(stream_);
        const double us = end->us_since(*start);
        if (round >= 0) contestant.us.push_back(us);
      }
  }

  static void add_times(Json& json, const std::vector<Contestant>& contestants) {
    for (const Contestant& contestant : contestants) {
      json["us"][contestant.name] = median(contestant.us);
      json["p20_us"][contestant.name] = quantile(contestant.us, 0.2);
      json["p80_us"][contestant.name] = quantile(contestant.us, 0.8);
    }
  }

  static Json report(const GpuCase& item, const autotune::Cost& cost, const std::vector<Contestant>& contestants) {
    Json json{{"name", "gpu/" + item.name}, {"operation", item.operation}, {"length", item.length}};
    for (const auto& field : item.fields.values())
      std::visit([&](const auto& value) { json["fields"][field.first] = value; }, field.second);
    add_times(json, contestants);
    for (const Contestant& contestant : contestants) {
      const double us = median(contestant.us);
      json["tflops"][contestant.name] = 1e-6 * cost.flops / us;
      json["gb_per_s"][contestant.name] = 1e-3 * (cost.bytes_read + cost.bytes_written) / us;
    }
    const Json& us = json["us"];
    for (const char* peer : {"cublas", "copy"})
      if (us.contains(peer))
        json[fmt::format("ratio_to_{}", peer)] = us[peer].get<double>() / us["seqtile"].get<double>();
    if (us.contains("portable") && us.contains("cublas"))
      json["portable_to_cublas"] = us["cublas"].get<double>() / us["portable"].get<double>();
    return json;
  }

  const Arguments& arguments_;
  autotune::Registry registry_;
  std::unique_ptr<Engine> engine_;
  Device& device_;
  std::unique_ptr<Cublas> cublas_;
  DeviceBuffer flush_;
  OwnedStream stream_;
};

void print_host_row(const Json& row) {
  std::string line = fmt::format("{:52} {:10.2f} us of the host a call", row["name"].get<std::string>(),
                                 row["us"]["seqtile"].get<double>());
  if (row.contains("us_above_launch"))
    line += fmt::format("  {:.2f} us above cuLaunchKernel", row["us_above_launch"].get<double>());
  fmt::print("{}\n", line);
}

void print_row(const Json& row) {
  std::string line = fmt::format("{:52} {:10.1f} us {:8.1f} TFLOP/s {:8.0f} GB/s", row["name"].get<std::string>(),
                                 row["us"]["seqtile"].get<double>(), row["tflops"]["seqtile"].get<double>(),
                                 row["gb_per_s"]["seqtile"].get<double>());
  for (const char* peer : {"cublas", "copy"})
    if (row.contains(std::string("ratio_to_") + peer))
      line += fmt::format("  {:.2f} of {}", row[std::string("ratio_to_") + peer].get<double>(), peer);
  if (row.contains("portable_to_cublas"))
    line += fmt::format(", portable form {:.2f}", row["portable_to_cublas"].get<double>());
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// The arguments of `seqtile tune` for a case.
std::string tune_arguments(const GpuCase& item) {
  std::string line = item.operation;
  for (const auto& [name, value] : item.fields.values())
    std::visit([&, &field = name](const auto& one) { line += fmt::format(" --set {}={}", field, one); }, value);
  return line + fmt::format(" --dtype bf16 --length {}", item.length);
}

int run(const Arguments& arguments) {
  const std::regex filter(arguments.filter);
  std::vector<GpuCase> cases;
  for (GpuCase& item : all_cases(arguments.small))
    if (std::regex_search("gpu/" + item.name, filter)) cases.push_back(std::move(item));
  const bool with_host = std::regex_search(kHostCase, filter);
  if (arguments.list_workloads) {
    for (const GpuCase& item : cases) fmt::print("{}\n", tune_arguments(item));
    return 0;
  }
  if (arguments.list) {
    for (const GpuCase& item : cases) fmt::print("gpu/{}\n", item.name);
    if (with_host) fmt::print("{}\n", kHostCase);
    return 0;
  }
  Program program(arguments);
  fmt::print("{} ({}), {}, median of {} rounds\n", arguments.device, program.device().name, program.peer(),
             arguments.rounds);
  Json rows = Json::array();
  for (const GpuCase& item : cases) {
    rows.push_back(program.run(item));
    print_row(rows.back());
  }
  if (with_host) {
    rows.push_back(program.run_host());
    print_host_row(rows.back());
  }
  const Json goals = decide_goals(rows);
  print_goals(goals);
  if (arguments.output.empty()) return 0;
  std::ofstream file(arguments.output);
  file << Json{{"device", program.device().name},
               {"peer", program.peer()},
               {"rounds", arguments.rounds},
               {"goals", goals},
               {"benchmarks", rows}}
              .dump(1)
       << "\n";
  if (!file.flush()) throw Error(ErrorCode::io, "--output " + arguments.output + ": cannot be written");
  return 0;
}

}  // namespace
}  // namespace seqtile::bench

int main(int argc, char** argv) {
  seqtile::bench::Arguments arguments;
  CLI::App app("Measures kernels on a GPU beside cuBLAS and a device copy; verifies before it times");
  app.add_option("--device", arguments.device, "cuda:N, or sim:sm_80 with --small to try the program");
  app.add_option("--filter", arguments.filter, "Regular expression on names");
  app.add_option("--cache", arguments.cache, "tuning.db (default: the user's)");
  app.add_option("--artifacts", arguments.artifacts, "artifacts.db (default: the user's)");
  app.add_option("--rounds", arguments.rounds, "Rounds (default 15)")->check(CLI::PositiveNumber);
  app.add_option("-o,--output", arguments.output, "Write all numbers as JSON");
  app.add_flag("--list", arguments.list, "Print the names and measure nothing");
  app.add_flag("--list-workloads", arguments.list_workloads, "Print for each case what `seqtile tune` takes for it");
  app.add_flag("--small", arguments.small, "Shapes that a simulated GPU can do");
  CLI11_PARSE(app, argc, argv);
  try {
    return seqtile::bench::run(arguments);
  } catch (const seqtile::Error& error) {
    fmt::print(stderr, "seqtile_gpu_bench: {}\n", error.what());
    const bool is_machine =
        error.code() == seqtile::ErrorCode::driver || error.code() == seqtile::ErrorCode::unsupported;
    return is_machine ? 3 : 1;
  }
}
