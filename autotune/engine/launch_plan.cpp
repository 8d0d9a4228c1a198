// autotune/engine/launch_plan.cpp -- see launch_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/launch_plan.h"

#include <algorithm>

namespace seqtile::autotune {
namespace {

/// Takes a set out of the pool and gives it back, also if the call throws.
class WorkspaceLease {
 public:
  WorkspaceLease(const LaunchPlan& plan, Stream stream)
      : pool_(plan.pool), set_(pool_.take(plan.workspaces.size(), stream)) {}
  ~WorkspaceLease() { pool_.give_back(std::move(set_)); }
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;
  WorkspaceSet& set() { return *set_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<WorkspaceSet> set_;
};

bool is_empty(const Grid& grid) { return grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0; }

void append_workspaces(Device& device, const LaunchPlan& plan, WorkspaceSet& set, KernelCall& call) {
  // Buffers grow to the size for the whole bucket, so that steady traffic allocates nothing.
  std::array<int64_t, kMaxSymbols> top;
  std::copy_n(call.symbols.begin(), call.num_symbols, top.begin());
  top[0] = bucket(std::max<int64_t>(call.symbols[0], 1)).hi;
  const std::span<const int64_t> top_symbols{top.data(), static_cast<size_t>(call.num_symbols)};
  for (size_t i = 0; i < plan.workspaces.size(); ++i) {
    const Workspace& workspace = plan.workspaces[i];
    const int64_t elements = workspace.elements.value(call.symbol_values()), size = dtype_bytes(workspace.dtype);
    const int64_t capacity = workspace.elements.value(top_symbols);
    append_workspace(call, set.reserve(i, elements * size, std::max(elements, capacity) * size, device), elements);
  }
}

}  // namespace

unsigned thread_number() {
  static std::atomic<unsigned> next{0};
  thread_local const unsigned number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

void* WorkspaceSet::reserve(size_t index, int64_t bytes, int64_t capacity, Device& device) {
  DeviceBuffer& buffer = buffers_[index];
  if (static_cast<size_t>(bytes) <= buffer.bytes()) return buffer.data();
  buffer = {};  // frees the old buffer first, because both together may not fit the memory
  const int64_t rounded = (capacity + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  buffer = DeviceBuffer(device.memory(), static_cast<size_t>(rounded));
  device.memory().fill(buffer.data(), 0, buffer.bytes(), stream_);
  return buffer.data();
}

WorkspacePool::~WorkspacePool() {
  for (auto& slot : slots_) delete slot.load(std::memory_order_acquire);
}

std::unique_ptr<WorkspaceSet> WorkspacePool::take(size_t count, Stream stream) {
  const unsigned first = thread_number();
  for (unsigned i = 0; i < kSlots; ++i) {
    auto& slot = slots_[(first + i) % kSlots];
    if (!slot.load(std::memory_order_relaxed)) continue;
    std::unique_ptr<WorkspaceSet> set(slot.exchange(nullptr, std::memory_order_acquire));
    if (!set) continue;
    if (set->stream().handle == stream.handle) return set;
    give_back(std::move(set));
  }
  return std::make_unique<WorkspaceSet>(count, stream);
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

void launch(Device& device, const LaunchPlan& plan, const CallLayout& layout, std::span<const int64_t> scalars,
            KernelCall& call, Stream stream) {
  const Grid grid = grid_of(plan.grid, call.symbol_values());
  if (is_empty(grid)) return;
  if (plan.workspaces.empty()) {
    layout.finish(scalars, nullptr, call);
    device.launch(*plan.kernel, grid, call.block(), stream);
    return;
  }
  WorkspaceLease lease(plan, stream);
  append_workspaces(device, plan, lease.set(), call);
  layout.finish(scalars, nullptr, call);
  device.launch(*plan.kernel, grid, call.block(), stream);
}

WorkspaceSet launch_captured(Device& device, const LaunchPlan& plan, const CallLayout& layout,
                             std::span<const int64_t> scalars, KernelCall& call, const int64_t* device_length,
                             Stream stream) {
  // A stream of its own zeroes the workspaces once, so that zeroing is no part of the graph.
  const OwnedStream zeroing(device.streams());
  WorkspaceSet set(plan.workspaces.size(), zeroing);
  append_workspaces(device, plan, set, call);
  device.streams().synchronize(zeroing);
  layout.finish(scalars, device_length, call);
  const Grid grid = grid_of(plan.grid, call.symbol_values());
  if (!is_empty(grid)) device.launch(*plan.kernel, grid, call.block(), stream);
  return set;
}

}  // namespace seqtile::autotune
