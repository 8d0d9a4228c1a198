// autotune/worker/process_runner.cpp -- see process_runner.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/process_runner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "autotune/keys.h"
#include "jit/base/assert.h"
#include "jit/device/gpu_launch.h"
#include "seqtile/compiler.h"
#include "seqtile/device.h"
#include "seqtile/error.h"
#include "seqtile/tuner.h"

namespace seqtile::autotune {
namespace {

using Json = nlohmann::json;

constexpr double kCheckWork = 2e8;     // most flops of a launch of check(), which shortens its lengths to that
constexpr double kBucketWork = 1.5e9;  // flops above which a launch of check_bucket() runs on a slice of the grid
constexpr double kCheapFlops = 5e7;    // flops up to which a bucket is checked on three input sets, else on one
constexpr int64_t kCheckLengths[] = {197, 65, 7};

std::string text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json describe(const KernelBinary& binary) {
  return {{"symbol", binary.symbol},      {"target", binary.target},     {"stage", binary.stage},
          {"entry", binary.entry_offset}, {"arena", binary.arena_bytes}, {"slots", binary.num_slots},
          {"gpu", to_text(binary.gpu)},   {"bytes", binary.code.size()}};
}

Json describe(const Workload& workload) {
  return {{"operation", workload.operation},
          {"dtype", std::string(dtype_name(workload.dtype))},
          {"threads", workload.threads},
          {"fields", workload.fields.json()}};
}

/// JSON has no infinity, so that an infinite error comes as null.
Verdict verdict_of(const Json& reply) {
  const Json error = reply.value("max_rel_err", Json(0.0));
  return {reply.at("outcome"), reply.value("detail", ""), error.is_null() ? HUGE_VAL : error.get<double>()};
}

int num_compilers() { return std::min(cores_available(), 32); }

}  // namespace

ProcessRunner::ProcessRunner(std::string device, const Target& target, std::string policy, ArtifactStore& artifacts,
                             RunnerLimits limits)
    : device_(std::move(device)),
      target_(target),
      policy_(std::move(policy)),
      artifacts_(artifacts),
      limits_(limits),
      program_(worker_program()),
      compilers_(static_cast<size_t>(num_compilers())),
      compiler_needs_problem_(compilers_.size(), true) {}

ProcessRunner::~ProcessRunner() = default;

double ProcessRunner::now_s() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

void ProcessRunner::begin(const OpDef& op, const Workload& workload, int64_t max_length) {
  if (op_ == &op && workload_ == workload && max_length <= max_length_) return;
  op_ = &op;
  workload_ = workload;
  max_length_ = max_length;
  current_ = &entries_[op.name + workload.json()];
  usable_.emplace(op, workload, target_);
  loaded_.clear();
  longest_check_s_ = 0;
  checked_length_ = 0;
  measurer_needs_problem_ = true;
  compiler_needs_problem_.assign(compilers_.size(), true);
}

ProcessRunner::Entry& ProcessRunner::entry(const Config& config) {
  const auto [it, added] = current_->try_emplace(config.json());
  if (added) {
    it->second.id = next_id_++;
    it->second.config = config;
  }
  return it->second;
}

Verdict ProcessRunner::failure(WorkerProcess::Status status, const WorkerProcess& worker, bool compiling) const {
  if (status == WorkerProcess::Status::hung) return {compiling ? "compile_timeout" : "hang", worker.cause()};
  return {"crash", (compiling ? "the compiler ended by " : "ended by ") + worker.cause()};
}

namespace {

/// The worker's reply. A worker that has lost its device is stopped, and the next request starts another one.
Json answer_of(WorkerProcess& worker, const Message& reply) {
  Json answer = Json::parse(reply.line);
  if (answer.value("lost", false)) worker.stop();
  return answer;
}

}  // namespace

Verdict ProcessRunner::give_problem(WorkerProcess& worker) const {
  Json request = describe(workload_);
  request.update({{"do", "problem"},
                  {"max_length", max_length_},
                  {"device", device_},
                  {"policy", policy_},
                  {"ptxas", target_.ptxas.empty() ? "none" : target_.ptxas}});
  Message reply;
  const auto status = worker.ask(text(request), {}, reply, limits_.verify_s);
  if (status != WorkerProcess::Status::ok) return failure(status, worker, false);
  return verdict_of(answer_of(worker, reply));
}

Verdict ProcessRunner::ready_compiler(size_t compiler) {
  Slot& slot = compilers_[compiler];
  char& needs_problem = compiler_needs_problem_[compiler];
  if (!slot || !slot->is_alive()) {
    slot = std::make_unique<WorkerProcess>(program_);
    needs_problem = 1;
  }
  if (!needs_problem) return {};
  Verdict verdict = give_problem(*slot);
  if (verdict.ok()) needs_problem = 0;
  return verdict;
}

void ProcessRunner::compile_entry(size_t compiler, Entry& entry) {
  if (entry.verdict = ready_compiler(compiler); !entry.verdict.ok()) return;
  WorkerProcess& worker = *compilers_[compiler];
  Message reply;
  const auto status =
      worker.ask(text({{"do", "compile"}, {"config", entry.config.json()}}), {}, reply, limits_.compile_s);
  if (status != WorkerProcess::Status::ok) {
    entry.verdict = failure(status, worker, true);
    return;
  }
  const Json json = answer_of(worker, reply);
  entry.verdict = verdict_of(json);
  if (entry.verdict.outcome == "error") entry.verdict.outcome = "compile_error";
  if (!entry.verdict.ok()) return;
  entry.binary = {json.at("symbol"), json.at("target"),
                  json.at("stage"),  std::move(reply.payload),
                  json.at("entry"),  json.at("arena"),
                  json.at("slots"),  parse_gpu_launch(json.at("gpu").get<std::string>()).value_or(GpuLaunch{})};
}

Counted ProcessRunner::count_one(size_t compiler, const CountTask& task) {
  if (const Verdict verdict = ready_compiler(compiler); !verdict.ok()) return {verdict, {}};
  WorkerProcess& worker = *compilers_[compiler];
  Json request = describe(task.workload);
  request["do"] = "count";
  request["config"] = task.config.json();
  request["length"] = task.length;
  Message reply;
  const auto status = worker.ask(text(request), {}, reply, limits_.count_s);
  if (status != WorkerProcess::Status::ok) return {failure(status, worker, false), {}};
  const Json json = answer_of(worker, reply);
  if (json.at("outcome") != "ok") return {verdict_of(json), {}};
  return {{}, {json.at("warp_instructions"), json.at("global_sectors"), json.at("shared_wavefronts")}};
}

void ProcessRunner::share_among_compilers(size_t count, const std::function<void(size_t, size_t)>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> errors(compilers_.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < std::min(compilers_.size(), count); ++t)
    threads.emplace_back([&, t] {
      try {
        for (size_t i; (i = next++) < count;) work(t, i);
      } catch (...) {
        errors[t] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<Counted> ProcessRunner::count(std::span<const CountTask> tasks) {
  std::vector<Counted> counted(tasks.size());
  share_among_compilers(tasks.size(), [&](size_t compiler, size_t i) { counted[i] = count_one(compiler, tasks[i]); });
  return counted;
}

std::vector<Verdict> ProcessRunner::compile(std::span<const Config> candidates) {
  std::vector<Entry*> wanted;
  for (const Config& config : candidates) {
    Entry& e = entry(config);
    if (!e.compiled && std::find(wanted.begin(), wanted.end(), &e) == wanted.end()) wanted.push_back(&e);
  }
  std::vector<ArtifactKey> keys;
  for (const Entry* e : wanted) keys.push_back(make_artifact_key(*op_, workload_, e->config, target_));
  auto stored = artifacts_.load_all(keys);
  std::vector<Entry*> missing;
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i]->compiled = true;
    if (!stored[i] || !usable_->misfit(wanted[i]->config, *stored[i]).empty()) {
      missing.push_back(wanted[i]);
      continue;
    }
    wanted[i]->binary = std::move(*stored[i]);
    wanted[i]->stored = true;
  }

  share_among_compilers(missing.size(), [&](size_t compiler, size_t i) { compile_entry(compiler, *missing[i]); });

  std::vector<Verdict> verdicts;
  for (const Config& config : candidates) verdicts.push_back(entry(config).verdict);
  return verdicts;
}

WorkerProcess& ProcessRunner::measurer() {
  if (!measurer_ || !measurer_->is_alive()) {
    measurer_ = std::make_unique<WorkerProcess>(program_);
    measurer_needs_problem_ = true;
  }
  if (measurer_needs_problem_) {
    loaded_.clear();
    if (const Verdict verdict = give_problem(*measurer_); !verdict.ok())
      throw Error(ErrorCode::out_of_resources, "the tuning worker cannot set up " + workload_.operation + ": " +
                                                   verdict.outcome + ", " + verdict.detail);
    measurer_needs_problem_ = false;
  }
  return *measurer_;
}

Verdict ProcessRunner::ensure_loaded(Entry& entry) {
  SEQTILE_ASSERT(entry.compiled);
  if (!entry.verdict.ok()) return entry.verdict;
  WorkerProcess& worker = measurer();
  if (loaded_.contains(entry.id)) return {};
  Json request = describe(entry.binary);
  request["do"] = "load";
  request["id"] = entry.id;
  request["config"] = entry.config.json();
  Message reply;
  const auto status = worker.ask(text(request), entry.binary.code, reply, limits_.verify_s);
  if (status != WorkerProcess::Status::ok) return failure(status, worker, false);
  Verdict verdict = verdict_of(answer_of(worker, reply));
  if (verdict.outcome == "error") verdict.outcome = "compile_error";
  if (verdict.ok()) loaded_.insert(entry.id);
  return verdict;
}

Verdict ProcessRunner::run_check(Entry& entry, const std::string& probes, bool repeat, double max_work) {
  if (Verdict verdict = ensure_loaded(entry); !verdict.ok()) return verdict;
  WorkerProcess& worker = measurer();
  const Json request{
      {"do", "check"}, {"id", entry.id}, {"probes", Json::parse(probes)}, {"repeat", repeat}, {"max_work", max_work}};
  // Times of short calls give no limit for longer calls, which fill and read more memory.
  int64_t longest = 0;
  for (const Json& probe : request["probes"]) longest = std::max(longest, probe[0].get<int64_t>());
  const bool is_known = longest <= checked_length_;
  const double limit = is_known ? std::min(limits_.verify_s, std::max(2.0, 20 * longest_check_s_))
                                : limits_.verify_s + fill_seconds(longest);
  const double start = now_s();
  Message reply;
  const auto status = worker.ask(text(request), {}, reply, limit);
  if (status != WorkerProcess::Status::ok) return failure(status, worker, false);
  Verdict verdict = verdict_of(answer_of(worker, reply));
  if (verdict.outcome == "oob_write") worker.stop();  // the candidate may have damaged other memory of the worker
  if (verdict.ok()) {
    longest_check_s_ = std::max(longest_check_s_, now_s() - start);
    checked_length_ = std::max(checked_length_, longest);
  }
  if (verdict.outcome == "error")  // a function of the operation failed, not the candidate
    throw Error(ErrorCode::invalid_argument, "operation " + workload_.operation + ": " + verdict.detail);
  return verdict;
}

double ProcessRunner::flops(int64_t length) const {
  return op_->cost(workload_, call_symbols(*op_, workload_, op_->schema(workload_), length)).flops;
}

/// Seconds that a busy machine may take to fill the tensors of a call and to read them for the reference.
double ProcessRunner::fill_seconds(int64_t length) const {
  constexpr double kBytesPerSecond = 1e8;
  return call_bytes(*op_, workload_, length) / kBytesPerSecond;
}

Verdict ProcessRunner::check(const Config& candidate) {
  Entry& e = entry(candidate);
  if (e.checked || !e.verdict.ok()) return e.verdict;
  Json probes = Json::array();
  int set = 0;
  for (int64_t length : kCheckLengths) {
    length = std::min(length, max_length_);
    while (length > 8 && flops(length) > kCheckWork) length /= 2;
    probes.push_back({length, set++});
  }
  e.verdict = run_check(e, text(probes), true, kCheckWork);
  e.checked = true;
  return e.verdict;
}

Verdict ProcessRunner::check_bucket(const Config& candidate, const Bucket& bucket) {
  Json probes = Json::array();
  probes.push_back({bucket.hi, 0});
  if (flops(bucket.hi) <= kCheapFlops) {
    const int64_t middle = bucket.lo + (bucket.hi - bucket.lo) / 2;
    probes.push_back({middle, 1});
    probes.push_back({bucket.lo, 2});
  }
  return run_check(entry(candidate), text(probes), false, kBucketWork);
}

std::vector<Series> ProcessRunner::measure(std::span<const Config> candidates, const MeasurePlan& plan) {
  std::vector<Series> result(candidates.size());
  // A candidate that ends the worker is left out, and the others are measured again.
  while (true) {
    std::vector<int64_t> ids;
    std::vector<size_t> positions;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!result[i].verdict.ok()) continue;
      Entry& e = entry(candidates[i]);
      if (result[i].verdict = ensure_loaded(e); !result[i].verdict.ok()) continue;
      ids.push_back(e.id);
      positions.push_back(i);
    }
    if (ids.empty() || !result[0].verdict.ok()) return result;
    WorkerProcess& worker = measurer();
    if (loaded_.empty()) continue;  // the worker was restarted while candidates were being loaded
    const Json request{{"do", "measure"},
                       {"ids", ids},
                       {"length", plan.length},
                       {"min_rounds", plan.min_rounds},
                       {"max_rounds", plan.max_rounds},
                       {"limit_s", plan.limit_s},
                       {"stop_losers", plan.stop_losers},
                       {"on_all_ranks", plan.on_all_ranks},
                       {"timeout_s", limits_.measure_s / 4 + plan.limit_s}};
    Message reply;
    const double limit_s = limits_.measure_s + (plan.on_all_ranks ? 2 : 1) * plan.limit_s;
    const auto status = worker.ask(text(request), {}, reply, limit_s);
    const auto culprit = [&] {
      const int64_t at = std::clamp<int64_t>(worker.current(), 0, static_cast<int64_t>(ids.size()) - 1);
      return positions[static_cast<size_t>(at)];
    };
    if (status != WorkerProcess::Status::ok) {
      result[culprit()].verdict = failure(status, worker, false);
      continue;
    }
    const Json json = answer_of(worker, reply);
    if (!worker.is_alive()) {
      result[culprit()].verdict = verdict_of(json);
      continue;
    }
    if (json.at("outcome") == "oom" &&
        (target_.is_gpu() || plan.on_all_ranks)) {  // operands and workspaces do not fit now, but may later
      for (const size_t position : positions) result[position] = {verdict_of(json), {}};
      return result;
    }
    if (json.at("outcome") != "ok")
      throw Error(ErrorCode::out_of_resources, "measuring " + workload_.operation + ": " + json.value("detail", ""));
    for (size_t i = 0; i < positions.size(); ++i) {
      const Json& one = json.at("series").at(i);
      result[positions[i]] = {verdict_of(one), one.at("us").get<std::vector<double>>(), one.at("sliced")};
    }
    return result;
  }
}

bool ProcessRunner::keep(const Config& candidate) {
  Entry& e = entry(candidate);
  if (e.stored || !e.compiled || e.binary.code.empty()) return true;
  e.stored = artifacts_.store(make_artifact_key(*op_, workload_, candidate, target_), e.binary);
  return e.stored;
}

}  // namespace seqtile::autotune
