// autotune/engine/launch.h -- from a call's tensors to the argument block and grid of a launch.
// SPDX-License-Identifier: Apache-2.0
//
// A CallLayout is a schema flattened for the hot path. bind() checks a call and fills a KernelCall on the caller's
// stack; the caller appends the workspaces of the chosen configuration, and finish() the scalars.
// Argument block: per tensor base, sizes, strides (in elements); per workspace base, size, stride 1; per scalar its
// value; for GPUs the address of the length in device memory, 0 where the sizes hold it (jit/ir/length_sizes.h).
// On CPUs bind() also checks index tensors, so that no program uses an index outside of a tensor.
// The functions allocate only when they throw. A CallLayout is immutable after construction, so any thread may use it.
//
//   KernelCall call;
//   layout.bind(tensors, length, scalars, call);
//   for (each workspace) append_workspace(call, memory, workspace.elements.value(call.symbol_values()));
//   layout.finish(scalars, nullptr, call);
//   device.launch(kernel, grid_of(axes, call.symbol_values()), call.block());
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine/index_check.h"
#include "autotune/engine/overlap.h"
#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/tensor.h"

namespace seqtile::autotune {

constexpr int kMaxSymbols = 16;  ///< symbols and scalars of one operation
constexpr int kMaxSlots = 256;   ///< 8-byte slots of one argument block
constexpr int kMaxArgs = 64;     ///< tensors of one operation
constexpr int64_t kWorkspaceAlignment = 64;

/// The argument block under construction. Only the counted parts of the arrays are set.
struct KernelCall {
  std::array<int64_t, kMaxSymbols> symbols;
  std::array<uint64_t, kMaxSlots> slots;
  int num_symbols = 0, num_slots = 0;

  KernelCall() {}  // NOLINT: the arrays stay unset on purpose; clearing 2 KiB a call would cost more than filling it
  /// Values of Schema::symbols, then of Schema::scalars, to evaluate a SizeExpr with.
  std::span<const int64_t> symbol_values() const { return {symbols.data(), static_cast<size_t>(num_symbols)}; }
  std::span<const uint64_t> block() const { return {slots.data(), static_cast<size_t>(num_slots)}; }
};

class CallLayout {
 public:
  /// `for_gpu`: tensors must be aligned as build_kernel() promises for GPUs: 16 bytes where static sizes allow it.
  /// Errors: invalid_argument on a schema that cannot be called: too many arguments or symbols, a dimension of an
  /// unknown symbol, a symbol that no dimension binds, a symbol named twice, an alignment that is not a power of two, a
  /// rule or an `in_place` that names an unknown or unfit argument.
  explicit CallLayout(const Schema& schema, bool for_gpu = false);

  /// A call of length 0 whose outputs have no elements, of an operation that needs at least 1: nothing is to be done.
  bool is_empty_call(std::span<const Tensor> tensors, int64_t length) const;

  /// Checks the tensors and scalars, binds the symbols and fills the tensors' slots.
  /// Errors: invalid_argument: number of tensors or scalars, length below Schema::least_length
  /// where the call is not empty; or, naming the
  /// argument, null data, dtype, rank, size, stride, alignment, an output that overlaps itself or another tensor, on
  /// CPUs an element of an index tensor.
  void bind(std::span<const Tensor> tensors, int64_t length, std::span<const int64_t> scalars, KernelCall& call) const;

  /// Number of slots of a whole argument block; equals KernelBinary::num_slots of a kernel that fits the schema.
  int num_slots(int num_workspaces) const {
    return tensor_slots_ + 3 * num_workspaces + num_scalars_ + (for_gpu_ ? 1 : 0);
  }
  /// Appends the scalars, and for GPUs `device_length`. Requires: bind() was called and all workspaces are appended.
  void finish(std::span<const int64_t> scalars, const int64_t* device_length, KernelCall& call) const {
    for (const int64_t value : scalars) call.slots[call.num_slots++] = static_cast<uint64_t>(value);
    if (for_gpu_) call.slots[call.num_slots++] = reinterpret_cast<uintptr_t>(device_length);
  }

 private:
  static constexpr int16_t kStatic = -1;
  struct DimRule {
    int64_t size = 0;  ///< the static size, or a constant that is added to the symbol
    int16_t symbol = kStatic;
    bool binds = false;  ///< the symbol gets its value from this dimension
  };
  struct ArgRule {
    DType dtype;
    int8_t rank = 0;
    bool is_output = false;
    int64_t alignment = 1;  ///< bytes
    bool dense = false;
    std::array<DimRule, kMaxRank> dims;
    uint64_t in_place = 0;  ///< a bit for each argument that may be the same tensor
  };

  Extent bind_arg(size_t index, const Tensor& tensor, KernelCall& call) const;
  void check_overlaps(std::span<const Tensor> tensors, std::span<const Extent> extents) const;
  void check_pair(size_t output, size_t other, std::span<const Tensor> tensors) const;
  void bind_sizes(size_t index, const Tensor& tensor, KernelCall& call) const;
  [[noreturn]] void refuse_size(size_t index, int dim, const Tensor& tensor, const KernelCall& call) const;
  [[noreturn]] void refuse_width(size_t index, const Tensor& tensor) const;
  [[noreturn]] void refuse(size_t index, const std::string& problem) const;

  std::vector<ArgRule> args_;
  std::vector<uint8_t> outputs_;  ///< indices of args_
  uint64_t size_only_ = 0;        ///< a bit for each argument whose elements no kernel reads
  IndexCheck indices_;
  std::vector<std::string> arg_names_, symbol_names_;  ///< for messages; scalars follow the symbols
  int64_t least_length_ = 1;
  int num_bound_ = 0, num_scalars_ = 0, tensor_slots_ = 0;
  bool for_gpu_ = false;
};

/// Appends a workspace: a view of rank 1 over `data`. Requires: `data` is aligned to kWorkspaceAlignment and is zeroed
/// by its owner.
inline void append_workspace(KernelCall& call, void* data, int64_t elements) {
  uint64_t* slot = &call.slots[call.num_slots];
  slot[0] = reinterpret_cast<uintptr_t>(data);
  slot[1] = static_cast<uint64_t>(elements);
  slot[2] = 1;
  call.num_slots += 3;
}

inline Grid grid_of(const std::array<SizeExpr, 3>& axes, std::span<const int64_t> symbols) {
  return {axes[0].value(symbols), axes[1].value(symbols), axes[2].value(symbols)};
}

}  // namespace seqtile::autotune
