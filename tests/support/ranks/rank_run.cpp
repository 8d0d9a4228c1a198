// tests/support/ranks/rank_run.cpp -- see rank_run.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/rank_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "autotune/call/call_values.h"
#include "jit/ir/row_alignment.h"
#include "jit/simulation.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/ranks/node_ranks.h"

namespace seqtile::testing {
namespace {

size_t extent(const Tensor& tensor) {
  int64_t elements = tensor.num_elements() > 0 ? 1 : 0;
  for (int d = 0; d < tensor.rank && elements > 0; ++d) elements += (tensor.sizes[d] - 1) * tensor.strides[d];
  return static_cast<size_t>(elements * dtype_bytes(tensor.dtype));
}

/// Copies of host tensors where a device's kernels reach them. Tensors with the same data stay one tensor.
class DeviceTensors {
 public:
  explicit DeviceTensors(Device& device) : device_(device) {}

  Tensor place(const Tensor& tensor) {
    if (device_.memory().is_host()) return tensor;
    auto found = buffers_.find(tensor.data);
    if (found == buffers_.end()) {
      const size_t bytes = extent(tensor);
      found = buffers_.emplace(tensor.data, DeviceBuffer(device_.memory(), std::max<size_t>(bytes, 1))).first;
      device_.memory().copy(found->second.data(), tensor.data, bytes);
      placed_.push_back(tensor);
    }
    Tensor result = tensor;
    result.data = found->second.data();
    return result;
  }

  void take_back() {
    for (const Tensor& tensor : placed_)
      device_.memory().copy(tensor.data, buffers_.at(tensor.data).data(), extent(tensor));
    device_.streams().synchronize({});
  }

 private:
  Device& device_;
  std::map<void*, DeviceBuffer> buffers_;
  std::vector<Tensor> placed_;
};

std::vector<uint64_t> slots_of(const std::vector<Tensor>& tensors) {
  std::vector<uint64_t> slots;
  for (const Tensor& tensor : tensors) {
    slots.push_back(reinterpret_cast<uintptr_t>(tensor.data));
    for (int d = 0; d < tensor.rank; ++d) slots.push_back(static_cast<uint64_t>(tensor.sizes[d]));
    for (int d = 0; d < tensor.rank; ++d) slots.push_back(static_cast<uint64_t>(tensor.strides[d]));
  }
  return slots;
}

/// Poisons the staging, so that data no rank has written does not reach a result unnoticed.
void poison_staging(Channel& channel) {
  const auto address = reinterpret_cast<void*>(channel.staging_address());
  const auto bytes = static_cast<size_t>(channel.staging_bytes());
  Device& device = channel.fabric().device();
  device.memory().fill(address, static_cast<uint8_t>(autotune::kPoison), bytes);
  device.streams().synchronize({});
  poison_memory(device, address, bytes);
}

class Rank {
 public:
  Rank(Fabric& fabric, const RankOptions& options) : fabric_(fabric), options_(options) {}

  /// What is thrown becomes `error`.
  void run(const std::vector<KernelBinary>& binaries, const std::vector<RankCall>& calls) {
    try {
      run_calls(binaries, calls);
    } catch (...) {
      error = std::current_exception();
    }
  }

  uint64_t epoch = 0;
  std::optional<AbortRecord> record;
  std::exception_ptr error;

 private:
  void run_calls(const std::vector<KernelBinary>& binaries, const std::vector<RankCall>& calls) {
    Device& device = fabric_.device();
    Channel channel(fabric_, options_.channel);
    poison_staging(channel);
    if (options_.with_channel) options_.with_channel(channel);
    fabric_.all_gather("");
    std::vector<std::unique_ptr<LoadedKernel>> kernels;
    for (const KernelBinary& binary : binaries) kernels.push_back(device.load(binary));
    int64_t most_counters = 1;
    for (const RankCall& call : calls) most_counters = std::max(most_counters, call.num_counters);
    const DeviceBuffer counters(device.memory(), static_cast<size_t>(most_counters) * sizeof(int32_t));
    device.memory().fill(counters.data(), 0, counters.bytes());
    DeviceTensors tensors(device);
    std::deque<DeviceBuffer> workspaces;
    for (const RankCall& call : calls) {
      std::vector<Tensor> placed;
      for (const Tensor& tensor : call.tensors) placed.push_back(tensors.place(tensor));
      for (const Tensor& tensor : channel.tensors()) placed.push_back(tensor);
      for (const autotune::Workspace& w : call.workspaces) {
        const int64_t elements = w.elements.value(call.symbols);
        const auto bytes = static_cast<size_t>(elements * dtype_bytes(w.dtype));
        const DeviceBuffer& buffer = workspaces.emplace_back(device.memory(), bytes);
        device.memory().fill(buffer.data(), 0, bytes);
        placed.push_back(make_tensor(buffer.data(), w.dtype, {elements}));
      }
      placed.push_back(make_tensor(counters.data(), DType::i32, {call.num_counters}));
      pause(device);
      if (options_.before_launch) options_.before_launch(fabric_.rank(), static_cast<int>(&call - calls.data()));
      std::vector<uint64_t> slots = slots_of(placed);
      slots.push_back(call.kernel);  // op id
      device.launch(*kernels[call.kernel], call.grid, slots);
    }
    tensors.take_back();
    epoch = channel.epoch();
    record = channel.abort_record();
    fabric_.all_gather("");  // peers may still store flags in this rank's memory
  }

