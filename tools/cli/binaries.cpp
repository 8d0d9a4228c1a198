// tools/cli/binaries.cpp -- see binaries.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/binaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "autotune/tuner.h"
#include "jit/compiler.h"
#include "tools/cli/errors.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// The inverse of Workload::json().
autotune::Workload parse_workload(const cache::TuningKey& key) {
  const autotune::Fields all = autotune::Fields::parse(key.workload_json);
  autotune::Workload workload;
  workload.operation = key.operation;
  workload.dtype = parse_dtype_flag(all.get_string("dtype"));
  workload.threads = static_cast<int>(all.get_int("threads"));
  for (const auto& [name, value] : all.values())
    if (name != "dtype" && name != "threads" && name != "operation") workload.fields.set(name, value);
  return workload;
}

struct Wanted {
  const autotune::OpDef* op;
  autotune::Workload workload;
  autotune::Config config;
};

/// Every distinct binary that records of this environment name, in the order of the file.
std::vector<std::pair<ArtifactKey, Wanted>> wanted_binaries(const autotune::Registry& registry,
                                                            cache::TuningStore& store, Device& device,
                                                            BuildReport& report) {
  std::vector<std::pair<ArtifactKey, Wanted>> wanted;
  std::set<std::string> seen;
  for (const cache::KeyedRecord& keyed : store.all_records()) {
    const autotune::OpDef* op = nullptr;
    for (const auto& known : registry.ops())
      if (known->name == keyed.key.operation) op = known.get();
    if (!op || op->source_hash() != keyed.key.source_hash) {
      ++report.other_records;
      continue;
    }
    const autotune::Workload workload = parse_workload(keyed.key);
    if (autotune::make_key(*op, workload, device.info(), autotune::TuneOptions{}.policy).env_json !=
        keyed.key.env_json) {
      ++report.other_records;
      continue;
    }
    ++report.records;
    Wanted item{op, workload, autotune::Config::parse(keyed.record.config_json)};
    ArtifactKey key = autotune::make_artifact_key(*op, workload, item.config, device.target());
    if (seen.insert(key.hash).second) wanted.emplace_back(std::move(key), std::move(item));
  }
  return wanted;
}

}  // namespace

BuildReport build_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                           Device& device) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  BuildReport report;
  const auto wanted = wanted_binaries(registry, store, device, report);
  report.binaries = static_cast<int64_t>(wanted.size());
  const bool makes_cubins = !device.target().ptxas.empty() && !device.target().cubin_arch.empty();
  Progress progress("cache build");
  for (const auto& [key, item] : wanted) {
    if (interrupt_flag().load()) {
      report.interrupted = true;
      break;
    }
    const double gone = elapsed();
    const int64_t left = report.remaining(), done = report.binaries - left;
    progress.update({item.op->name, done, report.binaries, 0, gone, done ? gone / done * left : 0});
    const auto stored = artifacts.load(key);
    if (stored && !(stored->stage == "ptx" && makes_cubins)) {
      ++report.there;
      continue;
    }
    try {
      const auto function = autotune::build_kernel(*item.op, item.workload, item.config, device.target());
      if (!artifacts.store(key, compile(*function, device.target())))
        throw Error(ErrorCode::io, "its binary could not be stored");
      ++report.compiled;
    } catch (const Error& error) {
      ++report.failed;
      warn(fmt::format("{} {}: {}", item.op->name, format_fields(item.config), error.what()));
    }
  }
  report.seconds = elapsed();
  return report;
}

BuildReport find_binaries(const autotune::Registry& registry, cache::TuningStore& store,
                          const std::set<std::string>& good, Device& device) {
  BuildReport report;
  const auto wanted = wanted_binaries(registry, store, device, report);
  report.binaries = static_cast<int64_t>(wanted.size());
  for (const auto& [key, item] : wanted) report.there += good.contains(key.hash);
  return report;
}

int64_t count_missing_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                               Device& device) {
  BuildReport report;
  const auto wanted = wanted_binaries(registry, store, device, report);
  return std::count_if(wanted.begin(), wanted.end(), [&](const auto& each) { return !artifacts.load(each.first); });
}

}  // namespace seqtile::cli
