// tests/support/fakes/tuner_world.h -- runs of the tuner over toy operations, on a fake clock and a real store.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autotune/keys.h"
#include "autotune/tuning/session.h"
#include "tests/cache/support.h"
#include "tests/support/fakes/fake_runner.h"
#include "tests/support/fakes/toy_ops.h"

namespace seqtile::test {

inline autotune::Config config(const std::string& form, int64_t block) { return {{"form", form}, {"block", block}}; }

/// A store, a toy operation, and runs of the tuner over them.
struct World {
  TempFolder folder;
  autotune::Registry registry = toy_registry();
  std::unique_ptr<cache::TuningStore> store =
      cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
  DeviceInfo device{"cpu", "Fake", {{"cores", "1"}}};
  Target target = cpu_target("generic");
  autotune::TuneOptions options;
  std::vector<std::string> acknowledged;
  std::vector<autotune::Item> items;

  World() {
    options.acknowledged = [this](const std::string& line) { acknowledged.push_back(line); };
  }

  autotune::TuneReport tune(FakeRunner& runner, const std::vector<autotune::TuneRequest>& requests) {
    items = make_items(registry, requests, device, options.policy);
    load_records(items, target, *store);
    return autotune::TuningSession(items, target, *store, runner, options).run();
  }
  autotune::TuneReport tune(FakeRunner& runner, const std::string& forms, int64_t hi, int64_t lo = 1) {
    return tune(runner, {{"toy", toy_add(forms), lo, hi}});
  }
  std::vector<cache::Record> records(const std::string& forms) {
    return store->records(autotune::make_key(registry.find("toy_add"), toy_add(forms), device, options.policy));
  }
  std::vector<cache::TrialRow> trials(const std::string& forms, int64_t length) {
    const autotune::Bucket b = autotune::bucket(length);
    return store->trials(autotune::make_key(registry.find("toy_add"), toy_add(forms), device, options.policy),
                         autotune::kBucketVersion, b.lo, b.hi);
  }
};

}  // namespace seqtile::test
