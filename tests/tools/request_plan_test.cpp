// tests/tools/request_plan_test.cpp -- counted calls are those that requests make one by one; fair draws; percentiles.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/request_plan.h"

#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "tools/cli/requests/percentiles.h"

namespace seqtile::cli {
namespace {

using Calls = std::map<std::tuple<Phase, int64_t, int64_t>, int64_t>;

/// The calls of one request after the other, as a server makes them. Returns the decode steps that are not cut.
int64_t serve(const TraceRequest& request, const PlanLimits& limits, Calls& calls) {
  const int64_t prompt = std::min(request.prompt, limits.positions);
  for (int64_t done = 0; done < prompt;) {
    const int64_t tokens = std::min(limits.chunk, prompt - done);
    done += tokens;
    if (tokens < limits.least_tokens) continue;
    ++calls[{done == tokens ? Phase::prefill : Phase::extend, tokens, done}];
  }
  std::vector<int64_t> keys;
  for (int64_t kv = prompt + 1; kv <= prompt + request.output; ++kv)
    if (limits.least_tokens == 1 && kv >= limits.min_kv && kv <= limits.max_kv) keys.push_back(kv);
  const auto count = static_cast<int64_t>(keys.size()), samples = std::min(count, kDecodeSamples);
  for (int64_t i = 0; i < samples; ++i)
    ++calls[{Phase::decode, 1, keys[samples == 1 ? 0 : i * (count - 1) / (samples - 1)]}];
  return count;
}

}  // namespace

TEST_CASE("request plan: counted calls are those of the requests one by one", "[tools]") {
  std::mt19937_64 random(3);
  for (const PlanLimits limits : {PlanLimits{7, 100, 120},
                                  {1, 20, 20},
                                  {64, 64, 64},
                                  {1000, 90, 200},
                                  {32, 200, 200},
                                  {32, 200, 200, 9},
                                  {32, 150, 200, 1, 40},
                                  {7, 100, 120, 1, 99}}) {
    RequestPlan plan(limits);
    Calls wanted;
    int64_t long_prompts = 0, long_requests = 0, generated = 0, steps = 0;
    for (int i = 0; i < 400; ++i) {
      const TraceRequest request{static_cast<int64_t>(1 + random() % 260), static_cast<int64_t>(random() % 40)};
      plan.add(request);
      steps += serve(request, limits, wanted);
      long_prompts += request.prompt > limits.positions;
      long_requests += request.prompt <= limits.positions && request.prompt + request.output > limits.positions;
      generated += request.output;
    }
    const Stream stream = plan.stream();
    Calls found;
    for (const auto& [call, count] : stream.calls) found[{call.phase, call.tokens, call.kv}] += count;
    CHECK(found == wanted);
    CHECK(found.size() == stream.calls.size());
    CHECK(stream.long_prompts == long_prompts);
    CHECK(stream.long_requests == long_requests);
    CHECK(stream.cut_decode_steps == generated - steps);
  }
}

TEST_CASE("request plan: calls are drawn as often as they are asked for", "[tools]") {
  const std::vector<CountedCall> calls = {
      {{Phase::prefill, 5, 5}, 1}, {{Phase::decode, 1, 6}, 3}, {{Phase::decode, 1, 9}, 6}};
  const CallSampler sampler(calls);
  std::mt19937_64 random(1);
  std::map<int64_t, int> drawn;
  for (int i = 0; i < 10000; ++i) ++drawn[sampler.draw(random).kv];
  CHECK(drawn[5] == Approx(1000).epsilon(0.1));
  CHECK(drawn[6] == Approx(3000).epsilon(0.1));
  CHECK(drawn[9] == Approx(6000).epsilon(0.1));
}

TEST_CASE("percentiles: exact for few values, near for many", "[tools]") {
  Reservoir none, few, many;
  CHECK((none.empty() && none.percentiles().p99 == 0));
  for (int i = 101; i > 0; --i) few.add(i);
  CHECK((few.percentiles().p50 == 51 && few.percentiles().p99 == 100));
  for (int i = 0; i < 1'000'000; ++i) many.add(i);  // rising: a reservoir that keeps the first or last would be far off
  CHECK(many.percentiles().p50 == Approx(500'000).epsilon(0.02));
  CHECK(many.percentiles().p99 == Approx(990'000).epsilon(0.005));
}

}  // namespace seqtile::cli
