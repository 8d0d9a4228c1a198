// tools/cli/coverage.cpp -- see coverage.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/coverage.h"

#include <algorithm>
#include <map>

#include "autotune/bucket.h"
#include "autotune/key_difference.h"
#include "jit/error.h"
#include "tools/cli/key_text.h"

namespace seqtile::cli {
namespace {

using autotune::Bucket;

/// The reason why a stored binary cannot be used, or nothing. A configuration's answer is asked for once.
class BinaryCheck {
 public:
  BinaryCheck(Device& device, ArtifactStore& artifacts, std::string next_build)
      : device_(device), artifacts_(artifacts), next_build_(std::move(next_build)) {}

  std::map<std::string, int64_t> stages;

  const std::string& problem(const ArtifactKey& key) {
    const auto [found, is_new] = known_.try_emplace(key.hash);
    if (is_new) found->second = load(key);
    return found->second;
  }

 private:
  std::string load(const ArtifactKey& key) {
    auto binary = artifacts_.load(key);
    if (!binary) return "no binary for its configuration; run " + next_build_;
    try {
      const std::string stage = binary->stage;
      device_.load(std::move(*binary));
      ++stages[stage];
      return {};
    } catch (const Error& error) {
      return std::string("its binary does not load: ") + error.what();
    }
  }

  Device& device_;
  ArtifactStore& artifacts_;
  std::string next_build_;
  std::map<std::string, std::string> known_;
};

void add_gap(Coverage& coverage, const std::string& operation, const Bucket& part, const std::string& reason) {
  if (!coverage.gaps.empty() && coverage.gaps.back().hi + 1 == part.lo && coverage.gaps.back().reason == reason)
    coverage.gaps.back().hi = part.hi;
  else coverage.gaps.push_back({operation, part.lo, part.hi, reason});
}

}  // namespace

Coverage coverage_of(const autotune::Registry& registry, const autotune::TuneRequest& request, const Options& options,
                     Device& device, cache::TuningStore& store, ArtifactStore& artifacts) {
  const autotune::OpDef& op = registry.find(request.workload.operation);
  const cache::TuningKey key = autotune::make_key(op, request.workload, device.info(), autotune::TuneOptions{}.policy);
  const std::vector<cache::Record> records = store.records(key);
  std::string no_record = "no record; run " + next_step("prewarm", options);
  if (records.empty()) {
    const auto difference = autotune::key_difference(store, key);
    if (!difference.empty()) no_record += " (nearest key differs in " + difference.front() + ")";
  }

  Coverage coverage;
  BinaryCheck binaries(device, artifacts, next_build(options));
  for (const Bucket& bucket : autotune::buckets(request.lo, request.hi)) {
    const Bucket part{std::max(bucket.lo, request.lo), std::min(bucket.hi, request.hi)};
    const auto record = std::find_if(records.begin(), records.end(), [&](const cache::Record& r) {
      return r.bucket_version == autotune::kBucketVersion && r.lo == bucket.lo && r.hi == bucket.hi;
    });
    std::string problem = no_record;
    if (record != records.end()) {
      const auto config = autotune::Config::parse(record->config_json);
      problem = binaries.problem(autotune::make_artifact_key(op, request.workload, config, device.target()));
    }
    coverage.lengths += part.hi - part.lo + 1;
    if (problem.empty()) coverage.covered += part.hi - part.lo + 1;
    else add_gap(coverage, request.label, part, problem);
  }
  coverage.stages = std::move(binaries.stages);
  return coverage;
}

}  // namespace seqtile::cli
