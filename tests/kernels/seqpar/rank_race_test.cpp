// tests/kernels/seqpar/rank_race_test.cpp -- every operation that communicates is timed on all of its ranks.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/rank_race.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>

#include "seqtile/compiler.h"
#include "tests/support/ranks/rank_operations.h"

using namespace seqtile;
using namespace seqtile::autotune;

TEST_CASE("rank race: every operation that communicates, on threads and in processes", "[seqpar]") {
  const auto device = make_cpu_device(1);
  const Target& target = device->target();
  for (const Workload& given : testing::operations_on_ranks(3, DType::f32)) {
    const OpDef& op = testing::library().find(given.operation);
    for (const auto& [fabric, length] : {std::pair("threads", int64_t{50}), std::pair("processes", int64_t{2})}) {
      Workload workload = given;
      workload.fields.set("fabric", std::string(fabric));  // some rank has none of two rows
      const Config config = op.default_config(workload, length, target);
      const LoadedCandidate candidate{config,
                                      device->load(compile(*build_kernel(op, workload, config, target), target)),
                                      op.grid(workload, config), op.workspaces(workload, config)};
      const LoadedCandidate* racing[] = {&candidate, &candidate};
      INFO(op.name << ", " << fabric << ", length " << length);
      int64_t current = 0;
      for (const Series& one : race_ranks({op, workload, racing, {length, 3, 3, 5, false, true}, false, 20}, &current))
        CHECK(one.us.size() == 3);
    }
  }
}
