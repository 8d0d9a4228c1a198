// autotune/engine/handle.cpp -- the hot path (a call of a prepared operation), and explanations of a handle.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/core.h>

#include "autotune/engine/handle_state.h"
#include "autotune/text/command_line.h"
#include "seqtile/error.h"

namespace seqtile {

using autotune::Answer;
using autotune::Bucket;
using autotune::PlanEntry;

namespace {

Handle::State& required(const std::shared_ptr<Handle::State>& state) {
  if (!state) throw Error(ErrorCode::invalid_argument, "the handle is empty; get one from Engine::prepare");
  return *state;
}

std::string bucket_text(Bucket bucket) {
  return bucket.lo == bucket.hi ? fmt::format("{}", bucket.lo) : fmt::format("{}..{}", bucket.lo, bucket.hi);
}

/// The command that tunes the workload at `length`, or at all lengths of an engine that has a limit.
std::string tune_command(const autotune::Workload& workload, int64_t length, const EngineOptions& options,
                         bool is_gpu) {
  std::vector<std::pair<std::string, std::string>> flags{{"", workload.operation}};
  for (const auto& [name, value] : workload.fields.values()) {
    const std::string text = std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
    flags.emplace_back("--set", name + "=" + text);
  }
  const bool has_limit = options.max_length > 0;
  flags.insert(flags.end(), {{"--dtype", std::string(dtype_name(workload.dtype))},
                             {has_limit ? "--lengths" : "--length",
                              has_limit ? fmt::format("1..{}", options.max_length) : std::to_string(length)},
                             {"--threads", is_gpu ? "" : std::to_string(workload.threads)},
                             {"--device", is_gpu ? options.device : ""},
                             {"--cache", options.cache},
                             {"--artifacts", options.artifacts}});
  return autotune::command_line("tune", flags);
}

}  // namespace

void Handle::operator()(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars,
                        Stream stream) const {
  required(state_).call(tensors, length, scalars, stream, length);
}

void Handle::call_as(int64_t capacity, std::span<const Tensor> tensors, int64_t length,
                     std::span<const int64_t> scalars, Stream stream) const {
  required(state_).call(tensors, length, scalars, stream, capacity);
}

std::shared_ptr<const void> Handle::capture(std::span<const Tensor> tensors, int64_t capacity,
                                            const int64_t* device_length, std::span<const int64_t> scalars,
                                            Stream stream) const {
  struct Captured {
    std::shared_ptr<State> state;  // first member: its device outlives the workspaces
    autotune::WorkspaceSet workspaces;
  };
  return std::make_shared<Captured>(
      Captured{state_, required(state_).capture(tensors, capacity, device_length, scalars, stream)});
}

bool Handle::lookup(int64_t length) const { return required(state_).lookup(length); }
Explanation Handle::explain(int64_t length) const { return required(state_).explain(length); }
const autotune::Workload& Handle::workload() const { return required(state_).workload; }
const autotune::OpDef& Handle::operation() const { return required(state_).operation(); }
const autotune::Schema& Handle::schema() const { return required(state_).schema; }
std::vector<std::pair<Bucket, autotune::Config>> Handle::ranges() const { return required(state_).ranges(); }
Handle::Choices Handle::choices() const { return required(state_).choices(); }
Handle Handle::fixed(const Choices& choices) const {
  required(state_);
  return Handle(make_state(state_, choices));
}

const autotune::LaunchPlan& Handle::State::plan_for(int64_t length) {
  const PlanEntry& found = entry(length);
  if (found.answer != Answer::hit) [[unlikely]]
    return plan_after_miss(length, &found);
  autotune::count(core_->calls.mine().hits);
  return *found.plan;
}

void Handle::State::call(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars,
                         Stream stream, int64_t plan_length) {
  const bool is_empty = layout_.is_empty_call(tensors, length);
  if ((length < schema.least_length && !is_empty) || length > max_length_) refuse_length(length, schema.least_length);
  if (plan_length != length) check_capacity(plan_length, length);
  if (!is_exit_watched_.load(std::memory_order_relaxed)) [[unlikely]]
    watch_exit_once();
  autotune::KernelCall call;
  name_errors(op_.name, [&] { layout_.bind(tensors, length, scalars, call); });
  if (is_empty) return;
  autotune::launch(*core_->parts.device, plan_for(std::max<int64_t>(plan_length, 1)), layout_, scalars, call, stream);
  autotune::count(core_->calls.mine().launches);
}

void Handle::State::watch_exit_once() {
  if (is_exit_watched_.exchange(true)) return;
  if (base_) base_->watch_exit_once();
  else watch_exit();
}

void Handle::State::check_capacity(int64_t capacity, int64_t length) const {
  if (capacity > max_length_) refuse_length(capacity);
  if (capacity < length)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the capacity is {}, it must be at least the length {}", op_.name, capacity, length));
}

autotune::WorkspaceSet Handle::State::capture(std::span<const Tensor> tensors, int64_t capacity,
                                              const int64_t* device_length, std::span<const int64_t> scalars,
                                              Stream stream) {
  const auto refuse = [&](ErrorCode code, const char* problem) {
    throw Error(code, fmt::format("{}: {}", op_.name, problem));
  };
  if (!core_->parts.device->target().is_gpu()) refuse(ErrorCode::unsupported, "a CPU captures no graphs; call it");
  if (!device_length) refuse(ErrorCode::invalid_argument, "device_length is null; a graph reads its length there");
  if (capacity < 1 || capacity > max_length_) refuse_length(capacity);
  autotune::KernelCall call;
  name_errors(op_.name, [&] { layout_.bind(tensors, capacity, scalars, call); });
  return autotune::launch_captured(*core_->parts.device, plan_for(capacity), layout_, scalars, call, device_length,
                                   stream);
}

bool Handle::State::lookup(int64_t length) {
  if (length < 1) refuse_length(length);
  if (length > max_length_) {
    autotune::count(core_->calls.mine().above_top);
    return false;
  }
  const PlanEntry& found = entry(length);
  if (found.answer != Answer::hit) {
    count_miss(found, length);
    return false;
  }
  autotune::count(core_->calls.mine().hits);
  return true;
}

void Handle::State::count_miss(const PlanEntry& missed, int64_t length) {
  autotune::count(missed_[static_cast<size_t>(autotune::bucket_index(length))]);
  autotune::CallCounters::Stripe& counters = core_->calls.mine();
  autotune::count(missed.answer == Answer::above_top ? counters.above_top : counters.no_record);
}

void Handle::State::add_misses(std::vector<Miss>& all) const {
  for (int i = 0; i < autotune::kNumBuckets; ++i)
    if (const int64_t calls = missed_[static_cast<size_t>(i)].load(std::memory_order_relaxed))
      all.push_back({workload, autotune::bucket_at(i), calls});
}

const autotune::LaunchPlan& Handle::State::plan_after_miss(int64_t length, const PlanEntry* missed) {
  count_miss(*missed, length);
  const int index = static_cast<int>(autotune::bucket_index(length));
  // A flag, not a queue, because a call must spend no more than this on the tuning thread.
  if (core_->options.policy == MissPolicy::background) wanted_[index].store(true, std::memory_order_relaxed);
  if (!missed->plan && core_->options.policy == MissPolicy::tune && !base_) {
    tune_bucket(index, nullptr);
    missed = &entry(length);
  }
  if (!missed->plan) refuse_miss(length);
  return *missed->plan;
}

void Handle::State::refuse_length(int64_t length, int64_t least) const {
  if (length < least)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: length is {}; it must be at least {}", op_.name, length, least));
  autotune::count(core_->calls.mine().above_top);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: length {} is above the engine's max_length {}; split the input, or open the engine with "
                          "a larger max_length",
                          op_.name, length, max_length_));
}

