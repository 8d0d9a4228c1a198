// autotune/call/problem.cpp -- see problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/problem.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "jit/base/machine_memory.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr std::byte kGuard{0xA5}, kPoison{0xFF};
constexpr size_t kPatternElements = 65537;  // prime, so that rows of a model's lengths differ from each other

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

uint64_t next_random(uint64_t& state) {  // splitmix64
  uint64_t z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double next_uniform(uint64_t& state) { return (static_cast<double>(next_random(state) >> 11) + 0.5) * 0x1p-53; }

void store_value(std::byte* to, DType dtype, double value) {
  const auto put = [&](auto v) { std::memcpy(to, &v, sizeof v); };
  if (dtype == DType::f64) put(value);
  else if (dtype == DType::f32) put(static_cast<float>(value));
  else if (dtype == DType::f16) put(f32_to_f16(static_cast<float>(value)));
  else if (dtype == DType::bf16) put(f32_to_bf16(static_cast<float>(value)));
}

/// kPatternElements normal values (Box and Muller) in storage format.
std::vector<std::byte> make_pattern(DType dtype, double scale) {
  const size_t size = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> pattern(kPatternElements * size);
  uint64_t state = 42;
  for (size_t i = 0; i < kPatternElements; ++i) {
    const double radius = std::sqrt(-2 * std::log(next_uniform(state)));
    store_value(&pattern[i * size], dtype, scale * radius * std::cos(2 * M_PI * next_uniform(state)));
  }
  return pattern;
}

const std::vector<std::byte>& pattern_of(DType dtype, double scale) {
  thread_local std::map<std::pair<DType, double>, std::vector<std::byte>> patterns;
  auto& pattern = patterns[{dtype, scale}];
  if (pattern.empty()) pattern = make_pattern(dtype, scale);
  return pattern;
}

int64_t dim_value(const Dim& dim, const ArgSpec& arg, const Schema& schema, std::span<const int64_t> symbols) {
  if (dim.symbol.empty()) return dim.size;
  for (size_t i = 0; i < schema.symbols.size(); ++i)
    if (schema.symbols[i] == dim.symbol) return symbols[i] + dim.size;
  for (size_t i = 0; i < schema.scalars.size(); ++i)
    if (schema.scalars[i] == dim.symbol) return symbols[schema.symbols.size() + i] + dim.size;
  throw Error(ErrorCode::invalid_argument,
              "argument " + arg.name + " has the dimension " + dim.symbol + ", which is no symbol of the schema");
}

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

Tensor describe_arg(const ArgSpec& arg, const Schema& schema, std::span<const int64_t> symbols) {
  Tensor tensor{nullptr, arg.dtype, static_cast<int>(arg.dims.size()), {}, {}};
  for (int d = 0; d < tensor.rank; ++d) tensor.sizes[d] = dim_value(arg.dims[d], arg, schema, symbols);
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    stride *= tensor.sizes[d];
    if (d == tensor.rank - 1 && arg.alignment > 0)
      stride = static_cast<int64_t>(round_up(stride * dtype_bytes(arg.dtype), arg.alignment)) / dtype_bytes(arg.dtype);
  }
  return tensor;
}

size_t tensor_bytes(const Tensor& tensor) {
  if (tensor.rank == 0) return 0;
  return static_cast<size_t>(tensor.sizes[0] * tensor.strides[0] * dtype_bytes(tensor.dtype));
}

double call_bytes(const OpDef& op, const Workload& workload, int64_t length) {
  const Schema schema = op.schema(workload);
  const auto symbols = call_symbols(op, workload, schema, length);
  double bytes = 0;
  for (const ArgSpec& arg : schema.args) {
    double elements = 1;
    for (const Dim& dim : arg.dims) elements *= static_cast<double>(dim_value(dim, arg, schema, symbols));
    bytes += elements * static_cast<double>(dtype_bytes(arg.dtype));
  }
  return bytes;
}

void check_memory(const OpDef& op, const Workload& workload, int64_t length) {
  const double bytes = call_bytes(op, workload, length);
  if (bytes > machine_bytes())
    throw Error(ErrorCode::out_of_resources,
                fmt::format("the tensors of {} at length {} need {:.0f} bytes of memory, this machine has {:.0f}; take "
                            "shorter lengths",
                            op.name, length, bytes, machine_bytes()));
}

void fill_normal(void* data, DType dtype, size_t count, double scale, size_t phase) {
  const size_t size = static_cast<size_t>(dtype_bytes(dtype));
  if (!is_float(dtype)) {
    std::memset(data, 0, count * size);
    return;
  }
  const auto& pattern = pattern_of(dtype, scale);
  auto* to = static_cast<std::byte*>(data);
  for (size_t from = phase % kPatternElements; count > 0; from = 0) {
    const size_t n = std::min(count, kPatternElements - from);
    std::memcpy(to, &pattern[from * size], n * size);
    to += n * size;
    count -= n;
  }
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
  problem_.tensors.clear();
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    Tensor tensor = describe_arg(schema_.args[i], schema_, problem_.symbols);
    buffers_[i].bytes = tensor_bytes(tensor);
    tensor.data = buffers_[i].data();
    problem_.tensors.push_back(tensor);
  }
  for (size_t i = 0; i < schema_.args.size(); ++i)
    if (schema_.args[i].role != ArgRole::output) fill_input(i, set);
  bound_length_ = length;
  bound_set_ = set;
  return problem_;
}

void CheckBuffers::fill_input(size_t arg, int set) {
  const ArgSpec& spec = schema_.args[arg];
  const bool is_weight = spec.role == ArgRole::weight && is_static(spec);
  if (is_weight && weight_filled_[arg]) return;
  weight_filled_[arg] = is_weight;
  paint_guards(buffers_[arg], kPoison);
  const uint64_t seed = is_weight ? 1 : static_cast<uint64_t>(set) + 1;
  if (op_.fill && op_.fill(problem_, arg, seed)) return;
  const Tensor& tensor = problem_.tensors[arg];
  double scale = 1;
  if (spec.role == ArgRole::weight && tensor.rank >= 2)
    scale = 1 / std::sqrt(static_cast<double>(tensor.sizes[tensor.rank - 1]));
  fill_normal(tensor.data, tensor.dtype, tensor_bytes(tensor) / dtype_bytes(tensor.dtype), scale,
              7919 * seed + 104729 * arg);
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
