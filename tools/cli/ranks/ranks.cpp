// tools/cli/ranks/ranks.cpp -- see ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/ranks/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

#include "jit/base/nearest_word.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/fabric.h"
#include "seqtile/op.h"
#include "seqtile/seqpar.h"
#include "tools/cli/model_requests.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr const char* kFabrics[] = {"threads",       "processes",      "sim:sm_80",  "sim:sm_90a",
                                    "virtual:sm_80", "virtual:sm_90a", "cuda:sm_80", "cuda:sm_90a"};

bool is_simulated(const World& world) { return world.fabric.starts_with("sim:"); }
bool is_cuda(const World& world) { return world.fabric.starts_with("cuda:"); }

/// The device on which a rank's kernels are tuned and measured.
std::string device_of(const World& world) {
  if (!world.device.empty()) return world.device;
  if (is_shared(world)) return "sim:" + world.fabric.substr(world.fabric.find(':') + 1);
  return is_simulated(world) ? world.fabric : is_cuda(world) ? "cuda" : "cpu";
}

/// A rank may still compare its results while its peers come to their next launch.
constexpr auto kTimeout = std::chrono::seconds(60);

/// Makes a rank's fabric, called on the thread of the rank.
class FabricMaker {
 public:
  FabricMaker(const World& world, int threads) : threads_(threads), has_gpus_(is_cuda(world)) {
    if (world.fabric == "processes") descriptor_ = make_process_world(world.size);
    else if (is_simulated(world)) made_ = make_sim_fabric(world.fabric.substr(4), world.size);
    else if (is_shared(world)) made_ = make_virtual_fabric(open_device(device_of(world), 1), world.size, kTimeout);
    else made_ = make_thread_fabric(world.size, threads);
  }
  FabricMaker(const FabricMaker&) = delete;
  FabricMaker& operator=(const FabricMaker&) = delete;
  ~FabricMaker() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  /// Tells the peers that `rank` will not come.
  void give_up(int rank) {
    if (descriptor_ < 0) made_[static_cast<size_t>(rank)].reset();
  }
  std::unique_ptr<Fabric> make(int rank) {
    if (descriptor_ >= 0) return join_process_fabric(descriptor_, rank, threads_);
    std::unique_ptr<Fabric> fabric = std::move(made_[static_cast<size_t>(rank)]);
    return has_gpus_ ? make_cuda_fabric(std::move(fabric), rank) : std::move(fabric);
  }

 private:
  int threads_, descriptor_ = -1;
  bool has_gpus_;
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

}  // namespace

bool is_shared(const World& world) { return world.fabric.starts_with("virtual:"); }

std::optional<World> world_of(const Options& options) {
  if (options.ranks.empty()) {
    if (!options.fabric.empty())
      bad_input(fmt::format("--fabric {}: there is one rank alone; add for example --ranks 2", options.fabric));
    return std::nullopt;
  }
  World world{0, options.fabric.empty() ? "threads" : options.fabric, options.process};
  const char* end = options.ranks.data() + options.ranks.size();
  const auto result = std::from_chars(options.ranks.data(), end, world.size);
  if (result.ec != std::errc() || result.ptr != end || world.size < 1 || world.size > channel::kMaxRanks)
    bad_input(fmt::format("--ranks {}: not a number of ranks from 1 to {}; write for example --ranks 2", options.ranks,
                          channel::kMaxRanks));
  if (world.fabric == "mpi")
    bad_input(
        "--fabric mpi: replay, prove and timeline run on the ranks of mpirun; their records are made with --fabric "
        "processes");
  if (std::ranges::find(kFabrics, world.fabric) == std::end(kFabrics))
    bad_input(fmt::format("--fabric {}: unknown; use {}; for replay, prove and timeline also mpi{}", world.fabric,
                          fmt::join(kFabrics, ", "), did_you_mean(world.fabric, kFabrics)));
  if (is_shared(world) && options.device.starts_with("cuda")) world.device = options.device;
  return world;
}

void apply_ranks(Options& options) {
  const auto world = world_of(options);
  if (!world) return;
  const std::string device = device_of(*world);
  if (options.device != "cpu" && options.device != device)
    bad_input(
        fmt::format("--device {}: ranks of --fabric {} run on {}; leave --device out, {}or use one of the fabrics {}",
                    options.device, world->fabric, device, is_shared(*world) ? "give --device cuda, " : "",
                    fmt::join(kFabrics, ", ")));
  options.device = device;
  if (options.threads.empty() && device == "cpu")
    options.threads = std::to_string(std::max(1, cores_available() / world->size));
}

void refuse_rank_fields(const Options& options) {
  for (const std::string& field : options.set)
    for (const char* name : {"world_size=", "fabric="})
      if (field.starts_with(name))
        bad_input(
            fmt::format("--set {}: --ranks and --fabric give the field already; leave one of the two out", field));
}

void set_rank_fields(const Session& session, Options& options) {
  const auto world = world_of(options);
  if (!world) return;
  apply_ranks(options);
  name_rank_fields(session, options);
}

void name_rank_fields(const Session& session, Options& options) {
  const auto world = world_of(options);
  if (!world) return;
  refuse_rank_fields(options);
  if (!session.registry.find(options.operation).on_rank)
    bad_input(
        fmt::format("--ranks {}: {} runs on one rank; leave --ranks out, or name an operation that communicates, "
                    "for example fused_allgather_and_linear",
                    world->size, options.operation));
  options.set.push_back(fmt::format("world_size={}", world->size));
  options.set.push_back("fabric=" + world->fabric);
  options.ranks.clear(), options.fabric.clear();  // `--set` has both from here on, in next steps too
}

