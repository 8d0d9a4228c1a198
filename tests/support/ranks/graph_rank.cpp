// tests/support/ranks/graph_rank.cpp -- see graph_rank.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/graph_rank.h"

#include <algorithm>

#include "autotune/call/call_values.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/seqpar.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/ranks/rank_tensors.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/ranks/sharded_rows.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using autotune::ArgRole;
using autotune::Workload;
namespace seqpar = kernels::seqpar;

EngineOptions engine_options(const std::string& folder) {
  return {
      .threads = 1, .cache = folder + "/tuning.db", .artifacts = shared_artifacts(), .policy = MissPolicy::fallback};
}

}  // namespace

GraphRank::GraphRank(const std::string& folder, const autotune::Registry& registry, Fabric& fabric,
                     const Workload& workload, int64_t capacity)
    : workload_(workload),
      op_(registry.find(workload.operation)),
      schema_(op_.schema(workload)),
      fabric_(fabric),
      device_(fabric.device()),
      capacity_(capacity),
      engine_(Engine::open(engine_options(folder), registry, fabric)),
      channel_(fabric, {.capacity = capacity}),
      handle_(*engine_, workload, op_.shares, channel_),
      length_(device_.memory(), sizeof(int64_t)),
      stream_(device_.streams()),
      seed_(static_cast<uint64_t>(fabric.rank()) << 32) {
  for (size_t i = 0; i + channel_.tensors().size() < schema_.args.size(); ++i) {
    const Tensor largest = tensor_of(schema_.args[i], nullptr, capacity_, true);
    operands_.push_back({schema_.args[i], DeviceBuffer(device_.memory(), bytes_of(largest))});
    if (schema_.args[i].role == ArgRole::weight) send(operands_.back(), capacity_);
  }
  device_.streams().synchronize(stream_);
  device_.streams().begin_capture(stream_);
  kept_ = capture(capacity_);
  graph_ = device_.streams().end_capture(stream_);
}

std::shared_ptr<const void> GraphRank::capture(int64_t capacity) {
  return handle_.capture(call_of(capacity, true), static_cast<const int64_t*>(length_.data()), stream_);
}

GraphSet GraphRank::capture_set_up_to(int64_t capacity) {
  return capture_set(device_, capacity, stream_, [&](int64_t rows) { return std::vector{capture(rows)}; });
}

int GraphRank::kernels_of_a_call(int64_t length) {
  device_.streams().begin_capture(stream_);
  handle_(call_of(length, false), stream_);
  return device_.streams().end_capture(stream_)->num_kernels();
}

void GraphRank::replay(const int64_t& length, Outputs& outputs, const std::function<void()>& launch) {
  for (const Operand& operand : operands_)
    if (operand.spec.role == ArgRole::input) send(operand, length);
  device_.memory().copy(length_.data(), &length, sizeof length, stream_);
  into(outputs, launch);
}

void GraphRank::call(int64_t length, Outputs& outputs, int64_t capacity) {
  into(outputs, [&] { handle_.call_as(capacity, call_of(length, false), stream_); });
}

void GraphRank::synchronize() {
  device_.streams().synchronize(stream_);
  sent_.clear();
}

std::string GraphRank::fault_of(const Outputs& outputs, int64_t length) const {
  size_t i = 0;
  for (const Operand& operand : operands_) {
    if (operand.spec.role != ArgRole::output) continue;
    const std::string fault =
        testing::fault_of(operand.spec.name, tensor_of(operand.spec, nullptr, length, false), outputs[i++]);
    if (!fault.empty()) return fault;
  }
  return "";
}

bool GraphRank::is_given_up(const Outputs& outputs, int64_t length) const {
  size_t i = 0;
  for (const Operand& operand : operands_) {
    if (operand.spec.role != ArgRole::output) continue;
    std::vector<std::byte> bytes = outputs[i++];
    const Tensor tensor = tensor_of(operand.spec, bytes.data(), length, false);
    if (!is_nan(tensor) || autotune::find_poison(tensor) >= 0 || !autotune::is_poison(around(tensor, bytes)))
      return false;
  }
  return true;
}

Tensor GraphRank::tensor_of(const autotune::ArgSpec& spec, void* data, int64_t length, bool is_capture) const {
  std::vector<int64_t> symbols = op_.on_rank(workload_, fabric_.rank(), length).symbols;
  if (const auto name = std::ranges::find(schema_.symbols, "own_rows"); is_capture && name != schema_.symbols.end())
    symbols[static_cast<size_t>(name - schema_.symbols.begin())] =
        seqpar::most_rows(seqpar::layout_of(workload_), length, fabric_.world_size());
  return rank_tensor(schema_, spec, symbols, data);
}

kernels::Call GraphRank::call_of(int64_t length, bool is_capture) const {
  kernels::Call call(length);
  for (const Operand& operand : operands_) call.add(tensor_of(operand.spec, operand.buffer.data(), length, is_capture));
  return call;
}

void GraphRank::send(const Operand& operand, int64_t length) {
  auto& bytes = sent_.emplace_back(operand.buffer.bytes(), autotune::kPoison);
  fill_normal(tensor_of(operand.spec, bytes.data(), length, false), 0, 1, ++seed_);
  device_.memory().copy(operand.buffer.data(), bytes.data(), bytes.size(), stream_);
}

void GraphRank::into(Outputs& outputs, const std::function<void()>& run) {
  outputs.clear();
  for (const Operand& operand : operands_)
    if (operand.spec.role == ArgRole::output)
      device_.memory().fill(operand.buffer.data(), static_cast<uint8_t>(autotune::kPoison), operand.buffer.bytes(),
                            stream_);
  run();
  for (const Operand& operand : operands_) {
    if (operand.spec.role != ArgRole::output) continue;
    outputs.emplace_back(operand.buffer.bytes());
    device_.memory().copy(outputs.back().data(), operand.buffer.data(), operand.buffer.bytes(), stream_);
  }
}

void on_graph_ranks(const std::string& target, Workload workload, int64_t capacity,
                    const std::function<void(int, GraphRank&)>& work) {
  const test::TempFolder folder;
  (void)shared_artifacts();  // sets the environment before ranks have threads
  const autotune::Registry registry = kernels::make_registry();
  workload.fields.set("fabric", "sim:" + target);
  workload = registry.find(workload.operation).normalize(workload);
  const auto world_size = static_cast<int>(workload.fields.get_int("world_size"));
  for (const std::string& error : on_threads(make_sim_fabric(target, world_size), [&](Fabric& fabric) {
         GraphRank rank(folder.path(), registry, fabric, workload, capacity);
         work(fabric.rank(), rank);
         fabric.all_gather("");  // peers may still store flags in this rank's memory
       }))
    if (!error.empty()) throw Error(ErrorCode::wrong_result, error);
}

}  // namespace seqtile::testing
