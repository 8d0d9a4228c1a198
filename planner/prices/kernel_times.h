// planner/prices/kernel_times.h -- how long one device takes for its part of an operator.
// SPDX-License-Identifier: Apache-2.0
//
// The planner names no kernel: whoever calls it gives a function from the local shape of an operator to seconds, which
// may look up measured times. Where there are none, a roofline of a few facts about the device takes their place.
#pragma once
#include <array>
#include <functional>
#include <string_view>

namespace seqtile::planner {

/// What one device computes. Sizes by operation; unused ones are 0:
///   linear     rows, columns, sum: y[m, n] = x[m, k] w[n, k]; a backward pass is two of these
///   matmul     batch, rows, columns, sum
///   conv       batch, input channels, output channels, taps, places of the result
///   attention  batch, heads, groups of keys, length of the queries, of the keys that a query sees, head dimension;
///              window_attention where there are keys that a query does not see
///   rms_norm, layer_norm, batch_norm, softmax, silu_and_mul and other gates, embedding   rows, columns of the result
///   pool, elementwise                                                                    elements of the result
/// The backward pass of all but linears, products and convolutions is a call of its own: "softmax_backward".
struct KernelCall {
  std::string_view operation;
  std::string_view dtype;  ///< "bf16", of the result
  std::array<int64_t, 6> sizes{};
  double flops = 0;
  double bytes = 0;  ///< read and written, each operand once
};

struct KernelTime {
  double seconds = 0;
  bool is_measured = false;  ///< else it is from a roofline
};

using KernelTimes = std::function<KernelTime(const KernelCall&)>;

/// What a roofline needs. Defaults: a data-centre GPU of 2020 with its tensor cores at 60 % of their peak.
struct DeviceFacts {
  double peak_flops = 312e12 * 0.6;  ///< per second, as products reach it
  double bandwidth = 1.6e12;         ///< bytes per second
  double launch_s = 5e-6;
};

/// launch + max(flops / peak, bytes / bandwidth).
KernelTimes roofline(const DeviceFacts& facts);

}  // namespace seqtile::planner
