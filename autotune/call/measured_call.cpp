// autotune/call/measured_call.cpp -- see measured_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/measured_call.h"

#include <algorithm>
#include <cstring>

#include "autotune/call/call_values.h"
#include "autotune/call_sizes.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kSmallestRegion = size_t{32} << 20, kLargestRegion = size_t{256} << 20;

std::optional<DType> region_of(const ArgSpec& arg) {
  return arg.role == ArgRole::output ? std::nullopt : std::optional(arg.dtype);
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

OperandRegions::OperandRegions(Device& device, bool cold, int num_sharing) : device_(device), cold_(cold) {
  const Target& target = device.target();
  const int64_t cache = target.is_gpu() ? target.gpu.l2_bytes : target.l3_bytes;
  size_ =
      std::clamp(static_cast<size_t>(4 * cache), kSmallestRegion, kLargestRegion) / static_cast<size_t>(num_sharing);
  // The addresses of its operands do not change a simulated launch, and the PTX machine tracks every byte of them.
  if (!cold || device.info().kind == "sim") size_ = 0;
}

void OperandRegions::grow(Region& region, std::optional<DType> dtype, size_t bytes) {
  DeviceMemory& memory = device_.memory();
  region.bytes = std::max(size_, bytes);
  region.next = 0;
  Pages pages(region.bytes);
  // Outputs are written too, so that no launch is charged for the page faults of a first access.
  const int64_t elements = static_cast<int64_t>(region.bytes) / (dtype ? dtype_bytes(*dtype) : 1);
  if (dtype) fill_repeating(make_tensor(pages.data(), *dtype, {elements}), 1, 0);
  else std::memset(pages.data(), 1, region.bytes);
  if (memory.is_host()) {
    region.pages = std::move(pages);
    return;
  }
  region.buffer = DeviceBuffer();  // frees the old buffer first: both together may not fit the memory
  region.buffer = DeviceBuffer(memory, region.bytes);
  memory.copy(region.buffer.data(), pages.data(), region.bytes);
  device_.streams().synchronize({});
}

void OperandRegions::reserve(std::optional<DType> dtype, size_t bytes) {
  Region& region = regions_[dtype];
  const size_t room = cold_ ? 2 * bytes : bytes;  // a cold call begins anywhere, and wraps around before a tensor
  if (region.bytes < std::max(size_, room)) grow(region, dtype, room);
}

void* OperandRegions::take(std::optional<DType> dtype, size_t bytes) {
  Region& region = regions_.at(dtype);
  if (region.next + bytes > region.bytes) region.next = 0;
  void* at = region.data() + region.next;
  region.next += aligned(bytes);
  return at;
}

void OperandRegions::flush(Stream stream) {
  if (!cold_) return;
  if (!flushed_.data())
    flushed_ = DeviceBuffer(device_.memory(), static_cast<size_t>(2 * device_.target().gpu.l2_bytes));
  device_.memory().fill(flushed_.data(), 0, flushed_.bytes(), stream);
}

void OperandRegions::restart() {
  if (cold_) return;
  for (auto& [dtype, region] : regions_) region.next = 0;
}

Operands::Operands(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions)
    : op_(op),
      workload_(workload),
      device_(device),
      regions_(regions),
      schema_(op.schema(workload)),
      layout_(schema_, device.target().is_gpu()) {
  problem_.workload = &workload_;
  problem_.schema = &schema_;
}

void Operands::bind(int64_t length) {
  if (length == length_) return;
  problem_.symbols = call_symbols(op_, workload_, schema_, length);
  place({});
  length_ = length;
}

void Operands::bind(int64_t length, const RankCall& rank, std::span<const Tensor> of_channel) {
  problem_.symbols = rank.symbols;
  problem_.symbols.resize(schema_.symbols.size() + schema_.scalars.size(), 0);
  place(of_channel);
  length_ = length;
}

/// The last arguments are `of_channel`, which may be empty.
void Operands::place(std::span<const Tensor> of_channel) {
  const size_t num_own = schema_.args.size() - of_channel.size();
  problem_.tensors.clear();
  filled_.clear();
  filled_.resize(schema_.args.size());
  is_fixed_.assign(schema_.args.size(), false);
  bytes_.clear();
  regions_.restart();
  std::map<std::optional<DType>, size_t> taken;
  for (size_t i = 0; i < num_own; ++i) {
    const ArgSpec& arg = schema_.args[i];
    Tensor tensor = describe_arg(arg, schema_, problem_.symbols);
    bytes_.push_back(tensor_bytes(tensor));
    is_fixed_[i] = arg.role != ArgRole::output && !is_float(arg.dtype);
    if (is_fixed_[i]) {
      filled_[i] = Pages(bytes_.back());
      tensor.data = filled_[i].data();
    } else {
      taken[region_of(arg)] += aligned(bytes_.back());
    }
    problem_.tensors.push_back(tensor);
  }
  for (const Tensor& tensor : of_channel) {
    is_fixed_[problem_.tensors.size()] = true;
    problem_.tensors.push_back(tensor);
  }
  for (const auto& [region, bytes] : taken) regions_.reserve(region, bytes);
  for (size_t i = 0; i < num_own; ++i)
    if (!is_fixed_[i]) problem_.tensors[i].data = regions_.take(region_of(schema_.args[i]), bytes_[i]);
  // Floats keep the region's values, because values of floats do not change the time of a launch.
  for (size_t i = 0; i < num_own; ++i)
    if (is_fixed_[i] && op_.fill) op_.fill(problem_, i, 1);
  send_filled();
}

void Operands::send_filled() {
  sent_.emplace(device_);
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (filled_[i].data())
      sent_->add({filled_[i].data(), bytes_[i]}, schema_.args[i].name, schema_.args[i].holds_addresses);
  sent_->upload();
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (filled_[i].data()) problem_.tensors[i].data = sent_->at(filled_[i].data());
  device_.streams().synchronize({});
}

void Operands::rotate(MeasuredCall& call) {
  regions_.restart();
  uint64_t* slot = call.call.slots.data();
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    const ArgSpec& arg = schema_.args[i];
    if (!is_fixed_[i]) *slot = reinterpret_cast<uint64_t>(regions_.take(region_of(arg), bytes_[i]));
    slot += 1 + 2 * arg.dims.size();
  }
}

MeasuredCall Operands::make_call(const LoadedCandidate& candidate) const {
  DeviceMemory& memory = device_.memory();
  const auto scalars = std::span(problem_.symbols).subspan(schema_.symbols.size());
  MeasuredCall made;
  made.candidate = &candidate;
  made.grid = grid_of(candidate.grid, problem_.symbols);
  layout_.bind(problem_.tensors, problem_.symbols[0], scalars, made.call);
  for (const Workspace& workspace : candidate.workspaces) {
    const int64_t elements = workspace.elements.value(problem_.symbols);
    const auto bytes = static_cast<size_t>(elements * dtype_bytes(workspace.dtype));
    made.workspaces.emplace_back(memory, std::max<size_t>(bytes, 1));
    memory.fill(made.workspaces.back().data(), 0, bytes);
    append_workspace(made.call, made.workspaces.back().data(), elements);
  }
  layout_.finish(scalars, nullptr, made.call);
  return made;
}

}  // namespace seqtile::autotune
