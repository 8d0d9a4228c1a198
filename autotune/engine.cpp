// autotune/engine.cpp -- see seqtile/engine.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/engine.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/core.h>

#include "autotune/engine/background.h"
#include "autotune/engine/handle_state.h"
#include "autotune/engine/kernel_loader.h"
#include "autotune/misses.h"
#include "autotune/worker/process.h"
#include "jit/base/nearest_word.h"
#include "jit/base/process_exit.h"
#include "jit/base/thread_limit.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

using autotune::EngineCore;
using autotune::EngineParts;

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(std::shared_ptr<EngineCore> core) : core_(std::move(core)) {
    if (core_->options.policy != MissPolicy::background || !core_->layers.takes_records()) return;
    background_ = std::make_unique<autotune::BackgroundTuner>([this] { return states(); });
  }

  /// Does nothing while the process exits: the tuning thread may be inside the engine and would not end.
  static void operator delete(EngineImpl* engine, std::destroying_delete_t) {
    if (is_exiting()) return;
    engine->~EngineImpl();
    ::operator delete(engine);
  }

  Handle prepare(const autotune::Workload& workload) override {
    const autotune::OpDef& op = core_->registry->find(workload.operation);
    autotune::Workload threaded = workload;
    threaded.threads = core_->parts.threads;
    autotune::Workload normalized = op.normalize(threaded);
    const std::string name = op.name + normalized.json();
    std::lock_guard preparing(prepare_mutex_);
    {
      std::lock_guard lock(states_mutex_);
      if (const auto known = states_.find(name); known != states_.end()) return Handle(known->second);
    }
    auto state = make_state(core_, op, std::move(normalized));
    std::lock_guard lock(states_mutex_);
    states_.emplace(name, state);
    return Handle(std::move(state));
  }

  EngineCounters counters() const override { return core_->counters(); }
  std::vector<Miss> misses() const override {
    std::vector<Miss> all;
    for (const auto& state : states()) state->add_misses(all);
    return all;
  }
  void write_misses(const std::string& path) const override {
    autotune::write_whole_file(path, autotune::miss_file_text({core_->options.device, misses()}));
  }
  Device& device() override { return *core_->parts.device; }

  void refresh() override {
    core_->read_stores();
    for (const auto& state : states()) state->reload();
  }

 private:
  autotune::BackgroundTuner::States states() const {
    autotune::BackgroundTuner::States all;
    std::lock_guard lock(states_mutex_);
    for (const auto& [name, state] : states_) all.push_back(state);
    return all;
  }

  std::shared_ptr<EngineCore> core_;
  std::mutex prepare_mutex_;  ///< one preparation at a time, because each compiles on all cores
  mutable std::mutex states_mutex_;
  std::map<std::string, std::shared_ptr<Handle::State>> states_;
  std::unique_ptr<autotune::BackgroundTuner> background_;  ///< last member: it stops before the states are destroyed
};

int count_threads(const EngineOptions& options) {
  if (options.executor) return options.executor->num_workers();
  return options.threads > 0 ? options.threads : cores_available();
}