  void pause(const Device& device) {
    if (!options_.seed || device.target().is_gpu()) return;
    const bool is_slow = fabric_.rank() == options_.slow_rank;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (is_slow ? 3000 : 100)));
  }

  Fabric& fabric_;
  const RankOptions& options_;
  std::mt19937 random_{options_.seed + static_cast<uint32_t>(fabric_.rank()) * 7919};
};

/// Memory that a process shares with its forked ranks; zero at first.
class SharedArena {
 public:
  explicit SharedArena(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw Error(ErrorCode::out_of_resources, "no shared memory for a test");
  }
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena() { munmap(data_, bytes_); }
  void* take(size_t bytes) {
    void* result = static_cast<std::byte*>(data_) + used_;
    used_ += (bytes + 63) / 64 * 64;
    return result;
  }

 private:
  void* data_;
  size_t bytes_, used_ = 0;
};

/// The result that a forked rank leaves behind.
struct RankResult {
  uint64_t epoch;
  bool has_record;
  AbortRecord record;
  char error[512];
};

/// Copies the calls' tensors to shared memory and back.
class SharedCalls {
 public:
  explicit SharedCalls(const std::vector<std::vector<RankCall>>& given) : calls(given), arena_(bytes_of(given)) {
    for (auto& rank : calls)
      for (RankCall& call : rank)
        for (Tensor& tensor : call.tensors) {
          if (extent(tensor) == 0) continue;  // an empty part may begin at the address of another part
          const auto [found, is_new] = places_.try_emplace(tensor.data, nullptr);
          if (is_new) {
            found->second = arena_.take(extent(tensor));
            std::memcpy(found->second, tensor.data, extent(tensor));
            tensors_.push_back(tensor);
          }
          tensor.data = found->second;
        }
    results = static_cast<RankResult*>(arena_.take(given.size() * sizeof(RankResult)));
  }
  void take_back() const {
    for (const Tensor& tensor : tensors_) std::memcpy(tensor.data, places_.at(tensor.data), extent(tensor));
  }

  std::vector<std::vector<RankCall>> calls;
  RankResult* results;

 private:
  static size_t bytes_of(const std::vector<std::vector<RankCall>>& calls) {
    size_t bytes = calls.size() * sizeof(RankResult) + 64;
    for (const auto& rank : calls)
      for (const RankCall& call : rank)
        for (const Tensor& tensor : call.tensors) bytes += extent(tensor) + 64;
    return bytes;
  }

  SharedArena arena_;
  std::map<void*, void*> places_;
  std::vector<Tensor> tensors_;
};

void run_forked(int world, int rank, const RankOptions& options, const std::vector<KernelBinary>& binaries,
                const std::vector<RankCall>& calls, RankResult& result) {
  try {
    const auto fabric = join_process_fabric(world, rank);
    Rank running(*fabric, options);
    running.run(binaries, calls);
    result.epoch = running.epoch;
    result.has_record = running.record.has_value();
    if (running.record) result.record = *running.record;
    if (running.error) std::rethrow_exception(running.error);
  } catch (const std::exception& error) {
    std::snprintf(result.error, sizeof(result.error), "%s", error.what());
  }
}

