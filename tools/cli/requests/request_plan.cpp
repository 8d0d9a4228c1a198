// tools/cli/requests/request_plan.cpp -- see request_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/request_plan.h"

#include <algorithm>
#include <map>

namespace seqtile::cli {
namespace {

/// The calls of `prompts` in chunks. Prompts of n whole chunks or more have the n-th whole chunk in common.
std::vector<CountedCall> chunk_calls(const std::map<int64_t, int64_t>& prompts, int64_t chunk) {
  std::vector<CountedCall> prefills, extends;
  const auto add = [&](int64_t tokens, int64_t kv, int64_t count) {
    if (tokens == kv) prefills.push_back({{Phase::prefill, tokens, kv}, count});
    else extends.push_back({{Phase::extend, tokens, kv}, count});
  };
  std::vector<int64_t> whole(prompts.empty() ? 1 : static_cast<size_t>(prompts.rbegin()->first / chunk) + 1);
  for (const auto& [length, count] : prompts) {
    whole[static_cast<size_t>(length / chunk)] += count;
    if (length % chunk != 0) add(length % chunk, length, count);
  }
  int64_t count = 0;
  for (size_t n = whole.size() - 1; n > 0; --n) {
    count += whole[n];
    add(chunk, static_cast<int64_t>(n) * chunk, count);
  }
  const auto before = [](const CountedCall& a, const CountedCall& b) {
    return a.call.tokens != b.call.tokens ? a.call.tokens < b.call.tokens : a.call.kv < b.call.kv;
  };
  std::ranges::sort(prefills, before);
  std::ranges::sort(extends, before);
  prefills.insert(prefills.end(), extends.begin(), extends.end());
  return prefills;
}

}  // namespace

void RequestPlan::add(const TraceRequest& request) {
  const int64_t prompt = std::min(request.prompt, limits_.positions);
  totals_.long_prompts += request.prompt > limits_.positions;
  totals_.long_requests += request.prompt <= limits_.positions && request.prompt + request.output > limits_.positions;
  ++prompts_[prompt];
  const int64_t steps = std::clamp<int64_t>(limits_.max_kv - prompt, 0, request.output);
  const int64_t before = limits_.least_tokens > 1 ? steps : std::clamp<int64_t>(limits_.min_kv - 1 - prompt, 0, steps);
  const int64_t kept = steps - before, samples = std::min(kept, kDecodeSamples);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t step = samples == 1 ? 1 : 1 + i * (kept - 1) / (samples - 1);
    ++decode_steps_[prompt + before + step];
  }
  totals_.cut_decode_steps += request.output - kept;
}

Stream RequestPlan::stream() const {
  Stream stream = totals_;
  stream.distinct_lengths = static_cast<int64_t>(prompts_.size());
  stream.calls = chunk_calls({prompts_.begin(), prompts_.end()}, limits_.chunk);
  for (const CountedCall& chunk : stream.calls) {
    const bool is_cut = chunk.call.tokens < limits_.least_tokens;
    (is_cut ? stream.cut_chunks : stream.chunks) += chunk.count;
  }
  std::erase_if(stream.calls, [&](const CountedCall& chunk) { return chunk.call.tokens < limits_.least_tokens; });
  const std::map<int64_t, int64_t> steps(decode_steps_.begin(), decode_steps_.end());
  for (const auto& [kv, count] : steps) {
    stream.calls.push_back({{Phase::decode, 1, kv}, count});
    stream.decode_steps += count;
  }
  return stream;
}

CallSampler::CallSampler(std::span<const CountedCall> calls) : calls_(calls) {
  int64_t end = 0;
  for (const CountedCall& call : calls) ends_.push_back(end += call.count);
}

const PlannedCall& CallSampler::draw(std::mt19937_64& random) const {
  const int64_t place = static_cast<int64_t>(random() % static_cast<uint64_t>(ends_.back()));
  return calls_[static_cast<size_t>(std::ranges::upper_bound(ends_, place) - ends_.begin())].call;
}

}  // namespace seqtile::cli
