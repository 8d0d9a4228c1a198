// jit/sim/exec/machine.h -- executes decoded PTX on the CPU, whole grids at a time, and reports the faults of the
// kernel.
// SPDX-License-Identifier: Apache-2.0
//
// Warps are 32-lane register arrays. Lanes that diverge run as groups, smallest instruction first, and merge where they
// meet. The CTAs of a cluster, or all CTAs of a cooperative grid, run together on one host thread; clusters run on
// several threads through an Executor. Asynchronous data arrives as late as the text allows, so that a missing wait
// shows. Execution is sequentially consistent; errors that show only on weaker hardware are found by happens-before,
// not by values. Faults are data: a launch returns reports, and throws only for errors of the caller.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/sim/checks/counters.h"
#include "jit/sim/checks/memory_map.h"
#include "jit/sim/checks/report.h"
#include "jit/sim/decode/program.h"
#include "seqtile/device.h"

namespace seqtile::sim {

struct LaunchShape {
  std::array<int, 3> grid = {1, 1, 1};
  int threads = 32;                        ///< per CTA, along x
  std::array<int, 2> threads_yz = {1, 1};  ///< per CTA, along y and z; all three make at most 1024
  std::array<int, 3> cluster = {1, 1, 1};
  int64_t shared_bytes = 0;  ///< dynamic shared memory
  bool cooperative = false;  ///< all CTAs are resident together
  int registers = 0;         ///< per thread at the start; 0: .maxnreg, else 64 K registers divided among the threads
  int num_threads() const { return threads * threads_yz[0] * threads_yz[1]; }
};

/// The checks to make. Bounds and alignment are always checked: they protect the host.
struct Checks {
  bool initialised = true;  ///< registers, shared memory, poisoned global memory
  bool in_flight = true;    ///< data and registers of asynchronous operations before their wait; missing fences
  bool races = true;        ///< by happens-before, in shared and global memory
  bool lanes = true;        ///< races between the lanes of one warp; only together with `races`
  /// Memory that a wgmma has read is free when all four warps have waited; false: when one warp has.
  bool release_per_warp = true;

  static Checks none() { return {false, false, false, false, true}; }
};

struct Options {
  Checks checks;
  uint32_t seed = 0;                               ///< 0: round robin; else warps, slices and arrivals in random order
  Executor* executor = nullptr;                    ///< not owned; null: the calling thread alone
  bool profile = false;                            ///< count classes, sectors, bytes and bank conflicts
  bool record_writers = false;                     ///< remember the PTX store that wrote each element last
  uint64_t instruction_limit = uint64_t{1} << 34;  ///< warp instructions per cohort; beyond: a report
  size_t max_reports = 20;
};

constexpr size_t kMaxPrinted = 100;

struct LaunchResult {
  std::vector<Report> reports;  ///< the first of each kind and line
  size_t num_reports = 0;       ///< the number of all reports
  Counters counters;
  std::vector<std::string> printed;  ///< lines of printf, at most kMaxPrinted
  size_t num_printed = 0;            ///< the number of all lines
  bool ok() const { return num_reports == 0; }
};

/// Progress of the launch that runs now, else of the newest one. May be read from any thread.
struct LaunchProgress {
  std::atomic<bool> is_running{false};
  std::atomic<int64_t> ctas{0}, ctas_done{0};
  std::atomic<uint64_t> warp_instructions{0};  ///< roughly, while it runs
  void begin(int64_t num_ctas) { is_running = true, ctas = num_ctas, ctas_done = 0, warp_instructions = 0; }
};

/// A launch of run_streams().
struct Launch {
  const Program* program = nullptr;  ///< not owned
  LaunchShape shape;
  std::vector<std::byte> params;
  std::function<void()> before = {}, after = {};  ///< host work in stream order
};

class Machine {
 public:
  Machine();
  ~Machine();
  Machine(Machine&&) noexcept;

  /// Makes host memory visible to kernels as global memory. Kernels of another device may touch it only if
  /// `is_peer_visible`. Errors: invalid_argument where it overlaps registered memory.
  void register_memory(std::string name, void* pointer, uint64_t bytes, int device = 0, bool is_peer_visible = false);
  void unregister_memory(const void* pointer);
  /// Changes the name that reports use for the memory that was registered at `pointer`.
  void rename(const void* pointer, std::string name);
  /// From now on `watcher` is called after every load, store and atomic operation that kernels make in the memory that
  /// was registered at `pointer`, in their order; not for asynchronous copies. A grid whose clusters run on several
  /// threads calls `watcher` from all of these threads. Errors: invalid_argument.
  void watch(const void* pointer, Watcher watcher);
  /// Marks bytes as never written: a kernel that reads them is reported, until a kernel writes them.
  void poison(const void* pointer, uint64_t bytes);
  void unpoison(const void* pointer, uint64_t bytes);

  /// Runs one grid to its end. `params` is the parameter block, laid out as Program::params says.
  /// Errors: invalid_argument on a shape that does not fit the kernel; out_of_resources beyond 227 KiB of shared
  /// memory.
  LaunchResult launch(const Program& program, const LaunchShape& shape, std::span<const std::byte> params,
                      const Options& options = {}, int device = 0);
  /// Runs the launches of each stream in order and the streams at the same time; stream i belongs to device i.
  LaunchResult run_streams(std::span<const std::vector<Launch>> streams, const Options& options = {});

  const LaunchProgress& progress() const;

  /// The store that wrote the element at `pointer` last, if launches recorded it.
  std::optional<LastWriter> last_writer(const void* pointer) const;
  /// "C + 4096": for messages.
  std::string describe(const void* pointer) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Appends a kernel argument to a parameter block at the next offset that suits its size.
template <class T>
void append_param(std::vector<std::byte>& params, const T& value) {
  constexpr size_t kAlign = sizeof(T) == 128 ? 64 : sizeof(T);
  params.resize((params.size() + kAlign - 1) / kAlign * kAlign);
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  params.insert(params.end(), bytes, bytes + sizeof(T));
}

}  // namespace seqtile::sim
