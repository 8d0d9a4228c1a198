// include/seqtile/engine.h -- serve any length at once: bucket, launch plan, one launch.
// SPDX-License-Identifier: Apache-2.0
//
// Engine::open reads the stores once. prepare() fixes the static fields of an operation and loads or compiles the
// binaries that its records name, and the defaults that a miss may need. A call of the returned handle allocates
// nothing, takes no lock and touches neither SQLite nor the file system before the executor has the launch. Handles and
// engine are thread-safe: many threads may call one handle. Launch plans are immutable; refresh() and tuning swap the
// table of plans. A handle outlives its engine; only the background tuning ends with the engine. The process may exit
// while threads are inside calls.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/fabric.h"
#include "seqtile/op.h"

namespace seqtile {

/// The effect of a call whose bucket has no record.
enum class MissPolicy {
  strict,      ///< throws no_record
  fallback,    ///< the operation's default configuration ("default")
  nearest,     ///< the nearest recorded bucket's configuration
  background,  ///< nearest now, tuned on a thread of the engine, swapped in when done
  tune,        ///< tuned inside the call
};
/// The policy that `name` spells: "strict" "default" "nearest" "background" "tune".
/// Errors: invalid_argument on another name; the message lists the five.
MissPolicy parse_miss_policy(std::string_view name);

struct EngineOptions {
  std::string device = "cpu";                   ///< as open_device() names them: "sim:sm_80"
  int threads = 0;                              ///< 0: all cores this process may use; part of every key on CPUs
  Executor* executor = nullptr;                 ///< a server's own pool, which has the threads then; not owned
  std::string cache = {};                       ///< tuning.db; empty: the user's default file
  std::vector<std::string> system_caches = {};  ///< read-only files, searched after `cache`
  std::string pinned = {};                      ///< a file whose records win over all others
  std::string artifacts = {};                   ///< artifacts.db, never `cache`; empty: the user's default file
  MissPolicy policy = MissPolicy::nearest;
  int64_t max_length = 0;  ///< longer calls are refused; 0: autotune::kMaxLength
};

struct EngineCounters {
  int64_t hits = 0, launches = 0;
  int64_t misses_no_record = 0, misses_above_top = 0;
  int64_t compiles = 0, compiles_at_load = 0, tunings = 0;
  /// Losses of both kinds of store: rows that are damaged or may not serve, and files that are unusable (foreign,
  /// newer, damaged). Of tuning stores also reads that found a file locked.
  int64_t bad_rows = 0, bad_files = 0, busy = 0;
};

/// A bucket of an operation that calls have asked for, and that no record served.
struct Miss {
  autotune::Workload workload;
  autotune::Bucket bucket{1, 1};
  int64_t calls = 0;  ///< since the engine was opened
};

/// The bucket, configuration and origin that serve a length; for `explain` and tests.
struct Explanation {
  autotune::Bucket bucket;
  /// Origin of the bucket's record: "tuned" "merged" "default" "modelled" "pinned". Without a record: "nearest
  /// <origin>" of another bucket's record, "default" for the operation's default, "given" for a choice of
  /// Handle::fixed(), and "none" if a call would throw (strict) or tune first (tune).
  std::string origin;
  autotune::Config config;
  double median_us = 0;  ///< of the record; 0 without one
  std::string reason;    ///< one line: the measurement and its file, or why there is no record
};

/// A prepared operation. Copies share the same plans.
class Handle {
 public:
  struct State;
  Handle() = default;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Calls the operation. `tensors` and `scalars` are in schema order; `length` is the bucketed dimension. GPU tensors
  /// lie in device memory; the call returns when `stream` has it, and runs after earlier calls on `stream`. A length of
  /// 0 with outputs that have no elements does nothing. Errors: invalid_argument: shape, dtype, stride, alignment,
  /// overlap; on CPUs an element of an index tensor; length below Schema::least_length, above EngineOptions::max_length
  /// or other than the tensors'. no_record under `strict`. out_of_resources: no memory for a workspace.
  void operator()(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars = {},
                  Stream stream = {}) const;
  /// The call with the launch plan of length `capacity`. The result is bit for bit that of a graph captured at
  /// `capacity`. Requires: capacity >= length. Errors: as a call, and invalid_argument on a smaller capacity.
  void call_as(int64_t capacity, std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars = {},
               Stream stream = {}) const;
  /// Records the call while `stream` captures (DeviceStreams::begin_capture): one launch of the plan of `capacity`,
  /// valid for every length up to `capacity`. Each replay reads its length from `device_length` in device memory; a
  /// length above the capacity counts as the capacity. Tensors have `capacity` rows. Rows beyond the length are not
  /// written, and their contents have no influence. Attention reads the lengths of its sequences from tensors; its
  /// `capacity` is that of the longest sequence.
  /// Requires: the result lives as long as the graph; replays of one graph do not overlap.
  /// Errors: as a call; unsupported on CPUs; invalid_argument if device_length is null.
  [[nodiscard]] std::shared_ptr<const void> capture(std::span<const Tensor> tensors, int64_t capacity,
                                                    const int64_t* device_length, std::span<const int64_t> scalars = {},
                                                    Stream stream = {}) const;
  /// The lookup of a call without the launch, to be measured. Counts a hit or a miss as a call does. Returns false on a
  /// miss, which is neither tuned nor an error here. Errors: invalid_argument on a length < 1.
  bool lookup(int64_t length) const;
  /// Errors: invalid_argument on a length < 1 or above EngineOptions::max_length.
  Explanation explain(int64_t length) const;
  const autotune::Workload& workload() const;
  const autotune::OpDef& operation() const;
  const autotune::Schema& schema() const;
  /// The ranges of lengths 1..top: runs of adjacent buckets with one configuration, where top is the longest recorded
  /// length. Buckets without a plan (strict, tune) end a range and are left out.
  std::vector<std::pair<autotune::Bucket, autotune::Config>> ranges() const;
  /// Configuration of each bucket's launch plan, by bucket_index(); nullopt if a call would throw or tune.
  using Choices = std::vector<std::optional<autotune::Config>>;
  Choices choices() const;
  /// A handle of the same operation with these configurations, which neither refresh() nor tuning changes. Its calls in
  /// a bucket without a choice throw no_record. Errors: compile_failed.
  Handle fixed(const Choices& choices) const;

