// tests/support/ptx/hopper_kernels.h -- hand-written PTX for Hopper: a matrix product and attention forward.
// SPDX-License-Identifier: Apache-2.0
//
// The kernels use the features that sm_90a has beyond sm_80 (tensor copies with multicast, mbarriers, clusters, wgmma
// with operands in shared memory and in registers, setmaxnreg, stmatrix, tensor stores) as a code generator does. They
// test the machine with real kernels, and tests put faults into them. Operands are bf16, sums f32.
#pragma once
#include <cstdint>
#include <string>

#include "jit/sim/exec/machine.h"

namespace seqtile::testing {

/// c[m, n] = a[m, k] x b[n, k]^T. Each CTA of a cluster owns 128 rows, loads a part of b, and multicasts it to the
/// cluster.
struct HopperProduct {
  int m = 256, n = 128, k = 192;
  int block_n = 128, stages = 3, cluster = 2;
  int clusters = 1;  ///< clusters in the grid; they walk over the tiles

  static constexpr int kBlockM = 128, kBlockK = 64;
  int shared_bytes() const;
  /// Requires: m a multiple of 128 * cluster, n of block_n, block_n of 64 * cluster.
  std::string text() const;
};

/// o = softmax(scale q k^T) v per head, and lse. Two warp groups of 64 query rows; the next q k^T runs under the
/// softmax.
struct HopperAttention {
  int q_len = 200, kv_len = 300, heads = 2, kv_heads = 1, head_dim = 64, block_n = 64;
  bool is_causal = true;

  static constexpr int kBlockM = 128;
  int shared_bytes() const;
  /// Requires: head_dim a multiple of 64, block_n of 16.
  std::string text() const;
};

struct HopperResult {
  sim::LaunchResult launch;
  double error = 0;   ///< largest, relative to the largest possible element for the product, absolute for attention
  std::string wrong;  ///< worst element beyond the tolerance, and its last PTX store; empty if all elements are right
  bool is_right() const { return wrong.empty(); }
  /// The first report or the wrong element; empty if all is well.
  std::string found() const { return launch.ok() ? wrong : launch.reports.front().message; }
};

/// Runs `text`, a variant of the kernel's own, on random data between guard words, and compares with f64.
HopperResult run(const HopperProduct& kernel, const std::string& text, const sim::Options& options = {});
HopperResult run(const HopperAttention& kernel, const std::string& text, const sim::Options& options = {});

}  // namespace seqtile::testing
