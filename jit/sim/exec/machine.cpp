// jit/sim/exec/machine.cpp -- checks a launch and deals its clusters out to host threads.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/exec/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>

#include "jit/sim/exec/cohort.h"
#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

constexpr int64_t kMaxSharedBytes = 232448;           ///< 227 KiB: the largest any of our targets has
constexpr int64_t kMaxLocalBytes = int64_t{4} << 30;  ///< of all threads that run together, as the host has it

[[noreturn]] void refuse(const Program& program, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("launch of {}: {}", program.kernel, what));
}

void check_shape(const Program& program, const LaunchShape& shape, size_t param_bytes) {
  const std::array<int, 3> block = {shape.threads, shape.threads_yz[0], shape.threads_yz[1]};
  const auto text = [](const std::array<int, 3>& sides) { return fmt::format("{}", fmt::join(sides, ",")); };
  const int64_t threads = int64_t{block[0]} * block[1] * block[2];
  if (block[0] < 1 || block[1] < 1 || block[2] < 1 || block[2] > 64 || threads > 1024)
    refuse(program, fmt::format("a block of {}: 1 to 1024 threads, at most 64 along z", text(block)));
  const bool has_block = program.required_block[0] != 0;
  if (has_block && program.required_block != block)
    refuse(program, fmt::format("a block of {}, the kernel requires {}", text(block), text(program.required_block)));
  if (program.max_threads != 0 && threads > program.max_threads)
    refuse(program, fmt::format("{} threads per block, the kernel takes at most {}", threads, program.max_threads));
  if (program.required_cluster[0] != 0 && program.required_cluster != shape.cluster)
    refuse(program,
           fmt::format("clusters of {}, the kernel requires {}", text(shape.cluster), text(program.required_cluster)));
  for (int d = 0; d < 3; ++d) {
    if (shape.grid[d] < 1 || shape.cluster[d] < 1) refuse(program, "an empty grid or cluster");
    if (shape.grid[d] % shape.cluster[d] != 0)
      refuse(program, fmt::format("a grid of {} is not made of clusters of {}", shape.grid[d], shape.cluster[d]));
  }
  if (shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > 16) refuse(program, "a cluster has at most 16 CTAs");
  if (param_bytes < static_cast<size_t>(program.param_bytes))
    refuse(program, fmt::format("{} bytes of parameters, the kernel has {}", param_bytes, program.param_bytes));
  const int64_t shared = program.static_shared_bytes + shape.shared_bytes;
  if (shared > kMaxSharedBytes)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("launch of {}: {} bytes of shared memory, a device has at most {}", program.kernel, shared,
                            kMaxSharedBytes));
}

/// Local memory is the host's, for every thread of the blocks that run at once.
void check_local(const Program& program, const LaunchShape& shape, const Executor* executor) {
  const int64_t grid = int64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  const int64_t cluster = int64_t{shape.cluster[0]} * shape.cluster[1] * shape.cluster[2];
  const int64_t workers = executor != nullptr ? executor->num_workers() : 1;
  const int64_t blocks = shape.cooperative ? grid : std::min(grid, cluster * workers);
  const int64_t needed = program.local_bytes * shape.num_threads() * blocks;
  if (needed <= kMaxLocalBytes) return;
  throw Error(
      ErrorCode::out_of_resources,
      fmt::format("launch of {}: {} blocks of {} threads with {} bytes of .local each need {} bytes at once, {} "
                  "are available; declare less, or simulate with fewer host threads",
                  program.kernel, blocks, shape.num_threads(), program.local_bytes, needed, kMaxLocalBytes));
}

/// Runs the clusters of one grid, several at a time.
class GridRun {
 public:
  GridRun(LaunchContext& context, const Grid& grid)
      : context_(context),
        grid_(grid),
        ctas_per_item_(grid.shape.cooperative ? grid.num_ctas() : grid.cluster_size()) {}

  /// The clock at the end of the grid.
  uint64_t end_ns() const { return end_ns_; }
  Counters run(Executor* executor) {
    const int64_t items = grid_.num_ctas() / ctas_per_item_;
    context_.is_parallel = executor != nullptr && executor->num_workers() > 1 && items > 1;
    context_.finished = std::vector<std::atomic<bool>>(static_cast<size_t>(items));
    if (context_.is_parallel) executor->run(items, &GridRun::work, this);
    else work(this, 0, items);
    if (error_) std::rethrow_exception(error_);
    return counters_;
  }

