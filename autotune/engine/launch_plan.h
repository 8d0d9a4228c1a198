// autotune/engine/launch_plan.h -- launch plans (kernel, grid, workspaces), and the table that has one a bucket.
// SPDX-License-Identifier: Apache-2.0
//
// A LaunchPlan is one loaded configuration; the lengths of a bucket share it, and so may many buckets. A PlanTable maps
// every bucket of the ladder (293 up to 2^40) to a plan by one array access. Plans and tables are immutable once calls
// can read them; a change makes a new table and swaps one atomic pointer. A handle keeps its old tables until it is
// destroyed, so that readers need no lock and no epoch. A table equal to the current one is dropped, so that only
// changes add tables.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "autotune/engine/launch.h"
#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

constexpr int kNumBuckets = static_cast<int>(bucket_index(kMaxLength)) + 1;

/// A small number that the calling thread keeps for its whole life; spreads threads over cache lines.
unsigned thread_number();

/// Scratch buffers of one call, one per workspace of a plan. A new buffer is zero. Calls of one stream use a set one
/// after the other.
class WorkspaceSet {
 public:
  WorkspaceSet(size_t count, Stream stream) : buffers_(count), stream_(stream) {}
  /// Buffer `index`, with at least `bytes` bytes, aligned to kWorkspaceAlignment. A smaller buffer is replaced by a
  /// zeroed one of `capacity` bytes. Requires: capacity >= bytes. Errors: out_of_resources.
  void* reserve(size_t index, int64_t bytes, int64_t capacity, Device& device);
  Stream stream() const { return stream_; }

 private:
  std::vector<DeviceBuffer> buffers_;
  Stream stream_;
};

/// Workspace sets of one plan, as many as calls ran at once. A thread finds its previous set without a lock.
class WorkspacePool {
 public:
  WorkspacePool() = default;
  ~WorkspacePool();
  /// A set whose earlier launches are on `stream`, or a new set of `count` empty buffers.
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

/// Completes the argument block of a bound call and launches it. A grid without programs is not launched.
/// Errors: out_of_resources, and those of Device::launch.
void launch(Device& device, const LaunchPlan& plan, const CallLayout& layout, std::span<const int64_t> scalars,
            KernelCall& call, Stream stream);
/// Launches on a stream that captures. `call` is bound at the capacity; the graph reads its length at `device_length`.
/// The returned workspaces must live as long as the graph. Errors: as launch().
WorkspaceSet launch_captured(Device& device, const LaunchPlan& plan, const CallLayout& layout,
                             std::span<const int64_t> scalars, KernelCall& call, const int64_t* device_length,
                             Stream stream);

/// A stored decision with its file and its parsed configuration.
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