RankOutcome run_processes(const std::vector<KernelBinary>& binaries, const RankOptions& options,
                          const std::vector<std::vector<RankCall>>& calls) {
  SharedCalls shared(calls);
  const int world = make_process_world(options.world_size);
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      const auto r = static_cast<size_t>(rank);
      run_forked(world, rank, options, binaries, shared.calls[r], shared.results[r]);
      _exit(0);
    }
    children.push_back(child);
  }
  close(world);
  RankOutcome outcome;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    outcome.statuses.push_back(status);
    const RankResult& result = shared.results[rank];
    outcome.errors.push_back(result.error);
    outcome.epochs.push_back(result.epoch);
    outcome.records.push_back(result.has_record ? std::optional(result.record) : std::nullopt);
  }
  shared.take_back();
  return outcome;
}

void edit(KernelBinary& binary, const std::function<std::string(std::string)>& edit_ptx) {
  const std::string text = edit_ptx({reinterpret_cast<const char*>(binary.code.data()), binary.code.size()});
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  binary.code.assign(bytes, bytes + text.size());
}

#if defined(__SANITIZE_THREAD__)
constexpr Sanitizer kSanitizer = Sanitizer::thread;
#elif defined(__SANITIZE_ADDRESS__)
constexpr Sanitizer kSanitizer = Sanitizer::address;
#else
constexpr Sanitizer kSanitizer = Sanitizer::none;
#endif

/// "sm_80" for "sim:sm_80" and "virtual:sm_80"; empty for ranks on the CPU.
std::string gpu_of(const RankOptions& options) {
  const size_t colon = options.device.find(':');
  return colon == std::string::npos ? "" : options.device.substr(colon + 1);
}

bool is_shared(const RankOptions& options) { return options.device.starts_with("virtual:"); }

std::vector<std::unique_ptr<Fabric>> fabric_of(const RankOptions& options) {
  const std::string gpu = gpu_of(options);
  if (options.device == "nodes") return make_node_ranks(options.world_size, {.seed = options.seed});
  if (gpu.empty()) return make_thread_fabric(options.world_size, options.threads);
  std::vector<std::unique_ptr<Fabric>> fabrics =
      is_shared(options) ? make_virtual_fabric(open_device("sim:" + gpu, 1), options.world_size, options.timeout)
                         : make_sim_fabric(gpu, options.world_size);
  for (const auto& fabric : fabrics) set_simulation(fabric->device(), {.seed = options.seed});
  return fabrics;
}

}  // namespace

Target target_of(const RankOptions& options) {
  if (const std::string gpu = gpu_of(options); !gpu.empty()) return gpu_target(gpu);
  return kSanitizer == Sanitizer::none ? host_target() : cpu_target("generic");
}

void schedule_for_gpu(KernelBuilder& b, const autotune::Config& config) {
  b.align_rows(kGpuAlignment);
  for (const char* name : {"num_warps", "num_stages"})
    if (config.values().contains(name)) b.schedule({{name, config.get_int(name)}});
}

KernelBinary compiled_for_ranks(const ir::Function& function, const RankOptions& options) {
  const Target target = target_of(options);
  if (!target.is_gpu() && kSanitizer != Sanitizer::none) return compile(function, target, {}, kSanitizer);
  if (!target.is_gpu()) return compiled(function, target);
  std::unique_ptr<ir::Function> shared;
  if (is_shared(options)) {
    shared = ir::parse(ir::print(function));
    shared->attributes["ranks_in_launch"] = int64_t{options.world_size};
  }
  return compiled(shared ? *shared : function, target);
}

RankOutcome run_ranks(std::span<const ir::Function* const> functions, const RankOptions& options,
                      const std::vector<std::vector<RankCall>>& calls) {
  std::vector<KernelBinary> binaries;
  for (const ir::Function* function : functions) binaries.push_back(compiled_for_ranks(*function, options));
  return run_binaries(std::move(binaries), options, calls);
}

RankOutcome run_binaries(std::vector<KernelBinary> binaries, const RankOptions& options,
                         const std::vector<std::vector<RankCall>>& calls) {
  if (options.edit_ptx)
    for (KernelBinary& binary : binaries) edit(binary, options.edit_ptx);
  if (options.device == "processes") return run_processes(binaries, options, calls);
  const auto fabrics = fabric_of(options);
  std::vector<Rank> ranks;
  for (const auto& fabric : fabrics) ranks.emplace_back(*fabric, options);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) threads.emplace_back([&, i] { ranks[i].run(binaries, calls[i]); });
  for (std::thread& thread : threads) thread.join();
  RankOutcome outcome;
  for (const Rank& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
    outcome.epochs.push_back(rank.epoch);
    outcome.records.push_back(rank.record);
  }
  return outcome;
}

}  // namespace seqtile::testing
