// autotune/engine.h -- serve any length at once: bucket -> launch plan -> one launch.
// SPDX-License-Identifier: Apache-2.0
//
// Engine::open reads the stores once; prepare() fixes an operation's static part, loads or compiles every binary that
// its records name (and the defaults that a miss may need) and returns a handle. A call of the handle allocates
// nothing, takes no lock and touches neither SQLite nor the file system up to the hand-off to the executor. Handles and
// engine are thread-safe: many threads may call one handle. Launch plans are immutable; refresh() and tuning swap them
// by generation. A handle outlives its engine; only the background tuning ends with the engine. The process may
// exit while threads are inside calls.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/bucket.h"
#include "autotune/op_def.h"
#include "jit/device/device.h"
#include "jit/fabric/core/fabric.h"

namespace seqtile {

/// What a call does when the bucket of its length has no record.
enum class MissPolicy {
  strict,      ///< throws
  fallback,    ///< the operation's default configuration ("default")
  nearest,     ///< the nearest recorded bucket's configuration
  background,  ///< nearest now, tuned on a thread of the engine, swapped in when done
  tune,        ///< tuned inside the call
};
/// "strict" "default" "nearest" "background" "tune". Errors: invalid_argument listing them.
MissPolicy parse_miss_policy(std::string_view name);

struct EngineOptions {
  std::string device = "cpu";              ///< as open_device() names them: "sim:sm_80"
  int threads = 0;                         ///< 0: all cores this process may use; of CPUs part of every key
  Executor* executor = nullptr;            ///< a server's own pool; not owned
  std::string cache;                       ///< tuning.db; empty: the user's default file
  std::vector<std::string> system_caches;  ///< read-only files, searched after `cache`
  std::string pinned;                      ///< a file whose records win over all others
  std::string artifacts;                   ///< artifacts.db; empty: the user's default file
  MissPolicy policy = MissPolicy::nearest;
  int64_t max_length = 0;  ///< lengths above: refused; 0: the ladder goes on
};

struct EngineCounters {
  int64_t hits = 0, launches = 0;
  int64_t misses_no_record = 0, misses_above_top = 0;
  int64_t compiles = 0, compiles_at_load = 0, tunings = 0;
  /// What the stores did not give: damaged rows, unusable files (foreign, newer, damaged), reads that found them
  /// locked.
  int64_t bad_rows = 0, bad_files = 0, busy = 0;
};

/// Which bucket, configuration and origin answer a length; for `explain` and tests.
struct Explanation {
  autotune::Bucket bucket;
  /// tuned merged default modelled pinned; "nearest <origin>"; "default" when nothing is recorded; "given" where
  /// Handle::fixed() was told so; "none" when a call would throw (strict) or tune first (tune).
  std::string origin;
  autotune::Config config;
  double median_us = 0;
  std::string reason;  ///< one line: the measurement and its file, or why there is no record
};

class Channel;
class Engine;

/// A prepared operation. Copies share the same plans.
class Handle {
 public:
  struct State;
  Handle() = default;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Tensors in schema order; `scalars` in schema order. `length` is the bucketed dimension. On GPUs tensors lie in
  /// device memory and the call returns when it is handed to `stream`, which orders it after earlier calls.
  /// Errors: invalid_argument (shape, dtype, stride, alignment, overlap, on CPUs a number of an index tensor; length
  /// < 1, or less than the tensors say; no record under `strict`).
  void operator()(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars = {},
                  Stream stream = {}) const;
  /// The call with the plan of `capacity`, at least the length: what a graph captured there computes, bit for bit.
  void call_as(int64_t capacity, std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars = {},
               Stream stream = {}) const;
  /// Records the call for every length up to `capacity` while `stream` captures (DeviceStreams::begin_capture): one
  /// launch of the plan of `capacity`. Each replay reads its length from `device_length` in device memory; one above
  /// the capacity counts as the capacity. Tensors have capacity rows; those beyond the length are not written, and what
  /// is in them has no influence. Lengths of attention's sequences are tensors anyway: capacity is that of the longest.
  /// Keep the result as long as the graph; replays of one graph must not overlap.
  /// Errors: as a call, and unsupported on CPUs, invalid_argument where device_length is null.
  [[nodiscard]] std::shared_ptr<const void> capture(std::span<const Tensor> tensors, int64_t capacity,
                                                    const int64_t* device_length, std::span<const int64_t> scalars = {},
                                                    Stream stream = {}) const;
  /// Bucket and plan only, counted as the call counts it; for measuring the lookup. Returns false on a miss, which is
  /// neither tuned nor an error here. Errors: invalid_argument on a length < 1.
  bool lookup(int64_t length) const;
  Explanation explain(int64_t length) const;
  const autotune::Workload& workload() const;
  const autotune::Schema& schema() const;
  /// Distinct configurations that serve lengths 1..top, as runs of adjacent buckets; top is the longest recorded
  /// length. Buckets that nothing serves (strict, tune) end a run and are left out.
  std::vector<std::pair<autotune::Bucket, autotune::Config>> ranges() const;
  /// What serves each bucket now, by bucket_index(); nothing where a call would throw or tune.
  using Choices = std::vector<std::optional<autotune::Config>>;
  Choices choices() const;
  /// The same operation, served by exactly these, which neither refresh() nor tuning changes; a call in a bucket
  /// without a choice throws. Errors: compile_failed.
  Handle fixed(const Choices& choices) const;

