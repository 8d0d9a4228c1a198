// tests/support/fakes/exit_helper.cpp -- a program that exits with code 7 while its threads are inside the library.
// SPDX-License-Identifier: Apache-2.0
//
// exit_helper FOLDER HOW, with HOW one of:
//   exit, return, thread   main exits, main returns, a third thread exits, while two threads call an operation
//   statics                as exit; engine and handle are statics of the program, destroyed while they are called
//   compile, first_compile while two threads compile, or one does for the first time in the process
//   background, tune       while an operation is tuned, on the engine's thread or inside a call
//   statics_background     as background; engine and handle are statics, and the tuning goes on once exit has begun
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "autotune/engine/engine_parts.h"
#include "jit/base/process_exit.h"
#include "seqtile/compiler.h"
#include "seqtile/operations.h"
#include "seqtile/ops/rows.h"
#include "seqtile/tuner.h"

using namespace seqtile;

namespace {

constexpr int kExitCode = 7;
constexpr int64_t kRows = 64, kColumns = 256;

std::atomic<int64_t> calls{0};
std::atomic<bool> is_tuning{false};

struct Operands {
  std::vector<float> x = std::vector<float>(kRows * kColumns, 0.5f), y = x;
  kernels::RmsNorm::Args args() {
    return {.x = make_tensor(x.data(), DType::f32, {kRows, kColumns}),
            .weight = make_tensor(x.data(), DType::f32, {kColumns}),
            .y = make_tensor(y.data(), DType::f32, {kRows, kColumns})};
  }
};

/// The caller owns the handle and may destroy it during the calls.
void call_on_threads(const TypedHandle<kernels::RmsNorm>& handle, bool copies) {
  for (int i = 0; i < 2; ++i) {
    const auto run = [](const TypedHandle<kernels::RmsNorm>& called) {
      Operands operands;
      while (true) called(operands.args()), ++calls;
    };
    if (copies) std::thread([run, handle] { run(handle); }).detach();
    else std::thread([run, &handle] { run(handle); }).detach();
  }
  while (calls < 10) std::this_thread::yield();
}

void compile_on_threads(Engine& engine) {
  for (int i = 0; i < 2; ++i)
    std::thread([&engine, i] {
      for (int64_t n = 64 + i; true; n += 2) engine.prepare(kernels::RmsNorm{.n = n}), ++calls;
    }).detach();
  // Binaries of earlier runs are in the folder; they are loaded and not compiled.
  while (engine.counters().compiles_at_load < 1) std::this_thread::yield();
}

/// Returns during the first compilation.
void compile_first() {
  static std::atomic<bool> has_begun{false};
  std::thread([] {
    static const autotune::Registry registry = kernels::make_registry();
    const autotune::OpDef& op = registry.find("linear");
    const auto workload = op.normalize({"linear", DType::f32, 1, {{"n", int64_t{576}}, {"k", int64_t{576}}}});
    const Target target = host_target();
    const auto kernel = autotune::build_kernel(op, workload, op.default_config(workload, 64, target), target);
    compile(*kernel, target, [](std::string_view, std::string_view) { has_begun = true; });
  }).detach();
  while (!has_begun) std::this_thread::yield();
}

/// Returns when the tuner has begun. The copy of the handle outlives the tuner.
void tune_on_a_thread(TypedHandle<kernels::RmsNorm> handle) {
  std::thread([handle] {
    Operands operands;
    handle(operands.args());
    ++calls;
  }).detach();
  if (!handle.handle().lookup(kRows)) is_tuning.wait(false);  // an earlier run may have left a record
}

EngineOptions options_in(const std::string& folder, MissPolicy policy) {
  return {.threads = 2, .cache = folder + "/tuning.db", .artifacts = folder + "/artifacts.db", .policy = policy};
}

/// Opens an engine that reports the begin of its tuner. With `waits`, the tuner then waits for the exit. It always
/// compiles.
std::unique_ptr<Engine> open(const EngineOptions& options, bool waits) {
  autotune::EngineParts parts = autotune::make_engine_parts(options);
  parts.tune = [waits, tune = parts.tune](const auto& registry, const auto& requests, const auto& device, auto& store,
                                          auto& artifacts, autotune::TuneOptions tuning) {
    is_tuning = true;
    is_tuning.notify_all();
    while (waits && !is_exiting()) std::this_thread::yield();
    if (waits) tuning.interrupt = nullptr;
    return tune(registry, requests, device, store, artifacts, tuning);
  };
  return autotune::open_engine(options, std::make_shared<const autotune::Registry>(kernels::make_registry()),
                               std::move(parts));
}

[[noreturn]] void exit_with_statics(const EngineOptions& options) {
  const bool tunes = options.policy == MissPolicy::background;
  static const auto engine = open(options, tunes);
  static const auto handle = engine->prepare(kernels::RmsNorm{.n = kColumns});
  call_on_threads(handle, false);
  if (tunes && !handle.handle().lookup(kRows)) is_tuning.wait(false);
  std::exit(kExitCode);
}

int run(const std::string& folder, const std::string& how) {
  const MissPolicy policy = how.ends_with("background") ? MissPolicy::background
                            : how == "tune"             ? MissPolicy::tune
                                                        : MissPolicy::nearest;
  const EngineOptions options = options_in(folder, policy);
  if (how.starts_with("statics")) exit_with_statics(options);
  if (how == "first_compile") {
    compile_first();
    std::exit(kExitCode);
  }
  const auto engine = open(options, false);
  if (how == "compile") {
    compile_on_threads(*engine);
    std::exit(kExitCode);
  }
  const auto handle = engine->prepare(kernels::RmsNorm{.n = kColumns});
  if (how == "tune" || how == "background") {
    tune_on_a_thread(handle);
    std::exit(kExitCode);
  }
  call_on_threads(handle, how == "return");
  if (how == "return") return kExitCode;
  if (how == "exit") std::exit(kExitCode);
  std::thread([] { std::exit(kExitCode); }).detach();
  Operands operands;
  while (true) handle(operands.args());
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto registry = kernels::make_registry();
  if (autotune::run_worker(argc, argv, registry, exit_code)) return exit_code;
  if (argc != 3) return 2;
  return run(argv[1], argv[2]);
}
