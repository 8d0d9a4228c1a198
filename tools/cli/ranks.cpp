// tools/cli/ranks.cpp -- see ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

#include "kernels/seqpar/fused_handle.h"
#include "tools/cli/model_requests.h"

namespace seqtile::cli {
namespace {

constexpr const char* kFabrics[] = {"threads", "processes", "sim:sm_80", "sim:sm_90a"};

bool is_simulated(const World& world) { return world.fabric.starts_with("sim:"); }

/// Makes a rank's end of the fabric, on the thread of the rank.
class FabricMaker {
 public:
  FabricMaker(const World& world, int threads) : threads_(threads) {
    if (world.fabric == "processes") descriptor_ = make_process_world(world.size);
    else if (is_simulated(world)) made_ = make_sim_fabric(world.fabric.substr(4), world.size);
    else made_ = make_thread_fabric(world.size, threads);
  }
  FabricMaker(const FabricMaker&) = delete;
  FabricMaker& operator=(const FabricMaker&) = delete;
  ~FabricMaker() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  /// The rank will not come.
  void give_up(int rank) {
    if (descriptor_ < 0) made_[static_cast<size_t>(rank)].reset();
  }
  std::unique_ptr<Fabric> make(int rank) {
    if (descriptor_ >= 0) return join_process_fabric(descriptor_, rank, threads_);
    return std::move(made_[static_cast<size_t>(rank)]);
  }

 private:
  int threads_, descriptor_ = -1;
  std::vector<std::unique_ptr<Fabric>> made_;
};

bool is_complaint(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == ErrorCode::aborted;
  } catch (...) {
    return false;
  }
}

EngineOptions engine_options(const Options& options, int threads, MissPolicy policy) {
  return {.threads = threads, .cache = tuning_path(options), .artifacts = artifacts_path(options), .policy = policy};
}

bool communicates(const ServedOperation& operation) { return operation.workload.fields.contains("world_size"); }

std::vector<autotune::Workload> workloads_of_channel(std::span<const ServedOperation> operations) {
  std::vector<autotune::Workload> workloads;
  for (const ServedOperation& operation : operations)
    if (communicates(operation)) workloads.push_back(operation.workload);
  return workloads;
}

}  // namespace

std::optional<World> world_of(const Options& options) {
  if (options.ranks.empty()) {
    if (!options.fabric.empty())
      bad_input(fmt::format("--fabric {}: there is one rank alone; add for example --ranks 2", options.fabric));
    return std::nullopt;
  }
  World world{0, options.fabric.empty() ? "threads" : options.fabric};
  const char* end = options.ranks.data() + options.ranks.size();
  const auto result = std::from_chars(options.ranks.data(), end, world.size);
  if (result.ec != std::errc() || result.ptr != end || world.size < 1 || world.size > channel::kMaxRanks)
    bad_input(fmt::format("--ranks {}: not a number of ranks from 1 to {}; write for example --ranks 2", options.ranks,
                          channel::kMaxRanks));
  if (std::ranges::find(kFabrics, world.fabric) == std::end(kFabrics))
    bad_input(fmt::format("--fabric {}: unknown; use {}", world.fabric, fmt::join(kFabrics, ", ")));
  return world;
}

void apply_ranks(Options& options) {
  const auto world = world_of(options);
  if (!world) return;
  const std::string device = is_simulated(*world) ? world->fabric : "cpu";
  if (options.device != "cpu" && options.device != device)
    bad_input(
        fmt::format("--device {}: ranks of --fabric {} run on {}; leave --device out, or use one of the fabrics {}",
                    options.device, world->fabric, device, fmt::join(kFabrics, ", ")));
  options.device = device;
  if (options.threads.empty() && device == "cpu")
    options.threads = std::to_string(std::max(1, cores_available() / world->size));
}