void enter_processes(Options& options) {
  const bool is_mpi = options.fabric == "mpi";
  if (!options.as_rank.empty()) options.process = RankProcess::join(options.as_rank);
  else if (is_mpi) options.process = RankProcess::of_mpi();
  else if (options.fabric == "processes") options.process = RankProcess::start(world_of(options)->size);
  if (!is_mpi) return;
  const int started = options.process->world_size();
  if (options.ranks.empty() && started == 1)
    bad_input("--fabric mpi: one rank alone was started; write mpirun -n 2 seqtile ..., or add --ranks 1");
  options.fabric = "processes";
  if (options.ranks.empty()) options.ranks = std::to_string(started);
  if (world_of(options)->size != started)
    bad_input(fmt::format("--ranks {}: mpirun has started {}; leave --ranks out, or write mpirun -n {}", options.ranks,
                          started, options.ranks));
}

int run_on_processes(const Options& options, const std::function<int()>& command) {
  return options.process ? options.process->run(command) : command();
}

void on_every_rank(const World& world, int threads, const std::function<void(Fabric&)>& work) {
  if (world.process) {
    const std::unique_ptr<Fabric> fabric = world.process->make_fabric(threads);
    work(*fabric);
    fabric->all_gather("");  // no rank ends while another needs its memory
    return;
  }
  FabricMaker maker(world, threads);
  std::mutex mutex;
  std::vector<std::exception_ptr> errors;
  std::vector<std::thread> ranks;
  const auto run = [&](int rank) {
    try {
      const std::unique_ptr<Fabric> fabric = maker.make(rank);
      work(*fabric);
      fabric->all_gather("");  // no rank ends while another needs its memory
    } catch (...) {
      const std::lock_guard lock(mutex);
      errors.push_back(std::current_exception());
    }
  };
  try {
    while (static_cast<int>(ranks.size()) < world.size) ranks.emplace_back(run, static_cast<int>(ranks.size()));
  } catch (const std::system_error& error) {  // the running ranks learn that the other ranks will not come
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

bool speaks_for_process(const World& world, const Fabric& fabric) { return world.process || fabric.rank() == 0; }

int64_t sum_over_ranks(Fabric& fabric, int64_t mine) {
  int64_t sum = 0;
  for (const std::string& text : fabric.all_gather(std::to_string(mine))) sum += std::stoll(text);
  return sum;
}

EngineCounters sum_over_ranks(Fabric& fabric, const EngineCounters& mine) {
  EngineCounters sum;
  sum.tunings = sum_over_ranks(fabric, mine.tunings);
  sum.compiles = sum_over_ranks(fabric, mine.compiles);
  sum.compiles_at_load = sum_over_ranks(fabric, mine.compiles_at_load);
  return sum;
}

bool is_of_channel(const autotune::ArgSpec& arg) {
  return arg.name == "staging" || arg.name == "flags" || arg.name == "channel";
}

RankModel::RankModel(const Session& session, const Options& options, Fabric& fabric, const Settings& settings) {
  const World world{fabric.world_size(), fabric.kind(), nullptr};
  const int threads = one_thread_count(options);
  for (const autotune::TuneRequest& request : rank_requests(session.registry, options, world, fabric.rank(), threads))
    operations_.push_back(served_operation(request, fabric.rank(), world.size));
  engine_ = Engine::open(engine_options(options, threads, settings.policy), session.registry, fabric);
  channel_ =
      std::make_unique<Channel>(fabric, ChannelOptions{.capacity = settings.capacity, .timeout = settings.timeout});
  std::optional<Steps> steps;
  if (fabric.rank() == 0 && !settings.title.empty()) steps.emplace(settings.title, std::ssize(operations_));
  for (ServedOperation& operation : operations_) {
    if (steps) steps->begin("preparing " + operation.label);
    if (communicates(operation)) {
      operation.op_id = channel_->add_operation(operation.workload.operation + " of " + operation.label);
      const auto shares = session.registry.find(operation.workload.operation).shares;
      operation.handle =
          kernels::seqpar::prepare_on_all(*engine_, operation.workload, shares, *channel_, operation.op_id);
    } else {
      operation.handle = engine_->prepare(operation.workload);
    }
  }
}

RankProof rehearse(const std::string& title, const Session& session, const Options& given, const World& world,
                   int threads, int64_t num_lengths) {
  Options options = given;
  options.threads = std::to_string(threads);
  RankProof proof;
  on_every_rank(world, threads, [&](Fabric& fabric) {
    RankModel model(session, options, fabric, {.title = title});
    const auto requests = rank_requests(session.registry, options, world, fabric.rank(), threads);
    std::mt19937_64 random(1);
    int64_t lookups = 0, misses = 0;
    const auto look_up = [&](size_t op, int64_t length) {
      ++lookups;
      misses += !model.operations()[op].handle.lookup(length);
    };
    for (size_t op = 0; op < requests.size() && num_lengths > 0; ++op) {
      const int64_t lo = requests[op].lo, hi = requests[op].hi;
      for (const autotune::Bucket& bucket : autotune::buckets(lo, hi))
        for (const int64_t end : {std::max(bucket.lo, lo), std::min(bucket.hi, hi)}) look_up(op, end);
      for (int64_t i = 0; i < num_lengths; ++i)
        look_up(op, lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1)));
    }
    const EngineCounters counters = model.engine().counters();
    RankProof sum;
    sum.lookups = sum_over_ranks(fabric, lookups);
    sum.misses = sum_over_ranks(fabric, misses);
    sum.counters = sum_over_ranks(fabric, counters);
    if (speaks_for_process(world, fabric)) proof = sum;
  });
  return proof;
}

}  // namespace seqtile::cli
