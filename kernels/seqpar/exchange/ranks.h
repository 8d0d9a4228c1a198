// kernels/seqpar/exchange/ranks.h -- the ranks that an operation runs on.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <string>

#include "jit/abi/channel_block.h"
#include "jit/fabric/core/fabric.h"
#include "kernels/op/op_fields.h"
#include "kernels/seqpar/exchange/row_layout.h"

namespace seqtile::kernels::seqpar {

inline constexpr std::array<std::string_view, 8> kFabricNames = {
    "threads", "processes", "sim:sm_80", "sim:sm_90a", "virtual:sm_80", "virtual:sm_90a", "cuda:sm_80", "cuda:sm_90a"};

/// The number of ranks and the kind of fabric that joins them; both are part of the key.
struct Ranks {
  int64_t world_size = 0;          ///< 0: not known yet
  std::string fabric = "threads";  ///< Fabric::kind()

  void fields(FieldVisitor& v) {
    v.integer("world_size", world_size, 1, channel::kMaxRanks);
    v.choice("fabric", fabric, kFabricNames);
  }
  int size() const { return static_cast<int>(world_size); }
  /// The rank whose call is measured and verified: it has the most rows where rows are contiguous.
  int longest() const { return size() - 1; }
  /// The first row of a rank's rows where rows are contiguous.
  int64_t first_row(int rank, int64_t length) const { return rank * length / world_size; }
  /// Ranks are threads or processes, on CPUs.
  bool are_on_cpus() const { return fabric.find(':') == std::string::npos; }
  /// Ranks that share a GPU have one launch: one kernel, so the same static arguments and the same configuration.
  bool share_a_launch() const { return fabric.starts_with("virtual:"); }
};

/// The workload of an operation on these ranks.
template <class Op>
autotune::Workload workload_on(Op op, const Ranks& ranks) {
  op.ranks = ranks;
  return workload_of(op);
}

/// The ranks that a workload names; none where it is not one over ranks.
inline Ranks ranks_of(const autotune::Workload& w) {
  return {w.fields.get_int("world_size", 0), w.fields.get_string("fabric", "")};
}
inline RowLayout layout_of(const autotune::Workload& w) {
  return w.fields.get_string("layout", "contiguous") == "zigzag" ? RowLayout::zigzag : RowLayout::contiguous;
}

inline Ranks ranks_of(const Fabric& fabric) { return {fabric.world_size(), fabric.kind()}; }

}  // namespace seqtile::kernels::seqpar