void on_every_rank(const World& world, int threads, const std::function<void(Fabric&)>& work) {
  FabricMaker maker(world, threads);
  std::mutex mutex;
  std::vector<std::exception_ptr> errors;
  std::vector<std::thread> ranks;
  const auto run = [&](int rank) {
    try {
      const std::unique_ptr<Fabric> fabric = maker.make(rank);
      work(*fabric);
      fabric->all_gather("");  // no rank ends before all have what they need of it
    } catch (...) {
      const std::lock_guard lock(mutex);
      errors.push_back(std::current_exception());
    }
  };
  try {
    while (static_cast<int>(ranks.size()) < world.size) ranks.emplace_back(run, static_cast<int>(ranks.size()));
  } catch (const std::system_error& error) {  // those that run are told that the others have left
    const auto rank = static_cast<int>(ranks.size());
    const std::lock_guard lock(mutex);
    errors.push_back(std::make_exception_ptr(
        Error(ErrorCode::out_of_resources, fmt::format("no thread for rank {}: {}", rank, error.what()))));
    for (int absent = rank; absent < world.size; ++absent) maker.give_up(absent);
  }
  for (std::thread& rank : ranks) rank.join();
  std::stable_partition(errors.begin(), errors.end(), [](const auto& error) { return !is_complaint(error); });
  if (!errors.empty()) std::rethrow_exception(errors.front());
}

void check_aborted(Channel& channel) {
  const auto record = channel.abort_record();
  if (!record) return;
  const bool is_told = record->kind == channel::aborted, is_late = record->kind == channel::timed_out;
  throw Error(is_told ? ErrorCode::aborted : is_late ? ErrorCode::timeout : ErrorCode::internal, record->text());
}

bool is_of_channel(const autotune::ArgSpec& arg) {
  return arg.name == "staging" || arg.name == "flags" || arg.name == "channel";
}

RankModel::RankModel(const Session& session, const Options& options, Fabric& fabric, const Settings& settings) {
  const World world{fabric.world_size(), fabric.kind()};
  const int threads = one_thread_count(options);
  for (const autotune::TuneRequest& request : rank_requests(session.registry, options, world, fabric.rank(), threads))
    operations_.push_back(served_operation(request, fabric.rank(), world.size));
  engine_ = Engine::open(engine_options(options, threads, settings.policy), session.registry, fabric);
  ChannelOptions channel = kernels::seqpar::channel_options(workloads_of_channel(operations_), settings.capacity);
  channel.deadline = settings.deadline;
  channel_ = std::make_unique<Channel>(fabric, channel);
  for (ServedOperation& operation : operations_) {
    if (communicates(operation)) {
      operation.number = channel_->add_operation();
      operation.handle = kernels::seqpar::prepare_on_all(*engine_, operation.workload, *channel_, operation.number);
    } else {
      operation.handle = engine_->prepare(operation.workload);
    }
  }
}

RankProof rehearse(const Session& session, const Options& given, const World& world, int threads, int64_t num_lengths) {
  Options options = given;
  options.threads = std::to_string(threads);
  RankProof proof;
  std::mutex mutex;
  on_every_rank(world, threads, [&](Fabric& fabric) {
    RankModel model(session, options, fabric, {});
    const auto requests = rank_requests(session.registry, options, world, fabric.rank(), threads);
    std::mt19937_64 random(1);
    int64_t misses = 0;
    for (int64_t i = 0; i < num_lengths; ++i)
      for (size_t op = 0; op < requests.size(); ++op) {
        const auto count = static_cast<uint64_t>(requests[op].hi - requests[op].lo + 1);
        misses += !model.operations()[op].handle.lookup(requests[op].lo + static_cast<int64_t>(random() % count));
      }
    const EngineCounters counters = model.engine().counters();
    const std::lock_guard lock(mutex);
    proof.lookups += num_lengths * static_cast<int64_t>(requests.size());
    proof.misses += misses;
    proof.counters.tunings += counters.tunings;
    proof.counters.compiles += counters.compiles;
    proof.counters.compiles_at_load += counters.compiles_at_load;
  });
  return proof;
}

}  // namespace seqtile::cli
