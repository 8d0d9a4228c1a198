// tests/jit/runtime/cuda/tensor_map_test.cpp -- descriptors of tiles, and the calls that make one.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/tensor_map.h"

#include <catch2/catch.hpp>

#include "tests/support/fakes/fake_cuda_driver.h"

namespace seqtile::cuda {
namespace {

using test::FakeCuda;

const TensorMapSpec kSpec{.first_slot = 2, .dtype = DType::bf16, .box = {128, 64}, .swizzle_bytes = 128};

/// Two other slots, then a view of [rows, 512] at `base`.
std::vector<uint64_t> slots_of(uint64_t base, uint64_t rows = 100, uint64_t stride = 512) {
  return {7, 8, base, rows, 512, stride, 1};
}

}  // namespace

TEST_CASE("tensor map: sizes, strides and box go to the driver innermost first", "[jit][cuda]") {
  FakeCuda fake;
  const Context context(Driver::open(FakeCuda::kPath), 0);
  const CUtensorMap& map = tensor_map(context, kSpec, slots_of(0x10000, 100, 1024));
  CHECK(map.opaque[0] == 9);         // bf16
  CHECK(map.opaque[1] == 2);         // rank
  CHECK(map.opaque[2] == 0x10000);   // base
  CHECK(map.opaque[3] == 512);       // columns
  CHECK(map.opaque[4] == 100);       // rows
  CHECK(map.opaque[5] == 2 * 1024);  // bytes between rows
  CHECK(map.opaque[6] == 64);        // columns of the box
  CHECK(map.opaque[7] == 128);       // rows of the box
  CHECK(map.opaque[8] == 3);         // swizzle of 128 bytes
}

TEST_CASE("tensor map: the driver is asked once for each tensor, size and tile", "[jit][cuda]") {
  FakeCuda fake;
  const Context context(Driver::open(FakeCuda::kPath), 0);
  for (int repeat = 0; repeat < 5; ++repeat) {
    CHECK(tensor_map(context, kSpec, slots_of(0x20000)).opaque[2] == 0x20000);
    CHECK(tensor_map(context, kSpec, slots_of(0x30000)).opaque[2] == 0x30000);
  }
  CHECK(fake.calls("cuTensorMapEncodeTiled") == 2);
  CHECK(tensor_map(context, kSpec, slots_of(0x20000, 101)).opaque[4] == 101);
  TensorMapSpec other = kSpec;
  other.box[0] = 64;
  CHECK(tensor_map(context, other, slots_of(0x20000)).opaque[7] == 64);
  CHECK(fake.calls("cuTensorMapEncodeTiled") == 4);
}

TEST_CASE("tensor map: tensors that cannot be described", "[jit][cuda][fault]") {
  FakeCuda fake("cuTensorMapEncodeTiled=1");
  const Context context(Driver::open(FakeCuda::kPath), 0);
  const auto message_of = [&](const std::vector<uint64_t>& slots) -> std::string {
    try {
      tensor_map(context, kSpec, slots);
      return "no error";
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
  };
  CHECK_THAT(message_of(slots_of(0x40002)),
             Catch::Contains("tiles of 128 x 64 of a tensor of 100 x 512 at 0x40002, rows "
                             "1024 bytes apart: CUDA_ERROR_INVALID_VALUE"));
  std::vector<uint64_t> spread = slots_of(0x40000);
  spread.back() = 2;
  CHECK_THAT(message_of(spread), Catch::Contains("2 elements apart: the kernel takes contiguous rows"));
  fake.now("");
  CHECK(tensor_map(context, kSpec, slots_of(0x40002)).opaque[2] == 0x40002);  // the failure is not kept
}

}  // namespace seqtile::cuda
