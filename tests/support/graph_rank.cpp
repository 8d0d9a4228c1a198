// tests/support/graph_rank.cpp -- see graph_rank.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/graph_rank.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "jit/error.h"
#include "kernels/registry.h"
#include "kernels/seqpar/fused_op.h"
#include "kernels/tensor_values.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

using autotune::ArgRole;
using autotune::Workload;
namespace seqpar = kernels::seqpar;

constexpr int kPoison = 0xff;
constexpr int64_t kGap = 8;  // elements behind a row: 16-bit ones keep their alignment

EngineOptions engine_options(const std::string& folder) {
  return {.threads = 1,
          .cache = folder + "/tuning.db",
          .artifacts = folder + "/artifacts.db",
          .policy = MissPolicy::fallback};
}

ChannelOptions channel_options(const Workload& workload, int64_t capacity) {
  ChannelOptions options = seqpar::channel_options({workload}, capacity);
  options.deadline = std::chrono::seconds(20);
  return options;
}

/// With the gaps behind its rows.
size_t bytes_of(const Tensor& tensor) {
  return static_cast<size_t>(tensor.sizes[0] * tensor.strides[0] * dtype_bytes(tensor.dtype));
}

bool is_poison(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{kPoison}; });
}

/// Visits the offsets of a tensor's elements; those of a rank-1 tensor are one row.
template <class Visit>
void for_each_element(const Tensor& tensor, const Visit& visit) {
  const int64_t columns = tensor.rank > 1 ? tensor.num_elements() / std::max<int64_t>(tensor.sizes[0], 1) : 1;
  for (int64_t row = 0; row < tensor.sizes[0]; ++row)
    for (int64_t column = 0; column < columns; ++column) visit(row * tensor.strides[0] + column);
}

/// What is left of an output's bytes when its values are taken out.
std::vector<std::byte> around(const Tensor& tensor, std::vector<std::byte> bytes) {
  const auto size = static_cast<size_t>(dtype_bytes(tensor.dtype));
  for_each_element(tensor, [&](int64_t e) { std::memset(&bytes[static_cast<size_t>(e) * size], kPoison, size); });
  return bytes;
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
      channel_(fabric, channel_options(workload, capacity)),
      handle_(*engine_, {workload}, channel_),
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
  return handle_.capture(tensors_of(capacity, true), capacity, static_cast<const int64_t*>(length_.data()), stream_);
}

GraphSet GraphRank::capture_set_up_to(int64_t capacity) {
  return capture_set(device_, capacity, stream_, [&](int64_t rows) { return std::vector{capture(rows)}; });
}

int GraphRank::kernels_of_a_call(int64_t length) {
  device_.streams().begin_capture(stream_);
  handle_(tensors_of(length, false), length, stream_);
  return device_.streams().end_capture(stream_)->num_kernels();
}

void GraphRank::replay(const int64_t& length, Outputs& outputs, const std::function<void()>& launch) {
  for (const Operand& operand : operands_)
    if (operand.spec.role == ArgRole::input) send(operand, length);
  device_.memory().copy(length_.data(), &length, sizeof length, stream_);
  into(outputs, launch);
}

void GraphRank::call(int64_t length, Outputs& outputs, int64_t capacity) {
  into(outputs, [&] { handle_.call_as(capacity, tensors_of(length, false), length, stream_); });
}

void GraphRank::synchronize() {
  device_.streams().synchronize(stream_);
  sent_.clear();
}

std::string GraphRank::fault_of(const Outputs& outputs, int64_t length) const {
  size_t i = 0;
  for (const Operand& operand : operands_) {
    if (operand.spec.role != ArgRole::output) continue;
    std::vector<std::byte> bytes = outputs[i++];
    const Tensor tensor = tensor_of(operand.spec, bytes.data(), length, false);
    bool is_written = true;
    for_each_element(tensor, [&](int64_t e) { is_written &= !std::isnan(kernels::read_element(tensor, e)); });
    if (!is_written) return operand.spec.name + ": a value was not written";
    if (!is_poison(around(tensor, bytes))) return operand.spec.name + ": a row or a column too many";
  }
  return "";
}

bool GraphRank::is_given_up(const Outputs& outputs, int64_t length) const {
  size_t i = 0;
  for (const Operand& operand : operands_) {
    if (operand.spec.role != ArgRole::output) continue;
    std::vector<std::byte> bytes = outputs[i++];
    const Tensor tensor = tensor_of(operand.spec, bytes.data(), length, false);
    const auto size = static_cast<size_t>(dtype_bytes(tensor.dtype));
    bool is_nan = true;
    for_each_element(tensor, [&](int64_t e) {
      is_nan &= std::isnan(kernels::read_element(tensor, e)) &&
                !is_poison(std::span(bytes).subspan(static_cast<size_t>(e) * size, size));
    });
    if (!is_nan || !is_poison(around(tensor, bytes))) return false;
  }
  return true;
}

Tensor GraphRank::tensor_of(const autotune::ArgSpec& spec, void* data, int64_t length, bool is_capture) const {
  const std::vector<int64_t> symbols = op_.on_rank(workload_, fabric_.rank(), length).symbols;
  Tensor tensor{data, spec.dtype, static_cast<int>(spec.dims.size()), {}, {}};
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    const auto& [symbol, size] = spec.dims[d];
    tensor.sizes[d] = size;
    const auto name = std::ranges::find(schema_.symbols, symbol);
    if (is_capture && symbol == "own_rows")
      tensor.sizes[d] += seqpar::most_rows(seqpar::layout_of(workload_), length, fabric_.world_size());
    else if (!symbol.empty()) tensor.sizes[d] += symbols[static_cast<size_t>(name - schema_.symbols.begin())];
  }
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    if (d == 0 && tensor.rank > 1 && !spec.dense) stride += kGap;
    tensor.strides[d] = std::exchange(stride, stride * tensor.sizes[d]);
  }
  return tensor;
}

std::vector<Tensor> GraphRank::tensors_of(int64_t length, bool is_capture) const {
  std::vector<Tensor> tensors;
  for (const Operand& operand : operands_)
    tensors.push_back(tensor_of(operand.spec, operand.buffer.data(), length, is_capture));
  return tensors;
}

void GraphRank::send(const Operand& operand, int64_t length) {
  auto& bytes = sent_.emplace_back(operand.buffer.bytes(), std::byte{kPoison});
  kernels::fill_normal(tensor_of(operand.spec, bytes.data(), length, false), 0, 1, ++seed_);
  device_.memory().copy(operand.buffer.data(), bytes.data(), bytes.size(), stream_);
}

void GraphRank::into(Outputs& outputs, const std::function<void()>& run) {
  outputs.clear();
  for (const Operand& operand : operands_)
    if (operand.spec.role == ArgRole::output)
      device_.memory().fill(operand.buffer.data(), kPoison, operand.buffer.bytes(), stream_);
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
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const autotune::Registry registry = kernels::make_registry();
  workload.fields.set("fabric", "sim:" + target);
  workload = registry.find(workload.operation).normalize(workload);
  const auto world_size = static_cast<int>(workload.fields.get_int("world_size"));
  for (const std::string& error : on_threads(make_sim_fabric(target, world_size), [&](Fabric& fabric) {
         GraphRank rank(folder.path(), registry, fabric, workload, capacity);
         work(fabric.rank(), rank);
         fabric.all_gather("");  // peers may still store flags here
       }))
    if (!error.empty()) throw Error(ErrorCode::wrong_result, error);
}

}  // namespace seqtile::testing
