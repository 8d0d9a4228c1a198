// tests/kernels/seqpar/sanitized_test.cpp -- what sanitizers see of generated code.
// SPDX-License-Identifier: Apache-2.0
//
// A sanitizer ends the process that it finds at fault: seeded faults run in one of their own.
#include <array>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "jit/compiler.h"
#include "jit/error.h"
#include "tests/support/collective_run.h"

using namespace seqtile;
using namespace seqtile::testing;

namespace {

/// What this program says and how it ends when it runs the hidden cases with such a tag.
[[maybe_unused]] std::string output_of(const std::string& tag) {
  std::array<char, 4096> path{};
  REQUIRE(readlink("/proc/self/exe", path.data(), path.size() - 1) > 0);
  FILE* pipe = popen(fmt::format("'{}' '{}' 2>&1", path.data(), tag).c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  for (std::array<char, 4096> part{}; fgets(part.data(), part.size(), pipe);) text += part.data();
  return text + fmt::format("status {}", pclose(pipe));
}

}  // namespace

TEST_CASE("sanitized: a rank that does not wait for its peers", "[.][no_wait]") {
  CollectiveRun run("all_gather", {{"n", int64_t{37}}}, 2, DType::f32, "");
  RankOptions options;
  options.channel.awaits_peers = false;          // whatever peers would send is there: a lie
  for (int i = 0; i < 50; ++i) run.on(options);  // a rank may be through before the other one begins
}

TEST_CASE("sanitized: a tensor with less memory than it says", "[.][short_tensor]") {
  CollectiveRun run("all_gather", {{"n", int64_t{37}}}, 2, DType::f32, "");
  run.shorten_outputs();
  run.on({});
}

TEST_CASE("sanitized: seeded faults of generated code are reported", "[seqpar]") {
#if defined(__SANITIZE_THREAD__)
  CHECK_THAT(output_of("[no_wait]"), Catch::Contains("data race") && !Catch::Contains("status 0"));
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

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
TEST_CASE("sanitized: collectives are exact and without a report, also where ranks pause", "[seqpar]") {
  for (const uint32_t seed : {0u, 3u}) {
    RankOptions options;
    options.seed = seed, options.slow_rank = 1;
    check_collectives(3, DType::f32, options);
  }
}
#endif
