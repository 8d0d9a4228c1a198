// tests/autotune/gpu_model_test.cpp -- the order of launches by the cost model of GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/op.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "autotune/gpu_model.h"
#include "seqtile/device.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

const GpuFacts& h200() { return find_profile("h200")->facts; }
const GpuFacts& a100() { return find_profile("a100")->facts; }

/// A product of 4096^3 in tiles of 128 x 128 x 64, by mma.sync with four stages.
GpuWork product() {
  GpuWork work;
  work.programs = 32 * 32;
  work.threads = 256;
  work.shared_bytes = 4 * 32768;
  work.registers = 128;
  work.tensor_flops = 2.0 * 128 * 128 * 4096;
  work.turns = 64;
  work.stages = 4;
  work.l2_bytes = 64 * 32768;
  work.shared_wavefronts = 64 * 1000;
  work.memory_bytes = 3.0 * 4096 * 4096 * 2;
  return work;
}

}  // namespace

TEST_CASE("gpu model: a large product is bound by the tensor cores, within what such kernels reach",
          "[autotune][gpu_model]") {
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const double a100_tflops = flops / predict_us(product(), a100()) * 1e-6;
  CHECK(a100_tflops > 150);
  CHECK(a100_tflops < 290);
  GpuWork wgmma = product();
  wgmma.uses_wgmma = true;
  CHECK(predict_us(wgmma, h200()) < predict_us(product(), h200()));
  CHECK(flops / predict_us(wgmma, h200()) * 1e-6 < h200().tensor_f16_tflops);
  CHECK(predict_us(product(), h200()) < predict_us(product(), a100()));
}

TEST_CASE("gpu model: bytes are bound by the memory's bandwidth", "[autotune][gpu_model]") {
  GpuWork rows;
  rows.programs = 8192;
  rows.threads = 256;
  rows.registers = 40;
  rows.l2_bytes = 16384;
  rows.memory_bytes = 8192.0 * 16384;
  const double gb_per_s = rows.memory_bytes / predict_us(rows, h200()) * 1e-3;
  CHECK(gb_per_s > 0.6 * h200().memory_gb_per_s);
  CHECK(gb_per_s < h200().memory_gb_per_s);
  CHECK(predict_us(rows, h200()) < predict_us(rows, find_profile("h100_sxm")->facts));
}

TEST_CASE("gpu model: one program more than fit at once costs a wave", "[autotune][gpu_model]") {
  GpuWork work = product();
  work.memory_bytes = 0;
  work.programs = 132;
  const double full = predict_us(work, h200());
  work.programs = 133;
  CHECK(predict_us(work, h200()) > 1.4 * full);
}

TEST_CASE("gpu model: stages hide the loads of a program that is alone", "[autotune][gpu_model]") {
  GpuWork one = product();
  one.programs = 8;
  one.memory_bytes = 0;
  GpuWork bare = one;
  bare.stages = 1;
  CHECK(predict_us(bare, h200()) > 1.5 * predict_us(one, h200()));
}

TEST_CASE("gpu model: a stage more hides large tiles, and blocks that meet pay for it", "[autotune][gpu_model]") {
  GpuWork large = product();
  large.uses_wgmma = true;
  large.programs = 512;
  large.tensor_flops = 2.0 * 128 * 256 * 4096;
  large.l2_bytes = 64 * 49152;
  large.stages = 3;
  GpuWork few = large, meets = large;
  few.stages = 2;
  meets.meeting_cycles = 600;
  CHECK(predict_us(large, h200()) < predict_us(few, h200()));
  CHECK(predict_us(large, h200()) < predict_us(meets, h200()));
}

TEST_CASE("gpu model: what does not fit a multiprocessor is never fast", "[autotune][gpu_model]") {
  GpuWork work = product();
  CHECK(resident_programs(work, h200()) == 1);
  work.shared_bytes = 32768;
  CHECK(resident_programs(work, h200()) == 2);  // registers limit: 65536 in all, 128 for each of 256 threads
  work.registers = 32;
  CHECK(resident_programs(work, h200()) == 6);  // shared memory limits
  work.shared_bytes = 240 << 10;
  CHECK(resident_programs(work, h200()) == 0);
  CHECK(std::isinf(predict_us(work, h200())));
  work.shared_bytes = 0;
  work.registers = 300;
  work.threads = 512;
  CHECK(resident_programs(work, h200()) == 0);
}

TEST_CASE("gpu model: counts take the place of estimates and add up by weight", "[autotune][gpu_model]") {
  ProgramCounts whole;
  whole.add({100, 10, 20}, -1.5);  // three turns less than with two
  whole.add({180, 20, 36}, 2.5);
  CHECK(whole.warp_instructions == Approx(300));
  GpuWork work = product();
  apply_counts(whole, work);
  CHECK(work.warp_instructions == Approx(300));
  CHECK(work.l2_bytes == Approx(35 * 32));
  CHECK(work.shared_wavefronts == Approx(60));
  CHECK(work.tensor_flops == product().tensor_flops);
}
