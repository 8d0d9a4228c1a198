// autotune/worker/serve.h -- the commands of a worker process.
// SPDX-License-Identifier: Apache-2.0
//
// Commands (field "do"): problem, compile, count, load, check, measure. The reply to each is one object whose field
// "outcome" is "ok" or the kind of failure. The tuner, at the other end of the channel, makes all decisions.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "autotune/call/verify.h"
#include "autotune/worker/channel.h"
#include "autotune/worker/measure.h"

namespace seqtile::autotune {

class WorkerServer {
 public:
  /// `current` is shared with the tuner; Meter::measure sets it.
  WorkerServer(const Registry& registry, Channel& channel, volatile int64_t* current)
      : registry_(registry), channel_(channel), current_(current) {}
  /// Serves until the other end closes, or until a launch has made the device unusable.
  void serve();

 private:
  using Json = nlohmann::json;

  /// The state of one workload.
  struct Current {
    const OpDef* op;
    Workload workload;
    int64_t max_length;
    std::string device_name, policy;
    Target target;
    std::unique_ptr<Checker> checker;
    std::unique_ptr<Meter> meter;
    std::map<int64_t, LoadedCandidate> candidates;
  };

  Json answer(const Message& request, std::vector<std::byte>& payload);
  Json set_problem(const Json& request);
  Json compile_one(const Json& request, std::vector<std::byte>& payload);
  Json count(const Json& request);
  Json load(const Json& request, std::vector<std::byte> code);
  Json check(const Json& request);
  Json measure(const Json& request);
  Json race(const std::vector<const LoadedCandidate*>& candidates, const MeasurePlan& plan, double timeout_s);
  /// The device of the current workload. A worker that only compiles never opens it.
  Device& device();
  void limit_memory(uint64_t headroom);
  /// Bytes that candidates of a workload may allocate; they grow with the operands of its longest call.
  static uint64_t run_headroom(const Current& state);

  const Registry& registry_;
  Channel& channel_;
  volatile int64_t* current_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Device>> devices_;
  std::unique_ptr<OperandRegions> regions_;
  std::map<std::string, ReferenceCache> references_;  ///< by operation and workload
  std::unique_ptr<Current> state_;
};

}  // namespace seqtile::autotune
