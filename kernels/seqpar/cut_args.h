// kernels/seqpar/cut_args.h -- checks of the arguments of which a rank has its own rows or columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/fabric.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

/// The arguments of which a rank has its own rows or its own heads' columns.
class CutArgs {
 public:
  CutArgs(const Handle& handle, const Fabric& fabric);

  /// Errors: invalid_argument where the length is above the channel's capacity, or a tensor of own rows or own columns
  /// has not those that this rank owns, or lies in an output, but not as those.
  void check_call(const Channel& channel, std::span<const Tensor> tensors, int64_t length) const;
  /// Errors: invalid_argument where the capacity is above the channel's, or a tensor of own rows or columns has fewer
  /// than this rank owns at some length up to it, or lies in an output.
  void check_capture(const Channel& channel, std::span<const Tensor> tensors, int64_t capacity) const;
  bool needs_sequence() const { return needs_sequence_; }

 private:
  struct Arg {
    size_t place;
    std::string name;
    int64_t columns = -1;  ///< own ones; -1: all
    bool has_own_rows = false;
  };
  struct InPlace {
    size_t input, output;
    std::string input_name, output_name;
  };
  void check_columns(std::span<const Tensor> tensors) const;
  const InPlace* overlapping(std::span<const Tensor> tensors) const;

  std::vector<Arg> args_;
  std::vector<InPlace> in_place_;  ///< inputs of own rows that may lie in an output of all rows
  size_t num_args_ = 0;
  bool needs_sequence_ = false;
  RowLayout layout_ = RowLayout::contiguous;
  int rank_ = 0, world_size_ = 1;
};

}  // namespace seqtile::kernels::seqpar
