// examples/01_vector_add.cpp -- write a tile kernel, compile it, launch it: c = a + b.
// SPDX-License-Identifier: Apache-2.0
//
// The lowest level of the library: no operation, no tuning, no cache. A kernel is one program of a grid; program i adds
// elements i * 1024 .. i * 1024 + 1023. Loads out of range give 0 and stores out of range are dropped, so that the
// last, partial block needs no special case.
#include <cstdio>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/compiler.h"
#include "seqtile/device.h"

using namespace seqtile;

namespace {

constexpr int64_t kBlock = 1024;

std::unique_ptr<ir::Function> vector_add() {
  KernelBuilder kernel("vector_add_f32_1024");
  Var a = kernel.view("a", DType::f32, {kDynamic});
  Var b = kernel.view("b", DType::f32, {kDynamic});
  Var c = kernel.view("c", DType::f32, {kDynamic});
  Var first = kernel.program_id(0) * kBlock;
  kernel.store(c, {first}, kernel.load(a, {first}, {kBlock}) + kernel.load(b, {first}, {kBlock}));
  return kernel.finish();
}

}  // namespace

int main() {
  const std::unique_ptr<ir::Function> function = vector_add();
  std::printf("%s\n", ir::print(*function).c_str());

  const auto device = make_cpu_device(2);
  const auto kernel = device->load(compile(*function, device->target()));

  for (const int64_t length : {1, 1000, 1024, 100'003}) {
    std::vector<float> a(length), b(length), c(length, -1.0f);
    for (int64_t i = 0; i < length; ++i) a[i] = static_cast<float>(i), b[i] = static_cast<float>(2 * i);
    // The argument block: for each view its base, size and stride.
    std::vector<uint64_t> slots;
    for (std::vector<float>* view : {&a, &b, &c}) {
      slots.insert(slots.end(), {reinterpret_cast<uint64_t>(view->data()), static_cast<uint64_t>(length), 1});
    }
    device->launch(*kernel, {(length + kBlock - 1) / kBlock, 1, 1}, slots);
    int64_t wrong = 0;
    for (int64_t i = 0; i < length; ++i) wrong += c[i] != a[i] + b[i];
    std::printf("length %lld: %lld wrong\n", static_cast<long long>(length), static_cast<long long>(wrong));
    if (wrong) return 1;
  }
  return 0;
}
