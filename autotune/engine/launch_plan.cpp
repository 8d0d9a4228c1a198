// autotune/engine/launch_plan.cpp -- see launch_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/launch_plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/core.h>

#include "jit/error.h"

namespace seqtile::autotune {
namespace {

/// Takes a set out of the pool and puts it back, also when a call fails.
class WorkspaceLease {
 public:
  explicit WorkspaceLease(const LaunchPlan& plan) : pool_(plan.pool), set_(pool_.take(plan.workspaces.size())) {}
  ~WorkspaceLease() { pool_.give_back(std::move(set_)); }
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;
  WorkspaceSet& set() { return *set_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<WorkspaceSet> set_;
};

void append_workspaces(const LaunchPlan& plan, WorkspaceSet& set, KernelCall& call) {
  // Capacity for the whole bucket: growing once a bucket keeps steady traffic free of allocations.
  std::array<int64_t, kMaxSymbols> top;
  std::copy_n(call.symbols.begin(), call.num_symbols, top.begin());
  top[0] = bucket(call.symbols[0]).hi;
  const std::span<const int64_t> top_symbols{top.data(), static_cast<size_t>(call.num_symbols)};
  for (size_t i = 0; i < plan.workspaces.size(); ++i) {
    const Workspace& workspace = plan.workspaces[i];
    const int64_t elements = workspace.elements.value(call.symbol_values()), size = dtype_bytes(workspace.dtype);
    const int64_t capacity = workspace.elements.value(top_symbols);
    append_workspace(call, set.reserve(i, elements * size, std::max(elements, capacity) * size), elements);
  }
}

}  // namespace

unsigned thread_number() {
  static std::atomic<unsigned> next{0};
  thread_local const unsigned number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

void WorkspaceSet::Free::operator()(void* data) const { std::free(data); }

void* WorkspaceSet::reserve(size_t index, int64_t bytes, int64_t capacity) {
  Buffer& buffer = buffers_[index];
  if (bytes <= buffer.bytes) return buffer.data.get();
  const int64_t rounded = (capacity + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  void* data = std::aligned_alloc(kWorkspaceAlignment, static_cast<size_t>(rounded));
  if (!data) throw Error(ErrorCode::out_of_resources, fmt::format("no memory for a workspace of {} bytes", rounded));
  std::memset(data, 0, static_cast<size_t>(rounded));
  buffer.data.reset(data);
  buffer.bytes = rounded;
  return data;
}

WorkspacePool::~WorkspacePool() {
  for (auto& slot : slots_) delete slot.load(std::memory_order_acquire);
}

std::unique_ptr<WorkspaceSet> WorkspacePool::take(size_t count) {
  const unsigned first = thread_number();
  for (unsigned i = 0; i < kSlots; ++i) {
    auto& slot = slots_[(first + i) % kSlots];
    if (!slot.load(std::memory_order_relaxed)) continue;
    std::unique_ptr<WorkspaceSet> set(slot.exchange(nullptr, std::memory_order_acquire));
    if (set) return set;
  }
  return std::make_unique<WorkspaceSet>(count);
}

void WorkspacePool::give_back(std::unique_ptr<WorkspaceSet> set) {
  const unsigned first = thread_number();
  for (unsigned i = 0; i < kSlots; ++i) {
    WorkspaceSet* empty = nullptr;
    if (slots_[(first + i) % kSlots].compare_exchange_strong(empty, set.get(), std::memory_order_release,
                                                             std::memory_order_relaxed)) {
      set.release();
      return;
    }
  }
}

void launch(Device& device, const LaunchPlan& plan, std::span<const int64_t> scalars, KernelCall& call) {
  const Grid grid = grid_of(plan.grid, call.symbol_values());
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return;
  if (plan.workspaces.empty()) {
    append_scalars(call, scalars);
    device.launch(*plan.kernel, grid, call.block());
    return;
  }
  WorkspaceLease lease(plan);
  append_workspaces(plan, lease.set(), call);
  append_scalars(call, scalars);
  device.launch(*plan.kernel, grid, call.block());
}

}  // namespace seqtile::autotune