void check(const EngineOptions& options) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::invalid_argument, message); };
  if (options.threads < 0) {
    refuse(fmt::format("threads is {}; it must be at least 1, or 0 for all cores", options.threads));
  }
  if (options.max_length < 0) {
    refuse(fmt::format("max_length is {}; it must be at least 1, or 0 for no limit", options.max_length));
  }
  if (options.max_length > autotune::kMaxLength) {
    refuse(fmt::format("max_length is {}; the limit is {}", options.max_length, autotune::kMaxLength));
  }
  if (static_cast<size_t>(options.policy) > static_cast<size_t>(MissPolicy::tune)) {
    refuse(fmt::format("policy is enumerator {}; there are: strict, default, nearest, background, tune",
                       static_cast<int64_t>(options.policy)));
  }
  if (!options.cache.empty() && options.cache == options.artifacts) {
    refuse(fmt::format("cache and artifacts are both {}; give each store a file of its own", options.cache));
  }
  for (size_t i = 0; i < options.system_caches.size(); ++i) {
    if (options.system_caches[i].empty()) refuse(fmt::format("system_caches[{}] is empty; name a file", i));
  }
  if (options.executor && options.executor->num_workers() < 1) {
    refuse(fmt::format("executor has {} workers; it must have at least 1, the thread that calls",
                       options.executor->num_workers()));
  }
  if (options.executor && options.executor->num_workers() > kMaxWorkers) {
    refuse(fmt::format("executor has {} workers; the limit is {}", options.executor->num_workers(), kMaxWorkers));
  }
  if (options.executor && options.threads > 0 && options.threads != options.executor->num_workers()) {
    refuse(fmt::format("threads is {}, the executor has {}; leave threads at 0", options.threads,
                       options.executor->num_workers()));
  }
  if (options.executor && !options.device.starts_with("cpu")) {
    refuse(fmt::format("device {} does not run on an executor; only cpu does", options.device));
  }
}

}  // namespace

MissPolicy parse_miss_policy(std::string_view name) {
  if (name == "strict") return MissPolicy::strict;
  if (name == "default") return MissPolicy::fallback;
  if (name == "nearest") return MissPolicy::nearest;
  if (name == "background") return MissPolicy::background;
  if (name == "tune") return MissPolicy::tune;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("unknown miss policy '{}'; there are: strict, default, nearest, background, tune{}", name,
                          did_you_mean(name, {"strict", "default", "nearest", "background", "tune"})));
}

namespace autotune {

namespace {

/// Errors: unsupported where the policy tunes and no program can run candidates.
void check_worker(MissPolicy policy) {
  if (policy == MissPolicy::tune || policy == MissPolicy::background) worker_program();
}

EngineParts parts_on(std::shared_ptr<Device> device, int threads) {
  EngineParts parts;
  parts.threads = device->target().is_gpu() ? 1 : threads;  // threads of the host take no part in a GPU's launch
  parts.device = std::move(device);
  parts.compile = compile_shared;
  parts.tune = tune;
  return parts;
}

}  // namespace

EngineParts make_engine_parts(const EngineOptions& options) {
  check_worker(options.policy);
  const int threads = count_threads(options);
  return parts_on(options.executor ? make_cpu_device(*options.executor) : open_device(options.device, threads),
                  threads);
}

EngineParts make_engine_parts(const EngineOptions& options, Fabric& fabric) {
  check_worker(options.policy);
  return parts_on({std::shared_ptr<void>(), &fabric.device()}, std::max(options.threads, 1));
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, std::shared_ptr<const Registry> registry,
                                    EngineParts parts) {
  check(options);
  return std::make_unique<EngineImpl>(std::make_shared<EngineCore>(options, std::move(registry), std::move(parts)));
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, const Registry& registry, EngineParts parts) {
  return open_engine(options, std::shared_ptr<const Registry>(std::shared_ptr<void>(), &registry), std::move(parts));
}

}  // namespace autotune

std::unique_ptr<Engine> Engine::open(const EngineOptions& options, const autotune::Registry& registry) {
  check(options);
  return autotune::open_engine(options, registry, autotune::make_engine_parts(options));
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options, autotune::Registry&& registry) {
  check(options);
  return autotune::open_engine(options, std::make_shared<const autotune::Registry>(std::move(registry)),
                               autotune::make_engine_parts(options));
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options, const autotune::Registry& registry, Fabric& fabric) {
  return autotune::open_engine(options, registry, autotune::make_engine_parts(options, fabric));
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options, autotune::Registry&& registry, Fabric& fabric) {
  return autotune::open_engine(options, std::make_shared<const autotune::Registry>(std::move(registry)),
                               autotune::make_engine_parts(options, fabric));
}

}  // namespace seqtile