 private:
  static void work(void* self, int64_t begin, int64_t end) { static_cast<GridRun*>(self)->work(begin, end); }

  void work(int64_t begin, int64_t end) {
    try {
      Cohort cohort(context_, context_.first_cohort + static_cast<uint32_t>(begin));
      for (int64_t item = begin; item < end && !context_.reports.is_enough(); ++item) {
        cohort.run(grid_, static_cast<int>(item) * ctas_per_item_, ctas_per_item_, item);
        note_finished(item);
        context_.progress.ctas_done += ctas_per_item_;
      }
      const std::lock_guard lock(mutex_);
      counters_.add(cohort.counters());
      end_ns_ = std::max(end_ns_, cohort.time_ns());
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      context_.finished_prefix = INT64_MAX;  // nobody waits for what will never come
    }
  }

  void note_finished(int64_t item) {
    context_.finished[static_cast<size_t>(item)] = true;
    const std::lock_guard lock(mutex_);
    int64_t prefix = context_.finished_prefix;
    while (prefix < static_cast<int64_t>(context_.finished.size()) && context_.finished[static_cast<size_t>(prefix)])
      ++prefix;
    context_.finished_prefix = prefix;
  }

  LaunchContext& context_;
  const Grid& grid_;
  const int ctas_per_item_;
  std::mutex mutex_;
  Counters counters_;
  uint64_t end_ns_ = 0;
  std::exception_ptr error_;
};

/// Ends with the launch, whatever ends it.
class RunningNow {
 public:
  RunningNow(LaunchProgress& progress, int64_t ctas) : progress_(progress) { progress.begin(ctas); }
  ~RunningNow() { progress_.is_running = false; }
  RunningNow(const RunningNow&) = delete;
  RunningNow& operator=(const RunningNow&) = delete;

 private:
  LaunchProgress& progress_;
};

}  // namespace

struct Machine::State {
  MemoryMap memory;
  LaunchProgress progress;
  uint32_t next_cohort = 1;
  uint64_t clock_ns = 1000;  ///< goes on from launch to launch

  /// Module variables are global memory while the kernel runs.
  void map_globals(const Program& program, int device) {
    for (const Program::Global& global : program.globals) {
      if (memory.find(reinterpret_cast<uint64_t>(global.storage->data())) != nullptr) continue;
      memory.add(global.name, global.storage->data(), static_cast<uint64_t>(global.bytes), device, true).is_constant =
          global.is_constant;
    }
  }
  void unmap_globals(const Program& program) {
    for (const Program::Global& global : program.globals) memory.remove(global.storage->data());
  }
  /// Maps the variables of programs until it ends, whatever ends it.
  class MappedGlobals {
   public:
    explicit MappedGlobals(State& state) : state_(state) {}
    ~MappedGlobals() {
      for (const Program* program : programs_) state_.unmap_globals(*program);
    }
    MappedGlobals(const MappedGlobals&) = delete;
    MappedGlobals& operator=(const MappedGlobals&) = delete;
    void add(const Program& program, int device) {
      programs_.push_back(&program);
      state_.map_globals(program, device);
    }

   private:
    State& state_;
    std::vector<const Program*> programs_;
  };
  void prepare_history(const Options& options) {
    for (const auto& region : memory.regions())
      memory.ensure_history(*region, options.checks.races, options.record_writers);
  }
};

Machine::Machine() : state_(std::make_unique<State>()) {}
Machine::~Machine() = default;
Machine::Machine(Machine&&) noexcept = default;

void Machine::register_memory(std::string name, void* pointer, uint64_t bytes, int device, bool is_peer_visible) {
  state_->memory.add(std::move(name), pointer, bytes, device, is_peer_visible);
}

void Machine::unregister_memory(const void* pointer) { state_->memory.remove(pointer); }

void Machine::rename(const void* pointer, std::string name) {
  if (Region* region = state_->memory.find(reinterpret_cast<uint64_t>(pointer))) region->name = std::move(name);
}

