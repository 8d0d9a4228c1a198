// autotune/engine/launch_plan.h -- what answers a bucket: a kernel with grid and workspaces; and their table.
// SPDX-License-Identifier: Apache-2.0
//
// A LaunchPlan is one configuration made ready; the lengths of a bucket share it and so may many buckets. PlanTable
// maps every bucket of the ladder (293 up to 2^40) to a plan by one array access. Both are immutable once a handle
// shows them; a change makes a new table and swaps one atomic pointer. A handle keeps the tables that it has shown
// until it dies, so that readers need no lock and no epoch; equal tables are not kept twice, so that changes bound
// their number.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "autotune/bucket.h"
#include "autotune/engine/launch.h"
#include "cache/tuning_store.h"
#include "jit/device/device.h"

namespace seqtile::autotune {

constexpr int kNumBuckets = static_cast<int>(bucket_index(kMaxLength)) + 1;

/// A small number of the calling thread, the same for its whole life; spreads threads over cache lines.
unsigned thread_number();

/// Scratch buffers of one call, one per workspace of a plan. A buffer is zero when it is first handed out. The calls of
/// one stream use it one after the other.
class WorkspaceSet {
 public:
  WorkspaceSet(size_t count, Stream stream) : buffers_(count), stream_(stream) {}
  /// At least `bytes` of buffer `index`, aligned; grown to `capacity` bytes when it is too small.
  /// Errors: out_of_resources.
  void* reserve(size_t index, int64_t bytes, int64_t capacity, Device& device);
  Stream stream() const { return stream_; }

 private:
  std::vector<DeviceBuffer> buffers_;
  Stream stream_;
};

/// Workspace sets of one plan, as many as calls ran at once. A thread finds the set that it used last, without a lock.
class WorkspacePool {
 public:
  WorkspacePool() = default;
  ~WorkspacePool();
  /// A set whose launches so far are on `stream`, or a new one.
  std::unique_ptr<WorkspaceSet> take(size_t count, Stream stream);
  void give_back(std::unique_ptr<WorkspaceSet> set);

 private:
  static constexpr unsigned kSlots = 64;
  std::array<std::atomic<WorkspaceSet*>, kSlots> slots_{};
};

struct LaunchPlan {
  Config config;
  std::shared_ptr<const LoadedKernel> kernel;
  std::array<SizeExpr, 3> grid;
  std::vector<Workspace> workspaces;
  mutable WorkspacePool pool;
};

/// Completes the argument block of a bound call and launches it; a grid without programs is no launch.
void launch(Device& device, const LaunchPlan& plan, const CallLayout& layout, std::span<const int64_t> scalars,
            KernelCall& call, Stream stream);
/// The same where `stream` captures: the call is bound to the capacity, the graph reads its length at `device_length`,
/// and the set that is returned belongs to the graph.
WorkspaceSet launch_captured(Device& device, const LaunchPlan& plan, const CallLayout& layout,
                             std::span<const int64_t> scalars, KernelCall& call, const int64_t* device_length,
                             Stream stream);

/// A stored decision with the place that it was read from.
struct BucketRecord {
  cache::Record record;
  std::string source;  ///< path of the file
  Config config;
};

enum class Answer : uint8_t { hit, no_record, above_top };

struct PlanEntry {
  const LaunchPlan* plan = nullptr;      ///< null: the miss policy has nothing to launch
  const BucketRecord* record = nullptr;  ///< the decision behind the plan: this bucket's, the nearest's, or none
  Answer answer = Answer::no_record;
  bool operator==(const PlanEntry&) const = default;
};

struct PlanTable {
  std::array<PlanEntry, kNumBuckets> entries;
};

}  // namespace seqtile::autotune
