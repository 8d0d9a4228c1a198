// bench/probe.h -- what the machine gives right now: multiply-add peak and memory bandwidth.
// SPDX-License-Identifier: Apache-2.0
//
// Shared machines drift by 1.6 within minutes, so a roofline is only as good as its probes: every call measures again
// and returns the best value seen by this process. Others on the host only ever slow a probe down. The instruction set
// is chosen at run time (AVX-512, AVX2, else what the compiler's generic vectors give).
#pragma once
#include <cstdint>
#include <string>

#include "jit/base/dtype.h"

namespace seqtile::bench {

/// Best multiply-add rate so far in GFLOP/s. bf16 is the rate of the bf16 dot product instruction where the CPU has one
/// and f32's is not higher. About 10 ms.
double probe_peak_gflops(DType dtype, int threads);

/// Best bandwidth so far in GB/s for a stream of which `written / (read + written)` are stores (rounded to sixteenths),
/// on memory beyond 4 times the last-level cache; with and without cache-bypassing stores. About 0.1 s.
double probe_bandwidth_gbs(double read, double written, int threads);

/// The best values so far without measuring.
double best_peak_gflops(DType dtype, int threads);
double best_bandwidth_gbs(double read, double written, int threads);

/// Instruction set of the peak probe: "avx512f", "avx2+fma", "generic"; with "+bf16" where bf16 has its own.
std::string probe_isa();

}  // namespace seqtile::bench
