// autotune/engine/launch.cpp -- see launch.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/launch.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/core.h>

#include "jit/base/counted.h"
#include "jit/ir/row_alignment.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr int64_t kAddressSpace = int64_t{1} << 47;  ///< bytes of a process

/// The product of strides and sizes that nobody has checked yet, modulo 2^64.
int64_t wrapping_product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

int find_symbol(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

int64_t alignment_of(const ArgSpec& spec, bool for_gpu) {
  std::array<int64_t, kMaxRank> sizes{};
  for (size_t d = 0; d < spec.dims.size(); ++d) sizes[d] = spec.dims[d].symbol.empty() ? spec.dims[d].size : kDynamic;
  const std::span<const int64_t> dims(sizes.data(), spec.dims.size());
  return std::max<int64_t>(spec.alignment, row_alignment(spec.dtype, dims, for_gpu ? kGpuAlignment : 1));
}

/// A bit for each input that may be the same tensor as the output `spec`.
uint64_t in_place_of(const ArgSpec& spec, const Schema& schema) {
  uint64_t bits = 0;
  for (const std::string& name : spec.in_place) {
    const auto found =
        std::find_if(schema.args.begin(), schema.args.end(), [&](const ArgSpec& other) { return other.name == name; });
    if (found == schema.args.end() || found->role == ArgRole::output || found->dtype != spec.dtype ||
        found->dims.size() != spec.dims.size() || spec.role != ArgRole::output)
      fail(fmt::format("argument '{}' names '{}' for work in place; it must be an output, and that an input like it",
                       spec.name, name));
    bits |= uint64_t{1} << (found - schema.args.begin());
  }
  return bits;
}

}  // namespace

CallLayout::CallLayout(const Schema& schema, bool for_gpu)
    : symbol_names_(schema.symbols), least_length_(schema.least_length), for_gpu_(for_gpu) {
  num_bound_ = static_cast<int>(schema.symbols.size());
  num_scalars_ = static_cast<int>(schema.scalars.size());
  symbol_names_.insert(symbol_names_.end(), schema.scalars.begin(), schema.scalars.end());
  if (symbol_names_.empty() || symbol_names_[0] != "length") fail("a schema's first symbol must be \"length\"");
  if (symbol_names_.size() > kMaxSymbols) {
    fail(fmt::format("the schema has {} symbols and scalars, the limit is {}", symbol_names_.size(), kMaxSymbols));
  }
  std::vector<bool> bound(symbol_names_.size(), false);
  for (size_t i = 0; i < bound.size(); ++i) bound[i] = i == 0 || i >= schema.symbols.size();
  for (size_t i = 0; i < symbol_names_.size(); ++i) {
    if (find_symbol(symbol_names_, symbol_names_[i]) != static_cast<int>(i)) {
      fail(fmt::format("the schema names symbol '{}' twice", symbol_names_[i]));
    }
  }
  if (schema.args.size() > kMaxArgs)
    fail(fmt::format("the schema has {} arguments, the limit is {}", schema.args.size(), kMaxArgs));
  for (const ArgSpec& spec : schema.args) {
    const int rank = static_cast<int>(spec.dims.size());
    if (rank > kMaxRank) fail(fmt::format("argument '{}' has rank {}, the limit is {}", spec.name, rank, kMaxRank));
    ArgRule rule{
        spec.dtype, static_cast<int8_t>(rank), spec.role == ArgRole::output, alignment_of(spec, for_gpu), spec.dense,
        {},         in_place_of(spec, schema)};
    if (spec.is_size_only) size_only_ |= uint64_t{1} << args_.size();
    if (rule.is_output) outputs_.push_back(static_cast<uint8_t>(args_.size()));
    if (!std::has_single_bit(static_cast<uint64_t>(rule.alignment))) {
      fail(fmt::format("argument '{}' asks for alignment {}, which is not a power of two", spec.name, rule.alignment));
    }
    for (int d = 0; d < rank; ++d) {
      DimRule& dim = rule.dims[d];
      dim.size = spec.dims[d].size;
      if (spec.dims[d].symbol.empty()) continue;
      const int symbol = find_symbol(symbol_names_, spec.dims[d].symbol);
      if (symbol < 0) fail(fmt::format("argument '{}' names unknown symbol '{}'", spec.name, spec.dims[d].symbol));
      dim.symbol = static_cast<int16_t>(symbol);
      dim.binds = !bound[symbol];
      bound[symbol] = true;
    }
    tensor_slots_ += 1 + 2 * rank;
    args_.push_back(rule);
    arg_names_.push_back(spec.name);
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!bound[i]) fail(fmt::format("no argument has a dimension that binds symbol '{}'", symbol_names_[i]));
  }
  indices_ = IndexCheck(schema, symbol_names_);
  // A quarter of the block is reserved for workspaces, which depend on the configuration.
  if (tensor_slots_ + num_scalars_ > kMaxSlots * 3 / 4) {
    fail(fmt::format("the arguments take {} slots, the limit is {}; use fewer tensors or lower ranks",
                     tensor_slots_ + num_scalars_, kMaxSlots * 3 / 4));
  }
}

