// bench/probe.h -- measures the machine's current multiply-add peak and memory bandwidth.
// SPDX-License-Identifier: Apache-2.0
//
// Shared machines drift by a factor of 1.6 within minutes, so a roofline is only as good as its probes. Every call
// measures again and returns the best value seen by this process: other load on the host only slows a probe down. The
// instruction set is chosen at run time: AVX-512, AVX2, or the compiler's generic vectors.
#pragma once
#include <cstdint>
#include <string>

#include "seqtile/tensor.h"

namespace seqtile::bench {

/// The best multiply-add rate so far in GFLOP/s. For bf16 it is the rate of the bf16 instructions, if the CPU has some,
/// or the rate of f32 if that is higher. Takes about 10 ms.
double probe_peak_gflops(DType dtype, int threads);

/// The best bandwidth so far in GB/s of a stream in which `written / (read + written)` of the bytes are stores, rounded
/// to sixteenths. The memory exceeds 4 times the last-level cache. Stores with and without bypassing the cache are
/// tried. Takes about 0.1 s.
double probe_bandwidth_gbs(double read, double written, int threads);

/// The best values so far, without measuring.
double best_peak_gflops(DType dtype, int threads);
double best_bandwidth_gbs(double read, double written, int threads);

/// Instruction set of the peak probe: "avx512f", "avx2+fma" or "generic". Suffixes name its own instructions for bf16:
/// "+bf16", "+bf16+amx".
std::string probe_isa();

}  // namespace seqtile::bench
