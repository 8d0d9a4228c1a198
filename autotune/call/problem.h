// autotune/call/problem.h -- the memory of a call that is verified, with guard bands and poisoned outputs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine/launch.h"
#include "seqtile/op.h"

namespace seqtile::autotune {

/// Zeroed pages. A page takes memory when it is first touched.
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

/// Scratch memory of a configuration at one length.
struct WorkspaceView {
  void* base = nullptr;
  int64_t elements = 0;
};

/// The tensors of one workload, with guard bands around outputs and NaN around inputs.
class CheckBuffers {
 public:
  /// Errors: out_of_resources.
  CheckBuffers(const OpDef& op, const Workload& workload, int64_t max_length);

  /// The call at `length` with input set `set`; inputs are filled unless they are bound already. Static weights are the
  /// same in every set. Requires: length <= max_length.
  const Problem& bind(int64_t length, int set);
  /// Fills outputs with kPoison and renews the guard bands.
  void poison_outputs();
  /// Allocates the workspaces of a configuration at the bound length, zeroed, with guard bands.
  std::vector<WorkspaceView> make_workspaces(const std::vector<Workspace>& workspaces);
  /// Names the first output or workspace with a damaged guard band, and the place; nullopt if there is none.
  std::optional<std::string> guard_damage() const;
  const Schema& schema() const { return schema_; }
  /// Memory of an argument or a workspace with both guard bands.
  struct Range {
    std::string name;
    std::span<std::byte> bytes;
    size_t guard;  ///< bytes of each band, at the begin and at the end of `bytes`
    bool is_output, holds_addresses;
  };
  /// All arguments, then all workspaces.
  std::vector<Range> memory() const;

 private:
  struct Buffer {
    Pages pages;
    size_t guard = 0;  ///< bytes of each guard band
    size_t bytes = 0;  ///< bytes in use between the guard bands
    std::string name;
    std::byte* data() const { return pages.data() + guard; }
  };
  void fill(size_t arg, int set);
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
