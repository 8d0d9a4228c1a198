// autotune/engine/handle_fixed.cpp -- handles whose plans never change, so that all ranks keep the same plans.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/core.h>

#include "autotune/engine/handle_state.h"
#include "seqtile/error.h"

namespace seqtile {

using autotune::Answer;
using autotune::PlanEntry;

Handle::Choices Handle::State::choices() const {
  Choices result;
  for (const PlanEntry& entry : table_.load(std::memory_order_acquire)->entries)
    result.push_back(entry.plan ? std::optional(entry.plan->config) : std::nullopt);
  return result;
}

Handle::State::State(std::shared_ptr<State> base, const Choices& choices)
    : workload(base->workload),
      schema(base->schema),
      base_(std::move(base)),
      core_(base_->core_),
      op_(base_->op_),
      layout_(base_->layout_),
      key_(base_->key_),
      max_length_(autotune::kMaxLength),  // a length without a choice is a miss
      usable_(op_, workload, core_->parts.device->target()) {
  const size_t count = std::min(choices.size(), static_cast<size_t>(autotune::kNumBuckets));
  std::vector<autotune::Config> configs;
  for (size_t i = 0; i < count; ++i)
    if (choices[i] && (i == 0 || choices[i] != choices[i - 1])) configs.push_back(*choices[i]);
  const std::lock_guard lock(base_->mutex_);
  const auto errors = base_->make_plans(configs, core_->compiles_at_load);
  if (!errors.empty())
    throw Error(ErrorCode::compile_failed, fmt::format("{}: the configuration {} cannot be used: {}", op_.name,
                                                       errors.begin()->first, errors.begin()->second));
  auto table = std::make_unique<autotune::PlanTable>();
  for (size_t i = 0; i < count; ++i) {
    if (!choices[i]) continue;
    const PlanEntry known = base_->table_.load(std::memory_order_acquire)->entries[i];
    const autotune::LaunchPlan* plan = base_->find_plan(*choices[i]);
    table->entries[i] = known.plan == plan ? known : PlanEntry{plan, nullptr, Answer::hit};
  }
  table_.store(table.get(), std::memory_order_release);
  tables_.push_back(std::move(table));
}

}  // namespace seqtile