void Machine::watch(const void* pointer, Watcher watcher) {
  Region* region = state_->memory.find(reinterpret_cast<uint64_t>(pointer));
  if (region == nullptr || region->begin != pointer)
    throw Error(ErrorCode::invalid_argument, "watch: no registered memory begins there");
  region->watcher = std::move(watcher);
}

void Machine::poison(const void* pointer, uint64_t bytes) {
  Region* region = state_->memory.find(reinterpret_cast<uint64_t>(pointer));
  if (region == nullptr || !region->contains(reinterpret_cast<uint64_t>(pointer), bytes))
    throw Error(ErrorCode::invalid_argument, "poison: the bytes are not registered memory");
  if (region->poisoned == nullptr) region->poisoned = std::make_unique<uint8_t[]>(region->bytes);
  std::memset(&region->poisoned[reinterpret_cast<uint64_t>(pointer) - region->address()], 1, bytes);
}

void Machine::unpoison(const void* pointer, uint64_t bytes) {
  Region* region = state_->memory.find(reinterpret_cast<uint64_t>(pointer));
  if (region == nullptr || region->poisoned == nullptr) return;
  const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - region->address();
  std::memset(&region->poisoned[offset], 0, std::min(bytes, region->bytes - offset));
}

LaunchResult Machine::launch(const Program& program, const LaunchShape& shape, std::span<const std::byte> params,
                             const Options& options, int device) {
  check_shape(program, shape, params.size());
  check_local(program, shape, options.executor);
  ReportSink sink(options.max_reports);
  const RunningNow running(state_->progress, shape.grid[0] * int64_t{shape.grid[1]} * shape.grid[2]);
  State::MappedGlobals globals(*state_);
  globals.add(program, device);
  state_->prepare_history(options);
  LaunchContext context{options, state_->memory, sink, state_->progress};
  const Grid grid{&program, shape, {params.begin(), params.end()}, device};
  context.first_cohort = state_->next_cohort;
  context.start_ns = state_->clock_ns;
  state_->next_cohort += static_cast<uint32_t>(grid.num_ctas());
  LaunchResult result;
  GridRun run(context, grid);
  result.counters = run.run(options.executor);
  state_->clock_ns = run.end_ns();
  result.num_reports = sink.total();
  result.reports = sink.take();
  result.printed = std::move(context.printed);
  result.num_printed = context.num_printed;
  return result;
}

LaunchResult Machine::run_streams(std::span<const std::vector<Launch>> streams, const Options& options) {
  State::MappedGlobals globals(*state_);
  for (size_t s = 0; s < streams.size(); ++s)
    for (const Launch& launch : streams[s]) {
      check_shape(*launch.program, launch.shape, launch.params.size());
      check_local(*launch.program, launch.shape, nullptr);
      if (launch.program != streams[s].front().program || launch.shape.grid != streams[s].front().shape.grid)
        refuse(*launch.program, "the launches of a stream must have one program and shape");
      globals.add(*launch.program, static_cast<int>(s));
    }
  ReportSink sink(options.max_reports);
  state_->prepare_history(options);
  const RunningNow running(state_->progress, 0);
  LaunchContext context{options, state_->memory, sink, state_->progress};
  context.first_cohort = state_->next_cohort++;
  context.start_ns = state_->clock_ns;
  Cohort cohort(context, context.first_cohort);
  cohort.run_streams(streams);
  state_->clock_ns = cohort.time_ns();
  LaunchResult result;
  result.counters = cohort.counters();
  result.num_reports = sink.total();
  result.reports = sink.take();
  result.printed = std::move(context.printed);
  result.num_printed = context.num_printed;
  return result;
}

const LaunchProgress& Machine::progress() const { return state_->progress; }

std::optional<LastWriter> Machine::last_writer(const void* pointer) const {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  const Region* region = state_->memory.find(address);
  if (region == nullptr || region->writers == nullptr) return {};
  const LastWriter& writer = region->writers[(address - region->address()) / 4];
  return writer.line > 0 ? std::optional(writer) : std::nullopt;
}

std::string Machine::describe(const void* pointer) const {
  return state_->memory.describe(reinterpret_cast<uint64_t>(pointer));
}

}  // namespace seqtile::sim
