// tests/support/fakes/tuning_helper.cpp -- the worker of the tuner's tests, and a tuning process that a test can kill.
// SPDX-License-Identifier: Apache-2.0
//
// tuning_helper FOLDER FORMS HI: tunes toy_add into FOLDER and prints each acknowledged line, then "trials N".
#include <cstdio>
#include <cstdlib>

#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tests/support/fakes/toy_ops.h"

int main(int argc, char** argv) {
  using namespace seqtile;
  const auto registry = test::toy_registry();
  int exit_code = 0;
  if (autotune::run_worker(argc, argv, registry, exit_code)) return exit_code;
  if (argc != 4) return 2;
  const std::string folder = argv[1];
  const auto store = cache::TuningStore::open(folder + "/tuning.db", cache::OpenMode::read_write);
  const auto artifacts = cache::ArtifactDb::open(folder + "/artifacts.db", folder + "/key");
  autotune::TuneOptions options;
  options.acknowledged = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  const auto report = autotune::tune(registry, {{"toy", test::toy_add(argv[2]), 1, std::atoll(argv[3])}}, "cpu", *store,
                                     *artifacts, options);
  std::printf("trials %lld\n", static_cast<long long>(report.trials));
  return report.complete ? 0 : 1;
}
