// autotune/call/problem.cpp -- see problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/problem.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "autotune/call/call_values.h"
#include "autotune/call_sizes.h"
#include "jit/base/machine_memory.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr std::byte kGuard{0xA5};

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

bool is_static(const ArgSpec& arg) {
  return std::all_of(arg.dims.begin(), arg.dims.end(), [](const Dim& d) { return d.symbol.empty(); });
}

}  // namespace

/// The check comes first: the operating system maps more memory than the machine has, and kills processes that use it.
Pages::Pages(size_t bytes) : size_(std::max<size_t>(bytes, 1)) {
  void* memory = MAP_FAILED;
  if (static_cast<double>(size_) <= machine_bytes())
    memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("one tensor of the call needs {} bytes of memory and cannot get them; take shorter lengths",
                            size_));
  data_ = static_cast<std::byte*>(memory);
  if (size_ >= size_t{4} << 20) madvise(data_, size_, MADV_HUGEPAGE);
}

Pages::~Pages() {
  if (data_) munmap(data_, size_);
}

CheckBuffers::CheckBuffers(const OpDef& op, const Workload& workload, int64_t max_length)
    : op_(op), workload_(workload), schema_(op.schema(workload)), weight_filled_(schema_.args.size()) {
  check_memory(op, workload, max_length);
  problem_.workload = &workload_;
  problem_.schema = &schema_;
  const auto symbols = call_symbols(op_, workload_, schema_, max_length);
  for (const ArgSpec& arg : schema_.args) {
    const Tensor tensor = describe_arg(arg, schema_, symbols);
    const size_t bytes = tensor_bytes(tensor);
    // A write that misses by one or two rows must land in the guard band.
    const size_t row = tensor.rank ? static_cast<size_t>(tensor.strides[0] * dtype_bytes(arg.dtype)) : 0;
    Buffer buffer;
    buffer.guard = round_up(std::clamp<size_t>(2 * row, 4096, 256 << 10), 4096);
    buffer.pages = Pages(round_up(bytes, 64) + 2 * buffer.guard + 64);
    buffer.name = arg.name;
    buffers_.push_back(std::move(buffer));
  }
}

const Problem& CheckBuffers::bind(int64_t length, int set) {
  if (length == bound_length_ && set == bound_set_) return problem_;
  problem_.symbols = call_symbols(op_, workload_, schema_, length);
  problem_.tensors = describe_args(schema_, problem_.symbols);
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    buffers_[i].bytes = tensor_bytes(problem_.tensors[i]);
    problem_.tensors[i].data = buffers_[i].data();
  }
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].role != ArgRole::output) fill(i, set);
  bound_length_ = length;
  bound_set_ = set;
  return problem_;
}

void CheckBuffers::fill(size_t arg, int set) {
  const ArgSpec& spec = schema_.args[arg];
  const bool is_weight = spec.role == ArgRole::weight && is_static(spec);
  if (is_weight && weight_filled_[arg]) return;
  weight_filled_[arg] = is_weight;
  paint_guards(buffers_[arg], kPoison);
  std::memset(buffers_[arg].data(), static_cast<int>(kPoison), buffers_[arg].bytes);  // the padding of rows stays so
  fill_input(op_, problem_, arg, is_weight ? 1 : static_cast<uint64_t>(set) + 1);
}

void CheckBuffers::paint_guards(Buffer& buffer, std::byte value) {
  std::memset(buffer.pages.data(), static_cast<int>(value), buffer.guard);
  std::memset(buffer.data() + buffer.bytes, static_cast<int>(value), buffer.guard);
}

void CheckBuffers::poison_outputs() {
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    if (schema_.args[i].role != ArgRole::output) continue;
    std::memset(buffers_[i].data(), static_cast<int>(kPoison), buffers_[i].bytes);
    paint_guards(buffers_[i], kGuard);
  }
}

std::vector<WorkspaceView> CheckBuffers::make_workspaces(const std::vector<Workspace>& workspaces) {
  workspaces_.clear();
  std::vector<WorkspaceView> views;
  for (const Workspace& workspace : workspaces) {
    const int64_t elements = workspace.elements.value(problem_.symbols);
    Buffer buffer;
    buffer.guard = 4096;
    buffer.bytes = static_cast<size_t>(elements * dtype_bytes(workspace.dtype));
    buffer.pages = Pages(buffer.bytes + 2 * buffer.guard + 64);
    buffer.name = workspace.name;
    paint_guards(buffer, kGuard);
    views.push_back({buffer.data(), elements});
    workspaces_.push_back(std::move(buffer));
  }
  return views;
}

std::vector<CheckBuffers::Range> CheckBuffers::memory() const {
  std::vector<Range> ranges;
  const auto add = [&](const Buffer& buffer, bool is_output, bool holds_addresses) {
    const std::span<std::byte> bytes(buffer.pages.data(), buffer.bytes + 2 * buffer.guard);
    ranges.push_back({buffer.name, bytes, buffer.guard, is_output, holds_addresses});
  };
  for (size_t i = 0; i < buffers_.size(); ++i)
    add(buffers_[i], schema_.args[i].role == ArgRole::output, schema_.args[i].holds_addresses);
  for (const Buffer& buffer : workspaces_) add(buffer, false, false);
  return ranges;
}

std::optional<std::string> CheckBuffers::guard_damage() const {
  const auto damage = [](const Buffer& buffer) -> std::optional<std::string> {
    for (size_t i = 0; i < buffer.guard; ++i) {
      const size_t before = buffer.guard - 1 - i;
      if (buffer.pages.data()[before] != kGuard)
        return buffer.name + ": written " + std::to_string(i + 1) + " bytes before its start";
      if (buffer.data()[buffer.bytes + i] != kGuard)
        return buffer.name + ": written " + std::to_string(i + 1) + " bytes past its end";
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].role == ArgRole::output)
      if (auto text = damage(buffers_[i])) return text;
  for (const Buffer& buffer : workspaces_)
    if (auto text = damage(buffer)) return text;
  return std::nullopt;
}

}  // namespace seqtile::autotune
