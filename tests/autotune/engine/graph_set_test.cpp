// tests/autotune/engine/graph_set_test.cpp -- a graph for each bucket.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/engine.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "seqtile/device.h"
#include "seqtile/error.h"

using namespace seqtile;

TEST_CASE("graph set: lengths that were not captured are refused, and a failing capture leaves the stream usable",
          "[autotune][graph][sim]") {
  const auto device = open_device("sim:sm_80", 1);
  const OwnedStream stream(device->streams());
  const auto none = [](int64_t) { return std::vector<std::shared_ptr<const void>>{}; };
  CHECK_THROWS_WITH(capture_set(*device, 0, stream, none), Catch::Contains("at least 1 is needed"));
  CHECK_THROWS_WITH(capture_set(*device, 5, stream,
                                [](int64_t capacity) -> std::vector<std::shared_ptr<const void>> {
                                  throw Error(ErrorCode::invalid_argument, fmt::format("not at {}", capacity));
                                }),
                    Catch::Contains("not at 1"));
  const GraphSet graphs = capture_set(*device, 5, stream, none);
  CHECK(graphs.size() == 4);
  CHECK(graphs.capacity_of(0) == 1);
  CHECK(graphs.capacity_of(3) == 4);
  CHECK(graphs.capacity_of(5) == 5);
  CHECK_THROWS_WITH(graphs.launch(6, stream), Catch::Contains("length 6 is not in 0..5"));
  CHECK_THROWS_WITH(graphs.launch(-1, stream), Catch::Contains("length -1 is not in 0..5"));
}
