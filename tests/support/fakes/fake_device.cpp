// tests/support/fakes/fake_device.cpp -- see fake_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fakes/fake_device.h"

#include "seqtile/error.h"
#include "seqtile/op.h"

namespace seqtile::test {
namespace {

class FakeKernel final : public LoadedKernel {
 public:
  explicit FakeKernel(KernelBinary binary) : LoadedKernel(std::move(binary)) {
    const std::string json(reinterpret_cast<const char*>(binary_.code.data()), binary_.code.size());
    block = autotune::Config::parse(json).get_int("block");
  }
  int64_t block = 0;
};

// Slots: x (base, 2 sizes, 2 strides), y (the same), workspace (base, size, stride), factor.
struct Block {
  const float* x;
  float* y;
  int64_t rows, columns, x_stride, y_stride;
  float* tickets;
  int64_t factor;
};

Block read_slots(std::span<const uint64_t> slots) {
  if (slots.size() != 14) throw Error(ErrorCode::internal, "the fake kernel takes 14 slots");
  return {reinterpret_cast<const float*>(slots[0]), reinterpret_cast<float*>(slots[5]), static_cast<int64_t>(slots[1]),
          static_cast<int64_t>(slots[2]),           static_cast<int64_t>(slots[3]),     static_cast<int64_t>(slots[8]),
          reinterpret_cast<float*>(slots[10]),      static_cast<int64_t>(slots[13])};
}

}  // namespace

FakeDevice::FakeDevice()
    : info_{"fake", "Fake 1", {{"cores", "2"}, {"features", "avx512"}, {"model", "fake"}}},
      target_{.name = "fake:v1"} {}

std::unique_ptr<LoadedKernel> FakeDevice::load(KernelBinary binary) {
  loads.fetch_add(1, std::memory_order_relaxed);
  if (binary.target != target_.name) throw Error(ErrorCode::invalid_argument, "a binary of another target");
  return std::make_unique<FakeKernel>(std::move(binary));
}

void FakeDevice::launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream,
                        GridRange) {
  launches.fetch_add(1, std::memory_order_relaxed);
  if (!computes) return;
  const int64_t block = static_cast<const FakeKernel&>(kernel).block;
  const Block b = read_slots(slots);
  last_block.store(block, std::memory_order_relaxed);
  for (int64_t program = 0; program < grid[0]; ++program) {
    float& ticket = b.tickets[program];
    if (ticket != 0.0f) dirty_tickets.fetch_add(1, std::memory_order_relaxed);
    ticket = 1.0f;
    for (int64_t row = program * block; row < std::min(b.rows, (program + 1) * block); ++row) {
      for (int64_t c = 0; c < b.columns; ++c) {
        b.y[row * b.y_stride + c] = static_cast<float>(b.factor) * b.x[row * b.x_stride + c] + static_cast<float>(row);
      }
    }
    ticket = 0.0f;
  }
}

}  // namespace seqtile::test
