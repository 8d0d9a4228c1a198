// autotune/worker/serve.cpp -- see serve.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/serve.h"

#include <sys/resource.h>

#include <fstream>
#include <new>

#include "autotune/gpu_model.h"
#include "autotune/worker/count.h"
#include "autotune/worker/rank_race.h"
#include "jit/base/env.h"
#include "jit/device/gpu_launch.h"
#include "seqtile/compiler.h"
#include "seqtile/device.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitMemory = false;  // sanitizers reserve terabytes of address space
#else
constexpr bool kLimitMemory = true;
#endif
constexpr rlim_t kCompileHeadroom = rlim_t{1} << 30, kRunHeadroom = rlim_t{6} << 30;
/// Sets of operands of the longest call that a worker holds at once: one that is checked, two that are measured in
/// turn, and one that is copied to a device.
constexpr double kOperandCopies = 4;

const char* outcome_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::out_of_resources: return "oom";
    case ErrorCode::compile_failed: return "compile_error";
    case ErrorCode::driver: return "crash";
    case ErrorCode::timeout: return "hang";
    default: return "error";
  }
}

Workload read_workload(const nlohmann::json& request) {
  return {request.at("operation"), *parse_dtype(request.at("dtype").get<std::string>()), request.at("threads"),
          Fields::parse(request.at("fields").get<std::string>())};
}

nlohmann::json describe(const std::vector<Series>& series) {
  nlohmann::json list = nlohmann::json::array();
  for (const Series& one : series)
    list.push_back(
        {{"outcome", one.verdict.outcome}, {"detail", one.verdict.detail}, {"us", one.us}, {"sliced", one.sliced}});
  return {{"outcome", "ok"}, {"series", list}};
}

/// Bytes of address space in use.
rlim_t address_space() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

}  // namespace

uint64_t WorkerServer::run_headroom(const Current& state) {
  const double bytes = kOperandCopies * call_bytes(*state.op, state.workload, state.max_length);
  return bytes < 1e18 ? kRunHeadroom + static_cast<uint64_t>(bytes) : RLIM_INFINITY;
}

