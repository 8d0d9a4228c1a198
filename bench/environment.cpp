// bench/environment.cpp -- tuning on first use, peers on first use.
// SPDX-License-Identifier: Apache-2.0
#include "bench/environment.h"

#include <nlohmann/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "autotune/engine/usable.h"
#include "autotune/keys.h"
#include "bench/peers/onednn.h"
#include "jit/base/counted.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/stores.h"

namespace seqtile::bench {
namespace {

/// Whether a search has confirmed the record. The coverage pass stores unconfirmed defaults.
bool is_tuned(const cache::Record& record) {
  return record.origin == cache::Origin::tuned || record.origin == cache::Origin::merged ||
         record.origin == cache::Origin::pinned;
}

/// Errors: invalid_argument if no variable names the user's cache folder.
std::string default_cache() {
  const std::filesystem::path tuning = cache::default_tuning_path();
  if (tuning.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--cache: {}; give --cache FILE, behind -- of `seqtile bench`", cache::kNoDefaultPath));
  return (tuning.parent_path() / "bench.db").string();
}

}  // namespace

Environment::Environment(Options options)
    : options_(std::move(options)), registry_(kernels::make_registry()), openblas_(open_openblas()) {
  if (options_.is_listed) return;
  if (options_.cache.empty()) options_.cache = default_cache();
  const auto folder = std::filesystem::absolute(options_.cache).parent_path();
  std::error_code ignored;  // a missing folder shows when the store is written
  std::filesystem::create_directories(folder, ignored);
}

void Environment::tune(const std::vector<autotune::TuneRequest>& requests, double budget_s) const {
  const auto store = cache::TuningStore::open(options_.cache, cache::OpenMode::read_write);
  const auto artifacts = cache::ArtifactDb::open(artifacts_path(), cache::default_key_path());
  if (!store->is_writable()) {
    throw Error(ErrorCode::io,
                "bench: no tuning records can be written: " + store->status() + "; give --cache a writable file");
  }
  autotune::TuneOptions options;
  options.budget_s = budget_s;
  autotune::tune(registry_, requests, "cpu", *store, *artifacts, options);
}

std::vector<cache::Record> Environment::records(const autotune::Workload& normal) const {
  const auto device = open_device("cpu", normal.threads);
  const autotune::OpDef& op = registry_.find(normal.operation);
  const auto key = autotune::make_key(op, normal, device->info(), autotune::TuneOptions{}.policy);
  const auto store = cache::TuningStore::open(options_.cache, cache::OpenMode::read_only);
  return autotune::usable_records(op, normal, device->target(), *store, key);
}

void Environment::tune_once(const std::vector<autotune::TuneRequest>& requests, double budget_s) const {
  const autotune::Workload& first = requests.front().workload;
  if (!records(registry_.find(first.operation).normalize(first)).empty()) return;
  fmt::print(stderr, "tuning {} for {} s\n", counted(requests.size(), "operation"), budget_s);
  tune(requests, budget_s);
}

TunedHandle Environment::prepare(const autotune::Workload& workload) const {
  EngineOptions options;
  options.threads = workload.threads;
  options.cache = options_.cache;
  options.artifacts = artifacts_path();
  TunedHandle tuned{Engine::open(options, registry_), {}};
  tuned.handle = tuned.engine->prepare(workload);
  return tuned;
}

TunedHandle Environment::prepare_tuned(const autotune::Workload& workload, int64_t length) const {
  const autotune::Workload normal = registry_.find(workload.operation).normalize(workload);
  const autotune::Bucket bucket = autotune::bucket(length);
  const auto known = records(normal);
  const bool is_known = std::any_of(known.begin(), known.end(), [&](const cache::Record& record) {
    return record.lo == bucket.lo && record.hi == bucket.hi && is_tuned(record);
  });
  if (!is_known) {
    fmt::print(stderr, "tuning {} {} for lengths {}..{}\n", normal.operation, normal.json(), bucket.lo, bucket.hi);
    tune({{"bench", normal, bucket.lo, bucket.hi}}, options_.budget_s);
  }
  return prepare(normal);
}

bool Environment::has_onednn() const { return !onednn_version().empty(); }

Blas& Environment::mkl() {
  if (!mkl_) mkl_ = open_mkl(options_.mkl);
  return *mkl_;
}

TorchPeer& Environment::torch() {
  if (!torch_) torch_ = start_torch(options_.torch);
  return *torch_;
}

Child& Environment::gloo() {
  if (!gloo_) {
    gloo_ = std::make_unique<Child>(options_.torch, "gloo_peer.py");
    gloo_->receive();  // the version
  }
  return *gloo_;
}

std::vector<std::pair<std::string, std::string>> Environment::peer_versions() const {
  std::vector<std::pair<std::string, std::string>> versions;
  if (openblas_) versions.emplace_back("openblas", openblas_->version());
  if (has_onednn()) versions.emplace_back("onednn", onednn_version());
  if (mkl_) versions.emplace_back("mkl", mkl_->version());
  if (torch_) versions.emplace_back("torch", torch_->version());
  return versions;
}

}  // namespace seqtile::bench
