// autotune/engine/kernel_loader.cpp -- see kernel_loader.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/kernel_loader.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "autotune/keys.h"
#include "jit/base/forever.h"
#include "seqtile/compiler.h"
#include "seqtile/device.h"
#include "seqtile/error.h"

namespace seqtile::autotune {

KernelBinary compile_shared(const OpDef& op, const Workload& workload, const Config& config, const Target& target) {
  static std::mutex mutex;
  static auto& running = forever(std::map<std::string, std::shared_future<KernelBinary>>());
  const std::string artifact = make_artifact_key(op, workload, config, target).hash;
  std::packaged_task<KernelBinary()> task([&] { return compile(*build_kernel(op, workload, config, target), target); });
  std::shared_future<KernelBinary> result = task.get_future().share();
  bool is_first = false;
  {
    std::lock_guard lock(mutex);
    const auto place = running.try_emplace(artifact, result);
    result = place.first->second;
    is_first = place.second;
  }
  if (!is_first) return result.get();
  task();
  {
    std::lock_guard lock(mutex);
    running.erase(artifact);
  }
  return result.get();
}

KernelLoader::Result KernelLoader::map(KernelBinary binary) {
  try {
    return {device_.load(std::move(binary)), ""};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

KernelLoader::Result KernelLoader::compile_one(const OpDef& op, const Workload& workload, const Config& config,
                                               const ArtifactKey& key) {
  // Helper threads call this function, and an exception must not leave a thread.
  try {
    KernelBinary binary = compile_(op, workload, config, device_.target());
    artifacts_.store(key, binary);
    return map(std::move(binary));
  } catch (const std::exception& error) {
    return {nullptr, error.what()};
  }
}

std::vector<KernelLoader::Result> KernelLoader::load(const OpDef& op, const Workload& workload,
                                                     std::span<const Config> configs, Usability& usable,
                                                     int64_t& compiles) {
  std::vector<Result> results(configs.size());
  std::vector<ArtifactKey> keys, wanted_keys;
  std::vector<size_t> wanted, missing;
  for (const Config& config : configs) keys.push_back(make_artifact_key(op, workload, config, device_.target()));
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = kernels_.find(keys[i].hash);
      if (found != kernels_.end()) results[i].kernel = found->second;
      else wanted.push_back(i);
    }
  }
  for (size_t i : wanted) wanted_keys.push_back(keys[i]);
  auto binaries = wanted.empty() ? std::vector<std::optional<KernelBinary>>{} : artifacts_.load_all(wanted_keys);
  for (size_t w = 0; w < wanted.size(); ++w) {
    const size_t i = wanted[w];
    if (binaries[w] && usable.misfit(configs[i], *binaries[w]).empty()) results[i] = map(std::move(*binaries[w]));
    if (!results[i].kernel) missing.push_back(i);
  }

  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < missing.size();) {
      results[missing[i]] = compile_one(op, workload, configs[missing[i]], keys[missing[i]]);
    }
  };
  {
    std::vector<std::jthread> helpers;
    const auto cores = static_cast<size_t>(cores_available());
    for (size_t i = 1; i < std::min(cores, missing.size()); ++i) helpers.emplace_back(work);
    work();
  }
  compiles += static_cast<int64_t>(missing.size());

  std::lock_guard lock(mutex_);
  for (size_t i : wanted) {
    if (results[i].kernel) results[i].kernel = kernels_.try_emplace(keys[i].hash, results[i].kernel).first->second;
  }
  return results;
}

}  // namespace seqtile::autotune