/// Limits the address space to `headroom` bytes more than now, so that neither a candidate nor the compiler exhausts
/// the machine's memory.
void WorkerServer::limit_memory(uint64_t headroom) {
  if (!kLimitMemory) return;
  const rlimit limit{headroom == RLIM_INFINITY ? RLIM_INFINITY : address_space() + headroom, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
}

Device& WorkerServer::device() {
  auto& device = devices_[{state_->device_name, state_->workload.threads}];
  if (!device) device = open_device(state_->device_name, state_->workload.threads);
  if (!regions_) regions_ = std::make_unique<OperandRegions>(*device, state_->policy.starts_with("cold"));
  return *device;
}

void WorkerServer::serve() {
  Message request;
  while (channel_.receive(request, -1) == Channel::Status::ok) {
    std::vector<std::byte> payload;
    Json reply;
    bool is_lost = false;  // true if a launch has broken the device's context or hangs in it
    try {
      reply = answer(request, payload);
    } catch (const Error& error) {
      reply = {{"outcome", outcome_of(error.code())}, {"detail", error.what()}};
      const bool is_gpu = state_ && state_->device_name.starts_with("cuda");
      is_lost = error.code() == ErrorCode::driver || (is_gpu && error.code() == ErrorCode::timeout);
      if (is_lost) reply["lost"] = true;
    } catch (const std::bad_alloc&) {
      reply = {{"outcome", "oom"}, {"detail", "out of memory"}};
    } catch (const std::exception& error) {
      reply = {{"outcome", "error"}, {"detail", error.what()}};
    }
    if (!payload.empty()) reply["bytes"] = payload.size();
    if (!channel_.send(reply.dump(-1, ' ', false, Json::error_handler_t::replace), payload) || is_lost) return;
  }
}

nlohmann::json WorkerServer::answer(const Message& message, std::vector<std::byte>& payload) {
  const Json request = Json::parse(message.line);
  const std::string what = request.at("do");
  if (what == "problem") return set_problem(request);
  if (!state_) throw Error(ErrorCode::internal, "worker: " + what + " before problem");
  if (what == "compile") return compile_one(request, payload);
  if (what == "count") return count(request);
  if (what == "load") return load(request, message.payload);
  if (what == "check") return check(request);
  if (what == "measure") return measure(request);
  throw Error(ErrorCode::internal, "worker: unknown command " + what);
}

nlohmann::json WorkerServer::set_problem(const Json& request) {
  const OpDef& op = registry_.find(request.at("operation").get<std::string>());
  Workload workload = read_workload(request);
  const std::string device_name = request.at("device");
  env::set_ptxas_program(request.at("ptxas"));  // the tuner has tested it, so that no worker meets one that hangs
  state_.reset();
  state_ = std::make_unique<Current>(Current{&op,
                                             std::move(workload),
                                             request.at("max_length"),
                                             device_name,
                                             request.at("policy"),
                                             device_target(device_name),
                                             {},
                                             {},
                                             {}});
  limit_memory(kCompileHeadroom);
  return {{"outcome", "ok"}};
}

nlohmann::json WorkerServer::compile_one(const Json& request, std::vector<std::byte>& payload) {
  const Config config = Fields::parse(request.at("config").get<std::string>());
  const Target& target = state_->target;
  const auto function = build_kernel(*state_->op, state_->workload, config, target);
  KernelBinary binary = compile(*function, target);
  payload = std::move(binary.code);
  return {{"outcome", "ok"},
          {"symbol", binary.symbol},
          {"target", binary.target},
          {"stage", binary.stage},
          {"gpu", to_text(binary.gpu)},
          {"entry", binary.entry_offset},
          {"arena", binary.arena_bytes},
          {"slots", binary.num_slots}};
}

nlohmann::json WorkerServer::count(const Json& request) {
  const Config config = Fields::parse(request.at("config").get<std::string>());
  const ProgramCounts counts =
      count_program(*state_->op, read_workload(request), config, request.at("length"), state_->target);
  return {{"outcome", "ok"},
          {"warp_instructions", counts.warp_instructions},
          {"global_sectors", counts.global_sectors},
          {"shared_wavefronts", counts.shared_wavefronts}};
}

nlohmann::json WorkerServer::load(const Json& request, std::vector<std::byte> code) {
  // The CUDA driver reserves addresses for the memory of all GPUs, which no limit may prevent.
  const bool is_of_driver = state_->device_name.starts_with("cuda");
  if (state_->candidates.empty()) limit_memory(is_of_driver ? RLIM_INFINITY : run_headroom(*state_));
  KernelBinary binary{
      request.at("symbol"), request.at("target"),
      request.at("stage"),  std::move(code),
      request.at("entry"),  request.at("arena"),
      request.at("slots"),  parse_gpu_launch(request.at("gpu").get<std::string>()).value_or(GpuLaunch{})};
  const Config config = Fields::parse(request.at("config").get<std::string>());
  const OpDef& op = *state_->op;
  LoadedCandidate candidate{config, device().load(std::move(binary)), op.grid(state_->workload, config),
                            op.workspaces ? op.workspaces(state_->workload, config) : std::vector<Workspace>{},
                            op.has_uneven_programs};
  state_->candidates.insert_or_assign(request.at("id").get<int64_t>(), std::move(candidate));
  return {{"outcome", "ok"}};
}

nlohmann::json WorkerServer::check(const Json& request) {
  if (!state_->checker)
    state_->checker = std::make_unique<Checker>(*state_->op, state_->workload, device(), state_->max_length,
                                                references_[state_->op->name + state_->workload.json()]);
  std::vector<Probe> probes;
  for (const Json& probe : request.at("probes")) probes.push_back({probe.at(0), probe.at(1)});
  const auto verdict = state_->checker->check(state_->candidates.at(request.at("id")), probes, request.at("repeat"),
                                              request.at("max_work"));
  return {{"outcome", verdict.outcome}, {"detail", verdict.detail}, {"max_rel_err", verdict.max_rel_err}};
}

nlohmann::json WorkerServer::measure(const Json& request) {
  std::vector<const LoadedCandidate*> candidates;
  for (const int64_t id : request.at("ids")) candidates.push_back(&state_->candidates.at(id));
  const MeasurePlan plan{request.at("length"),  request.at("min_rounds"),  request.at("max_rounds"),
                         request.at("limit_s"), request.at("stop_losers"), request.at("on_all_ranks")};
  if (plan.on_all_ranks) return race(candidates, plan, request.at("timeout_s"));
  if (!state_->meter)
    state_->meter =
        std::make_unique<Meter>(*state_->op, state_->workload, device(), *regions_, state_->policy.ends_with("-graph"));
  return describe(state_->meter->measure(candidates, plan, current_));
}

/// A failed race is reported as a lost worker: a candidate that makes ranks time out, or ends one, is treated as a
/// candidate that ends the worker.
nlohmann::json WorkerServer::race(const std::vector<const LoadedCandidate*>& candidates, const MeasurePlan& plan,
                                  double timeout_s) {
  const bool is_cold = state_->policy.starts_with("cold");
  try {
    return describe(race_ranks({*state_->op, state_->workload, candidates, plan, is_cold, timeout_s}, current_));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_resources) throw;
    return {
        {"outcome", error.code() == ErrorCode::timeout ? "hang" : "crash"}, {"detail", error.what()}, {"lost", true}};
  }
}

}  // namespace seqtile::autotune
