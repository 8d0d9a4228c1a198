// tests/support/ptx/hopper_kernels.h -- PTX for Hopper, written by hand: a matrix product and attention forward.
// SPDX-License-Identifier: Apache-2.0
//
// They use what sm_90a has and sm_80 has not (tensor copies with multicast, mbarriers, clusters, wgmma with operands in
// shared memory and in registers, setmaxnreg, stmatrix, tensor stores) in the ways that a code generator does, so that
// the machine can be tested with real kernels and faults can be put into them. Operands are bf16, sums f32.
#pragma once
#include <cstdint>
#include <string>

#include "jit/sim/exec/machine.h"

namespace seqtile::testing {

/// c[m, n] = a[m, k] x b[n, k]^T. A cluster owns rows of 128 each; its CTAs load a part of b each and multicast it.
struct HopperProduct {
  int m = 256, n = 128, k = 192;
  int block_n = 128, stages = 3, cluster = 2;
  int clusters = 1;  ///< in the grid: they walk over the tiles

  static constexpr int kBlockM = 128, kBlockK = 64;
  int shared_bytes() const;
  /// Requires: m a multiple of 128 * cluster, n of block_n, block_n of 64 * cluster.
  std::string text() const;
};

/// o = softmax(scale q k^T) v per head, and lse. Two groups of 64 query rows; the next q k^T runs under the softmax.
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
  std::string wrong;  ///< the worst element beyond the tolerance, and its last PTX store; empty when all are right
  bool is_right() const { return wrong.empty(); }
  /// The first report, or what is wrong; empty when all is well.
  std::string found() const { return launch.ok() ? wrong : launch.reports.front().message; }
};

/// Runs `text`, a variant of the kernel's own, on random data with guard words around it, against f64.
HopperResult run(const HopperProduct& kernel, const std::string& text, const sim::Options& options = {});
HopperResult run(const HopperAttention& kernel, const std::string& text, const sim::Options& options = {});

}  // namespace seqtile::testing
