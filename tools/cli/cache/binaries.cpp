// tools/cli/cache/binaries.cpp -- see binaries.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/cache/binaries.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "autotune/engine/usable.h"
#include "autotune/keys.h"
#include "seqtile/error.h"
#include "seqtile/tuner.h"
#include "tools/cli/errors.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"

namespace seqtile::cli {

std::optional<std::pair<const autotune::OpDef*, autotune::Workload>> owner_of(const autotune::Registry& registry,
                                                                              const cache::TuningKey& key,
                                                                              const DeviceInfo& device) {
  try {
    const autotune::OpDef& op = registry.find(key.operation);
    const autotune::Fields all = autotune::Fields::parse(key.workload_json);
    autotune::Workload workload{
        key.operation, parse_dtype_flag(all.get_string("dtype")), static_cast<int>(all.get_int("threads")), {}};
    for (const auto& [name, value] : all.values())
      if (name != "dtype" && name != "threads") workload.fields.set(name, value);
    workload = op.normalize(workload);
    const cache::TuningKey own = autotune::make_key(op, workload, device, autotune::TuneOptions{}.policy);
    const bool is_own = own.device_kind == key.device_kind && own.env_json == key.env_json &&
                        own.source_hash == key.source_hash && own.workload_json == key.workload_json;
    if (is_own) return std::pair(&op, std::move(workload));
  } catch (const std::exception&) {  // this release lacks the operation, field or value
  }
  return std::nullopt;
}

namespace {

/// The operation of one key, and the judge of all of its records.
struct Owner {
  const autotune::OpDef* op;
  std::unique_ptr<autotune::Usability> usable;
};

struct Wanted {
  const Owner* owner;
  cache::Record record;
  autotune::Config config;
};

/// The binaries that the records of this device name.
class WantedBinaries {
 public:
  WantedBinaries(const autotune::Registry& registry, cache::TuningStore& store, Device& device, BuildReport& report) {
    std::set<std::string> seen;
    for (const cache::KeyedRecord& keyed : store.all_records()) {
      const Owner* owner = owner_of_key(registry, keyed.key, device);
      if (!owner || keyed.record.bucket_version != autotune::kBucketVersion) {
        ++report.other_records;
        continue;
      }
      ++report.records;
      autotune::Judgement judgement = owner->usable->judge(keyed.record);
      if (!judgement.is_usable()) {
        const cache::Record& record = keyed.record;
        report.refused.push_back({keyed.key.operation, record.lo, record.hi, judgement.refusal});
      } else if (seen.insert(owner->usable->artifact_key(judgement.config).hash).second) {
        list_.push_back({owner, keyed.record, std::move(judgement.config)});
      }
    }
    report.binaries = static_cast<int64_t>(list_.size());
  }
  /// All distinct binaries, in the order of the file.
  const std::vector<Wanted>& list() const { return list_; }

 private:
  /// Returns null for a key of another device, toolchain or version.
  const Owner* owner_of_key(const autotune::Registry& registry, const cache::TuningKey& key, Device& device) {
    const auto [place, is_new] =
        owners_.try_emplace({key.device_kind, key.env_json, key.operation, key.source_hash, key.workload_json});
    if (is_new) {
      if (auto owner = owner_of(registry, key, device.info())) {
        auto& [op, workload] = *owner;
        place->second = {op, std::make_unique<autotune::Usability>(*op, std::move(workload), device.target())};
      }
    }
    return place->second.usable ? &place->second : nullptr;
  }

  std::map<std::array<std::string, 5>, Owner> owners_;
  std::vector<Wanted> list_;
};

}  // namespace

BuildReport build_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore& artifacts,
                           Device& device) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  BuildReport report;
  const WantedBinaries wanted(registry, store, device, report);
  const bool makes_cubins = !device.target().ptxas.empty() && !device.target().cubin_arch.empty();
  Progress progress("cache build");
  for (const auto& [owner, record, config] : wanted.list()) {
    if (interrupt_flag().load()) {
      report.interrupted = true;
      break;
    }
    const double gone = elapsed();
    const int64_t left = report.remaining(), done = report.binaries - left;
    progress.update({owner->op->name, done, report.binaries, 0, gone, done ? gone / done * left : 0});
    const ArtifactKey key = owner->usable->artifact_key(config);
    const bool is_there = owner->usable->judge(record, device, artifacts).is_ready();
    if (is_there && !(makes_cubins && artifacts.load(key)->stage == "ptx")) {
      ++report.there;
      continue;
    }
    try {
      if (!artifacts.store(key, owner->usable->build(config)))
        throw Error(ErrorCode::io, "its binary could not be stored");
      ++report.compiled;
    } catch (const Error& error) {
      ++report.failed;
      warn(fmt::format("{} {}: {}", owner->op->name, format_fields(config), error.what()));
    }
  }
  report.seconds = elapsed();
  return report;
}

BuildReport find_binaries(const autotune::Registry& registry, cache::TuningStore& store, ArtifactStore* artifacts,
                          Device& device) {
  BuildReport report;
  const WantedBinaries wanted(registry, store, device, report);
  for (const auto& [owner, record, config] : wanted.list())
    report.there += artifacts && owner->usable->judge(record, device, *artifacts).is_ready();
  return report;
}

}  // namespace seqtile::cli