bool CallLayout::is_empty_call(std::span<const Tensor> tensors, int64_t length) const {
  return length == 0 && least_length_ > 0 && tensors.size() == args_.size() &&
         std::ranges::all_of(outputs_, [&](uint8_t output) { return tensors[output].num_elements() == 0; });
}

void CallLayout::bind(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars,
                      KernelCall& call) const {
  if (length < least_length_ && !is_empty_call(tensors, length))
    fail(fmt::format("length is {}; it must be at least {}", length, least_length_));
  if (tensors.size() != args_.size())
    fail(fmt::format("{} given, {} expected", counted(tensors.size(), "tensor"), args_.size()));
  if (scalars.size() != static_cast<size_t>(num_scalars_)) {
    fail(fmt::format("{} given, {} expected", counted(scalars.size(), "scalar"), num_scalars_));
  }
  call.num_slots = 0;
  call.num_symbols = num_bound_ + num_scalars_;
  call.symbols[0] = length;
  std::copy(scalars.begin(), scalars.end(), call.symbols.begin() + num_bound_);
  std::array<Extent, kMaxArgs> extents;  // NOLINT: set up to args_.size()
  for (size_t i = 0; i < args_.size(); ++i) extents[i] = bind_arg(i, tensors[i], call);
  check_overlaps(tensors, {extents.data(), args_.size()});
  if (!for_gpu_) indices_.check(tensors, call.symbol_values());
}

void CallLayout::check_overlaps(std::span<const Tensor> tensors, std::span<const Extent> extents) const {
  Extent all_outputs{UINTPTR_MAX, 0};
  for (const size_t output : outputs_) {
    if (overlaps_itself(tensors[output])) [[unlikely]]
      refuse(output, "two of its elements have one address; give strides that keep them apart");
    if (extents[output].end == 0) continue;
    all_outputs = {std::min(all_outputs.begin, extents[output].begin), std::max(all_outputs.end, extents[output].end)};
  }
  // Most inputs lie outside of the extent of all outputs and need no further comparison.
  for (size_t i = 0; i < extents.size(); ++i)
    if (all_outputs.meets(extents[i]) && !(size_only_ >> i & 1))
      for (const size_t output : outputs_)
        if (output != i && extents[output].meets(extents[i])) [[unlikely]]
          check_pair(output, i, tensors);
}

void CallLayout::check_pair(size_t output, size_t other, std::span<const Tensor> tensors) const {
  const bool may_share = args_[output].in_place >> other & 1;
  if (may_share && is_rows_of(tensors[other], tensors[output])) return;
  if (!overlap(tensors[output], tensors[other])) return;
  refuse(output, fmt::format("overlaps argument {} '{}'{}; give it memory of its own{}", other, arg_names_[other],
                             may_share ? " in part" : "", may_share ? ", or the very same tensor" : ""));
}