void Handle::State::refuse_miss(int64_t length) const {
  if (base_ && length > base_->max_length_) base_->refuse_length(length);
  throw Error(ErrorCode::no_record,
              fmt::format("{} at length {}: {}; tune it with `{}`, or open the engine with another miss policy",
                          op_.name, length, miss_reason(length),
                          tune_command(workload, length, core_->options, core_->parts.device->target().is_gpu())));
}

std::string Handle::State::miss_reason(int64_t length) const {
  const Bucket bucket = autotune::bucket(length);
  if (base_) {
    if (base_->entry(length).answer != Answer::hit) return base_->miss_reason(length);
    return fmt::format(
        "bucket {} has a record, but these plans are fixed (where ranks share them: to those that rank 0 "
        "had), without it",
        bucket_text(bucket));
  }
  std::lock_guard lock(mutex_);
  const int top = top_recorded();
  if (const auto refused = refusals_.find(static_cast<int>(autotune::bucket_index(length))); refused != refusals_.end())
    return fmt::format("bucket {} has a record that may not serve: {}", bucket_text(bucket), refused->second);
  if (top >= 0) {
    return fmt::format("bucket {} has no record (the longest recorded length is {})", bucket_text(bucket),
                       autotune::bucket_at(top).hi);
  }
  return fmt::format("bucket {} has no record; {}", bucket_text(bucket),
                     nearest_key_.empty() ? "no usable one is in " + core_->layers.paths() : nearest_key_);
}

