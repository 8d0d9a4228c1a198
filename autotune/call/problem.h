// autotune/call/problem.h -- the memory of a concrete call: for verifying, with guard bands and poisoned outputs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine/launch.h"
#include "autotune/op_def.h"

namespace seqtile::autotune {

/// Zeroed pages, aligned to at least 64 bytes; untouched ones cost nothing.
class Pages {
 public:
  Pages() = default;
  /// Errors: out_of_resources.
  explicit Pages(size_t bytes);
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Pages();
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void swap(Pages& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Dtype, sizes and strides of an argument; rows are padded where its alignment asks for it. The data pointer is null.
Tensor describe_arg(const ArgSpec& arg, const Schema& schema, std::span<const int64_t> symbols);
/// Bytes from the first to one past the last row.
size_t tensor_bytes(const Tensor& tensor);
/// Errors: out_of_resources when the tensors of one call at `length` are larger than this machine's memory together.
void check_memory(const OpDef& op, const Workload& workload, int64_t length);
/// Bytes of the tensors of one call at `length`, as a floating-point number: by mistake more than 2^64 are asked for.
double call_bytes(const OpDef& op, const Workload& workload, int64_t length);

/// `count` elements of normal random values times `scale` (zeros for integers), the same for the same phase.
void fill_normal(void* data, DType dtype, size_t count, double scale, size_t phase);

/// Scratch memory of a configuration at one length.
struct WorkspaceView {
  void* base = nullptr;
  int64_t elements = 0;
};

/// The tensors of one workload with guard bands around outputs and NaN around inputs.
class CheckBuffers {
 public:
  CheckBuffers(const OpDef& op, const Workload& workload, int64_t max_length);

  /// Inputs of set `set` at `length`; unchanged when they are bound already. Weights are the same in every set.
  const Problem& bind(int64_t length, int set);
  /// Fills outputs with 0xFF (NaN in every float format) and renews the guard bands.
  void poison_outputs();
  /// Scratch memory of a configuration, zeroed, with guard bands.
  std::vector<WorkspaceView> make_workspaces(const std::vector<Workspace>& workspaces);
  /// Names the first output or workspace that was written outside of its bounds, and where.
  std::optional<std::string> guard_damage() const;
  const Schema& schema() const { return schema_; }
  /// What a launch may reach: arguments, then workspaces, each between its guard bands.
  struct Range {
    std::string name;
    std::span<std::byte> bytes;
    size_t guard;  ///< bytes of it before and after
    bool is_output, holds_addresses;
  };
  std::vector<Range> memory() const;

 private:
  struct Buffer {
    Pages pages;
    size_t guard = 0;  ///< bytes before and after
    size_t bytes = 0;  ///< in use between them
    std::string name;
    std::byte* data() const { return pages.data() + guard; }
  };
  void fill_input(size_t arg, int set);
  void paint_guards(Buffer& buffer, std::byte value);

  const OpDef& op_;
  const Workload& workload_;
  Schema schema_;
  Problem problem_;
  std::vector<Buffer> buffers_;  ///< one an argument
  std::vector<Buffer> workspaces_;
  std::vector<bool> weight_filled_;
  int64_t bound_length_ = 0;
  int bound_set_ = -1;
};

}  // namespace seqtile::autotune
