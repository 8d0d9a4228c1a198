// jit/sim/device/sim_world.cpp -- see sim_world.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/sim_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace seqtile::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTimeout = std::chrono::seconds(1);

bool may_share_a_round(const Launch& a, const Launch& b) {
  return a.program == b.program && a.shape.grid == b.shape.grid && a.shape.shared_bytes == b.shape.shared_bytes;
}

}  // namespace

Error launch_error(const LaunchResult& result, const std::string& kernel) {
  const auto endless = std::find_if(result.reports.begin(), result.reports.end(),
                                    [](const Report& report) { return report.kind == ReportKind::limit; });
  const bool is_endless = endless != result.reports.end();
  return Error(is_endless ? ErrorCode::timeout : ErrorCode::driver,
               fmt::format("{}{} ({} reports in all)", kernel, (is_endless ? *endless : result.reports.front()).message,
                           result.num_reports));
}

void SimWorld::add(int device, Launch launch) {
  const std::lock_guard lock(mutex_);
  queues_[static_cast<size_t>(device)].items.push_back({std::move(launch), nullptr});
  last_added_ = Clock::now();
}

void SimWorld::add(int device, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queues_[static_cast<size_t>(device)].items.push_back({{}, std::move(work)});
  last_added_ = Clock::now();
}

bool SimWorld::is_everyone_waiting() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const Queue& queue) { return queue.is_waited_for; });
}

void SimWorld::finish(int device, const Options& options) {
  std::unique_lock lock(mutex_);
  Queue& own = queues_[static_cast<size_t>(device)];
  own.is_waited_for = true;
  changed_.notify_all();
  while (!own.items.empty() && !own.error) {
    const auto deadline = last_added_ + kTimeout;
    if (is_everyone_waiting() || Clock::now() >= deadline) {
      run(options);
      changed_.notify_all();
    } else {
      changed_.wait_until(lock, deadline);
    }
  }
  own.is_waited_for = false;
  if (const std::exception_ptr error = std::exchange(own.error, nullptr)) {
    own.items.clear();
    std::rethrow_exception(error);
  }
}

void SimWorld::run(const Options& options) {
  const auto has_work = [&] {
    return std::any_of(queues_.begin(), queues_.end(), [](const Queue& queue) { return !queue.items.empty(); });
  };
  while (has_work()) {
    try {
      run_round(options);
    } catch (...) {
      fail(std::current_exception());
    }
  }
  // Every waiting device goes on, also if its thread has not woken up yet.
  for (Queue& queue : queues_) queue.is_waited_for = false;
}

/// Devices may have waited for each other's part of the round: none of them can go on.
void SimWorld::fail(const std::exception_ptr& error) {
  for (Queue& queue : queues_) {
    queue.error = error;
    queue.items.clear();
  }
}

// A round takes from each device's queue the host work at its front, then launches of one kernel and size.
void SimWorld::run_round(const Options& options) {
  std::vector<std::vector<Launch>> streams(queues_.size());
  for (size_t d = 0; d < queues_.size(); ++d) {
    auto& items = queues_[d].items;
    size_t taken = 0;
    std::vector<std::function<void()>> before;
    for (; taken < items.size(); ++taken) {
      Item& item = items[taken];
      if (item.work) {
        before.push_back(std::move(item.work));
        continue;
      }
      if (!streams[d].empty() && !may_share_a_round(streams[d].front(), item.launch)) break;
      item.launch.before = [work = std::exchange(before, {})] {
        for (const auto& each : work) each();
      };
      streams[d].push_back(std::move(item.launch));
    }
    if (!before.empty()) {
      if (streams[d].empty())
        for (const auto& each : before) each();
      else
        streams[d].back().after = [work = std::move(before)] {
          for (const auto& each : work) each();
        };
    }
    items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  if (std::all_of(streams.begin(), streams.end(), [](const auto& stream) { return stream.empty(); })) return;
  const LaunchResult result = machine_.run_streams(streams, options);
  if (!result.ok()) throw launch_error(result, "");
}

}  // namespace seqtile::sim