Explanation Handle::State::explain(int64_t length) {
  if (length < 1 || length > max_length_) refuse_length(length);
  const PlanEntry found = entry(length);
  Explanation result{autotune::bucket(length), "none", {}, 0, ""};
  if (found.plan) {
    result.origin = found.answer == Answer::hit ? "given" : "default";
    result.config = found.plan->config;
  }
  if (found.answer != Answer::hit) result.reason = miss_reason(length);
  if (found.record) {
    const cache::Record& record = found.record->record;
    const bool is_nearest = found.answer != Answer::hit;
    result.origin = (is_nearest ? "nearest " : "") + std::string(cache::origin_name(record.origin));
    result.median_us = record.median_us;
    const std::string times =
        record.samples == 0 && record.median_us == 0
            ? "not measured"
            : fmt::format("{:.2f} us, default {:.2f} us, at length {} ({} samples)", record.median_us,
                          record.default_us, record.measured_length, record.samples);
    result.reason +=
        fmt::format("{}{} {}: {} in {}", is_nearest ? "; bucket " : "bucket ", bucket_text({record.lo, record.hi}),
                    cache::origin_name(record.origin), times, found.record->source);
  }
  // On a GPU with wgmma, the reason why the kernel does not use it.
  if (found.plan && core_->parts.device->target().has_wgmma) {
    const std::string& loop = found.plan->kernel->binary().gpu.loop;
    if (loop.starts_with("portable")) result.reason += "; the loop of products is " + loop;
  }
  return result;
}

std::vector<std::pair<Bucket, autotune::Config>> Handle::State::ranges() const {
  const autotune::PlanTable& table = *table_.load(std::memory_order_acquire);
  std::vector<std::pair<Bucket, autotune::Config>> runs;
  int top = autotune::kNumBuckets - 1;
  while (top >= 0 && table.entries[top].answer != Answer::hit) --top;
  const autotune::LaunchPlan* previous = nullptr;
  for (int i = 0; i <= top; ++i) {
    const autotune::LaunchPlan* plan = table.entries[i].plan;
    const Bucket bucket = autotune::bucket_at(i);
    if (plan && plan == previous) runs.back().first.hi = bucket.hi;
    else if (plan) runs.push_back({bucket, plan->config});
    previous = plan;
  }
  return runs;
}

}  // namespace seqtile