Extent CallLayout::bind_arg(size_t index, const Tensor& tensor, KernelCall& call) const {
  const ArgRule& rule = args_[index];
  if (tensor.dtype != rule.dtype) {
    refuse(index, fmt::format("dtype is {}, {} expected", dtype_name(tensor.dtype), dtype_name(rule.dtype)));
  }
  if (tensor.rank != rule.rank) refuse(index, fmt::format("rank is {}, {} expected", tensor.rank, int{rule.rank}));
  bind_sizes(index, tensor, call);

  uint64_t* slot = &call.slots[call.num_slots];
  const auto base = reinterpret_cast<uintptr_t>(tensor.data);
  if (base == 0 && tensor.num_elements() > 0) refuse(index, "data is null");
  if (base & (rule.alignment - 1)) {
    refuse(index, fmt::format("data is at {:#x}, {}-byte alignment expected; align the buffer", base, rule.alignment));
  }
  *slot++ = base;
  for (int d = 0; d < rule.rank; ++d) *slot++ = static_cast<uint64_t>(tensor.sizes[d]);
  const int64_t element = dtype_bytes(rule.dtype);
  bool is_empty = false, is_too_wide = false;
  int64_t before = 0, behind = element;  // bytes; computed here as in extent_of(), to read the strides only once
  for (int d = 0; d < rule.rank; ++d) {
    int64_t stride = tensor.strides[d];
    const bool innermost = d == rule.rank - 1;
    if (tensor.sizes[d] <= 1) {
      stride = innermost ? 1 : stride;  // any stride is right, because the index is always 0
    } else if (innermost && stride != 1) {
      refuse(index, fmt::format("innermost stride is {}, 1 expected; make the tensor contiguous", stride));
    } else if (!innermost && (wrapping_product(stride, element) & (rule.alignment - 1))) {
      refuse(index, fmt::format("stride {} of dimension {} is {} bytes, a multiple of {} expected; pad the rows",
                                stride, d, wrapping_product(stride, element), rule.alignment));
    } else if (rule.dense && d > 0 && !innermost &&
               stride != wrapping_product(tensor.sizes[d + 1], tensor.strides[d + 1])) {
      refuse(index, fmt::format("stride of dimension {} is {}, {} expected; it must have no gaps", d, stride,
                                wrapping_product(tensor.sizes[d + 1], tensor.strides[d + 1])));
    } else if (stride == 0 && rule.is_output) {
      refuse(index, fmt::format("stride of dimension {} is 0, so that the output's rows overlap", d));
    }
    *slot++ = static_cast<uint64_t>(stride);
    const int64_t last = tensor.sizes[d] - 1;
    is_empty |= last < 0;
    int64_t reach = 0, &side = stride < 0 ? before : behind;
    is_too_wide |= __builtin_mul_overflow(last, element, &reach);
    is_too_wide |= __builtin_mul_overflow(reach, stride, &reach);
    is_too_wide |= __builtin_add_overflow(side, reach, &side);
  }
  call.num_slots += 1 + 2 * rule.rank;
  if (is_empty) return {0, 0};
  if (is_too_wide || behind > kAddressSpace || before < -kAddressSpace) [[unlikely]]
    refuse_width(index, tensor);
  return {base + static_cast<uintptr_t>(before), base + static_cast<uintptr_t>(behind)};
}

void CallLayout::bind_sizes(size_t index, const Tensor& tensor, KernelCall& call) const {
  const ArgRule& rule = args_[index];
  for (int d = 0; d < rule.rank; ++d) {
    const DimRule& dim = rule.dims[d];
    if (dim.binds) call.symbols[dim.symbol] = tensor.sizes[d] - dim.size;
    const int64_t expected = dim.symbol == kStatic ? dim.size : call.symbols[dim.symbol] + dim.size;
    if (tensor.sizes[d] != expected || tensor.sizes[d] < std::max<int64_t>(dim.binds ? dim.size : 0, 0)) {
      refuse_size(index, d, tensor, call);
    }
  }
}

void CallLayout::refuse_size(size_t index, int dim, const Tensor& tensor, const KernelCall& call) const {
  const DimRule& rule = args_[index].dims[dim];
  const int64_t size = tensor.sizes[dim];
  const std::string what = fmt::format("size of dimension {} is {}, ", dim, size);
  if (rule.binds) refuse(index, fmt::format("{}at least {} expected", what, rule.size));
  if (rule.symbol == kStatic) refuse(index, fmt::format("{}{} expected", what, rule.size));
  refuse(index, fmt::format("{}{} expected ({}{})", what, call.symbols[rule.symbol] + rule.size,
                            symbol_names_[rule.symbol], rule.size ? fmt::format(" + {}", rule.size) : ""));
}

void CallLayout::refuse_width(size_t index, const Tensor& tensor) const {
  const auto bytes = [&](int d) {
    return std::abs(static_cast<double>(tensor.strides[d])) * static_cast<double>(tensor.sizes[d] - 1);
  };
  int widest = 0;
  for (int d = 1; d < tensor.rank; ++d)
    if (bytes(d) > bytes(widest)) widest = d;
  refuse(index, fmt::format("stride {} of dimension {} with size {} reaches beyond the address space of {} bytes; give "
                            "the stride of the buffer, in elements",
                            tensor.strides[widest], widest, tensor.sizes[widest], kAddressSpace));
}

void CallLayout::refuse(size_t index, const std::string& problem) const {
  fail(fmt::format("argument {} '{}': {}", index, arg_names_[index], problem));
}

}  // namespace seqtile::autotune