 private:
  std::shared_ptr<State> state_;
};

/// Handle with the operation's own argument struct: Op::Args -> tensors by pack(op, args).
template <class Op>
class TypedHandle {
 public:
  TypedHandle() = default;
  TypedHandle(Handle handle, const Op& op) : handle_(std::move(handle)), op_(op) {}
  void operator()(const typename Op::Args& args, Stream stream = {}) const {
    const auto call = packed(args);
    handle_(call.tensors(), call.length, call.scalars(), stream);
  }
  /// Handle::capture with the capacity that the arguments have.
  [[nodiscard]] std::shared_ptr<const void> capture(const typename Op::Args& args, const int64_t* device_length,
                                                    Stream stream) const {
    const auto call = packed(args);
    return handle_.capture(call.tensors(), call.length, device_length, call.scalars(), stream);
  }
  const Handle& handle() const { return handle_; }

 private:
  auto packed(const typename Op::Args& args) const {
    if constexpr (requires { Op::pack(args, handle_.schema()); }) return Op::pack(args, handle_.schema());
    else return pack(op_, args);
  }
  Handle handle_;
  Op op_;
};

class Engine {
 public:
  /// A registry that has a name outlives the engine and its handles; one that is given away, as in
  /// open({}, make_registry()), is kept by them.
  /// Errors: unsupported (device), invalid_argument (options). A cache that cannot be read is a miss, not an error.
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry& registry);
  static std::unique_ptr<Engine> open(const EngineOptions& options, autotune::Registry&& registry);
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry&& registry) = delete;
  /// The same on the device of a rank, whatever the options say of devices; `options.threads` are those that the
  /// rank has (0: one). The fabric outlives the engine.
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry& registry, Fabric& fabric);
  static std::unique_ptr<Engine> open(const EngineOptions& options, autotune::Registry&& registry, Fabric& fabric);
  static std::unique_ptr<Engine> open(const EngineOptions& options, const autotune::Registry&& registry,
                                      Fabric& fabric) = delete;
  virtual ~Engine() = default;

  /// Fixes the static part; the workload's threads are the engine's. Equal workloads share their plans.
  /// Errors: invalid_argument (unknown operation or field), compile_failed (the default configuration).
  virtual Handle prepare(const autotune::Workload& workload) = 0;
  template <class Op>
  TypedHandle<Op> prepare(const Op& op) {
    return TypedHandle<Op>(prepare(op.workload()), op);
  }
  /// Collective over the ranks of the channel, for an operation that communicates (kernels/seqpar/fused_handle.h).
  template <class Op>
  auto prepare(const Op& op, Channel& channel) {
    return prepare_over(*this, op, channel);
  }
  virtual EngineCounters counters() const = 0;
  virtual Device& device() = 0;
  /// Reads the stores again and swaps the plans of every live handle.
  virtual void refresh() = 0;
};

}  // namespace seqtile
