// tests/kernels/seqpar/sanitized_test.cpp -- faults of generated code that sanitizers report.
// SPDX-License-Identifier: Apache-2.0
//
// A sanitizer ends a faulty process, so seeded faults run in a process of their own.
#include <array>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "seqtile/compiler.h"
#include "tests/support/ranks/collective_run.h"
#include "tests/support/ranks/op_on_ranks.h"
#include "tests/support/ranks/rank_operations.h"

using namespace seqtile;
using namespace seqtile::testing;

namespace {

/// Output and exit status of this program when it runs the hidden cases with `tag`, or one section of them.
[[maybe_unused]] std::string output_of(const std::string& tag, const std::string& section = "") {
  std::array<char, 4096> path{};
  REQUIRE(readlink("/proc/self/exe", path.data(), path.size() - 1) > 0);
  FILE* pipe =
      popen(fmt::format("'{}' '{}' {} {} 2>&1", path.data(), tag, section.empty() ? "" : "-c", section).c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  for (std::array<char, 4096> part{}; fgets(part.data(), part.size(), pipe);) text += part.data();
  return text + fmt::format("status {}", pclose(pipe));
}

}  // namespace

TEST_CASE("sanitized: a rank that does not wait for its peers", "[.][no_wait]") {
  for (const autotune::Workload& workload : operations_on_ranks(2, DType::f32)) DYNAMIC_SECTION(workload.operation) {
      RankOptions options;
      options.channel.awaits_peers = false;  // a fault: kernels take the peers' data without waiting
      // A rank may end before the other one begins, and the locks of both then order all accesses. The ranks try again
      // until the first report ends the process.
      for (int attempt = 0; attempt < 20; ++attempt)
        OpOnRanks(workload, "threads", std::vector<OpCall>(50, {37})).run(options);
    }
}

TEST_CASE("sanitized: a tensor with less memory than it says", "[.][short_tensor]") {
  CollectiveRun run("all_gather", {{"n", int64_t{37}}}, 2, DType::f32, "");
  run.shorten_outputs();
  run.on({});
}

TEST_CASE("sanitized: seeded faults of generated code are reported", "[seqpar]") {
#if defined(__SANITIZE_THREAD__)
  for (const autotune::Workload& workload : operations_on_ranks(2, DType::f32)) {
    INFO(workload.operation);
    CHECK_THAT(output_of("[no_wait]", workload.operation),
               Catch::Contains("data race") && !Catch::Contains("status 0"));
  }
#elif defined(__SANITIZE_ADDRESS__)
  CHECK_THAT(output_of("[short_tensor]"), Catch::Contains("heap-buffer-overflow") && !Catch::Contains("status 0"));
#else
  KernelBuilder b("store");
  b.store_scalar(b.view("x", DType::f32, {kDynamic}), {0}, 1.0);
  const auto function = b.finish();
  CHECK_THROWS_WITH(compile(*function, cpu_target("generic"), {}, Sanitizer::thread),
                    Catch::Contains("which this process does not have") ||
                        Catch::Contains("the static build has no code for sanitizers"));
#endif
}
