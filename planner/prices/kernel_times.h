// planner/prices/kernel_times.h -- the time that one device needs for its part of an operator.
// SPDX-License-Identifier: Apache-2.0
//
// The planner names no kernel. The caller passes a function from an operator's local shape to seconds, which may look
// up measured times. A roofline of a few facts about the device takes the place of times that were not measured.
#pragma once
#include <array>
#include <functional>
#include <string_view>

namespace seqtile::planner {

/// The work of one device. `sizes` depends on the operation; unused sizes are 0:
///   linear     rows, columns, sum: y[m, n] = x[m, k] w[n, k]; a backward pass is two of these
///   matmul     batch, rows, columns, sum
///   conv       batch, input channels, output channels, taps, places of the result
///   attention  batch, heads, groups of keys, queries, keys that a query sees, head dimension;
///              window_attention where a query does not see all keys
///   rms_norm, layer_norm, batch_norm, softmax, silu_and_mul and other gates, embedding   rows, columns of the result
///   pool, elementwise                                                                    elements of the result
///   product    none: einsum, experts and recurrent layers
/// Linears, products and convolutions have no backward operation of their own: a backward pass is more such calls. All
/// other operations have one: "softmax_backward".
struct KernelCall {
  std::string_view operation;
  std::string_view dtype;  ///< of the result: "bf16"
  std::array<int64_t, 6> sizes{};
  double flops = 0;
  double bytes = 0;  ///< read and written, counting each operand once
};

struct KernelTime {
  double seconds = 0;
  bool is_measured = false;  ///< false: computed by a roofline
};

using KernelTimes = std::function<KernelTime(const KernelCall&)>;

/// Parameters of a roofline. The defaults describe a data-centre GPU of 2020 with its tensor cores at 60 % of their
/// peak.
struct DeviceFacts {
  double peak_flops = 312e12 * 0.6;  ///< per second, as far as products reach it
  double bandwidth = 1.6e12;         ///< bytes per second
  double launch_s = 5e-6;
};

/// Times each call as launch_s + max(flops / peak_flops, bytes / bandwidth).
KernelTimes roofline(const DeviceFacts& facts);

}  // namespace seqtile::planner