 private:
  std::shared_ptr<State> state_;
};

/// A Handle that takes the operation's argument struct. pack(op, args) turns it into tensors.
template <class Op>
class TypedHandle {
 public:
  TypedHandle() = default;
  TypedHandle(Handle handle, const Op& op) : handle_(std::move(handle)), op_(op) {}
  void operator()(const typename Op::Args& args, Stream stream = {}) const {
    const auto call = packed(args);
    handle_(call.tensors(), call.length, call.scalars(), stream);
  }
  /// Handle::capture; the capacity is the length of `args`.
  [[nodiscard]] std::shared_ptr<const void> capture(const typename Op::Args& args, const int64_t* device_length,
                                                    Stream stream) const {
    const auto call = packed(args);
    return handle_.capture(call.tensors(), call.length, device_length, call.scalars(), stream);
  }
  const Handle& handle() const { return handle_; }

 private:
  auto packed(const typename Op::Args& args) const { return pack(op_, args); }
  Handle handle_;
  Op op_;
};

class Engine {
 public:
  /// Requires: a registry that is passed by reference outlives the engine and its handles. A temporary registry, as in
  /// open({}, make_registry()), is owned by the engine and its handles.
  /// Errors: unsupported (the device; a policy that tunes where SEQTILE_WORKER is not set and run_worker() was never
  /// called, or where SEQTILE_WORKER is no program), invalid_argument (options). A store that cannot be read is a miss,
  /// not an error.
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry& registry);
  static std::unique_ptr<Engine> open(const EngineOptions& options, autotune::Registry&& registry);
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry&& registry) = delete;
  /// An engine on the device of `fabric`'s rank; `options.device` is ignored. `options.threads` is the rank's number of
  /// threads (0: one). Requires: the fabric outlives the engine.
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry& registry, Fabric& fabric);
  static std::unique_ptr<Engine> open(const EngineOptions& options, autotune::Registry&& registry, Fabric& fabric);
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry&& registry,
                                      Fabric& fabric) = delete;
  virtual ~Engine() = default;

  /// Fixes the static fields. The engine's number of threads replaces that of the workload. Equal workloads share their
  /// plans.
  /// Errors: invalid_argument (unknown operation or field), compile_failed (the default configuration).
  virtual Handle prepare(const autotune::Workload& workload) = 0;
  template <class Op>
  TypedHandle<Op> prepare(const Op& op) {
    return TypedHandle<Op>(prepare(op.workload()), op);
  }
  /// Collective over the ranks of the channel, between calls, for an operation that communicates (seqtile/seqpar.h).
  template <class Op>
  auto prepare(const Op& op, Channel& channel) {
    return prepare_over(*this, op, channel);
  }
  virtual EngineCounters counters() const = 0;
  /// Every bucket that calls of this engine's handles have missed, by operation and length. A bucket stays on the list
  /// when it gets a record. Handle::lookup() counts as a call. Operations over ranks are not on it: rank 0's plans
  /// serve all their buckets.
  virtual std::vector<Miss> misses() const = 0;
  /// Writes misses() as a file for `seqtile prewarm --misses`, which tunes what it lists. Replaces the file as a whole.
  /// Errors: io.
  virtual void write_misses(const std::string& path) const = 0;
  virtual Device& device() = 0;
  /// Reads the stores again and swaps the plans of every prepared handle. Errors: compile_failed, as prepare().
  virtual void refresh() = 0;
};

// A GraphSet has one graph for each bucket, so that a replay runs the kernels tuned for its length.
//
//   GraphSet graphs = capture_set(device, 8192, stream, [&](int64_t capacity) {
//     return std::vector{up.capture(args_of(capacity), capacity, device_length, stream), ...};
//   });
//   ... write the length to device_length; ranks that communicate write the same length ...
//   graphs.launch(length, stream);

class GraphSet {
 public:
  /// Replays the graph of the length's bucket, or of the first bucket for a length of 0.
  /// Errors: invalid_argument on a length below 0 or above the capacity of the set.
  void launch(int64_t length, Stream stream) const;
  /// The length at which the graph for `length` was captured. Errors: as launch().
  int64_t capacity_of(int64_t length) const { return graph_of(length).capacity; }
  size_t size() const { return graphs_.size(); }

 private:
  friend GraphSet capture_set(Device&, int64_t, Stream,
                              const std::function<std::vector<std::shared_ptr<const void>>(int64_t)>&);
  struct Captured {
    int64_t capacity = 0;
    std::vector<std::shared_ptr<const void>> kept;
    std::unique_ptr<Graph> graph;
  };
  const Captured& graph_of(int64_t length) const;

  std::vector<Captured> graphs_;  ///< by bucket
};

/// Captures the calls that `record` makes on `stream`, once for each bucket up to `capacity`, at the bucket's largest
/// length. `record` returns the results of Handle::capture; the set keeps them as long as the graphs.
/// Errors: invalid_argument on a capacity below 1; those of DeviceStreams::begin_capture and of `record`. The stream
/// captures no longer after an error.
GraphSet capture_set(Device& device, int64_t capacity, Stream stream,
                     const std::function<std::vector<std::shared_ptr<const void>>(int64_t capacity)>& record);

}  // namespace seqtile
