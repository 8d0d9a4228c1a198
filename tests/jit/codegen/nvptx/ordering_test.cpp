// tests/jit/codegen/nvptx/ordering_test.cpp -- accesses of one program to the same memory keep their order on GPUs.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <functional>

#include "jit/analysis/aliasing.h"
#include "seqtile/builder.h"
#include "tests/support/ptx/simulated_kernel.h"

namespace seqtile {
namespace {

using testing::count_of;
using testing::Operands;
using testing::Param;
using testing::SimulatedKernel;

constexpr int64_t kRows = 16, kColumns = 64;

/// A program on x, y [16, 64] f32; with `may_share` they may be the same tensor.
std::unique_ptr<ir::Function> kernel_of(const std::string& name, bool may_share,
                                        const std::function<void(KernelBuilder&, Var, Var)>& body) {
  KernelBuilder b(name);
  b.schedule({{"num_warps", int64_t{4}}});
  const ViewFacts facts{.noalias = !may_share};
  Var x = b.view("x", DType::f32, {kDynamic, kColumns}, facts),
      y = b.view("y", DType::f32, {kDynamic, kColumns}, facts);
  body(b, x, y);
  return b.finish();
}

const std::vector<Param> kParams = {{DType::f32, {kRows, kColumns}}, {DType::f32, {kRows, kColumns}}};
const std::vector<int> kApart = {}, kTogether = {-1, 0};

std::string without_barriers(std::string text) {
  for (size_t at = text.find("bar.sync"); at != std::string::npos; at = text.find("bar.sync", at + 4))
    text.insert(at, "// ");
  return text;
}

/// Checks that the kernel is right under all schedules with `barriers` barriers, and that the machine sees a race
/// without them.
void check_ordered(const ir::Function& function, size_t barriers, const std::vector<int>& alias = kApart) {
  INFO(function.name());
  SimulatedKernel kernel(function);
  CHECK(count_of(kernel.text(), "bar.sync") == barriers);
  testing::compare_simulated(function, {1, 1, 1}, kParams, {}, 2e-5, alias);
  kernel.set_text(without_barriers(kernel.text()));
  const std::string found = kernel.run({1, 1, 1}, Operands(kParams, alias));
  if (barriers > 0) CHECK(found.find("race") != std::string::npos);
}

}  // namespace

TEST_CASE("ordering: a load behind a store sees what other threads stored", "[jit][nvptx][sim]") {
  check_ordered(*kernel_of("transposed", false,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 64}) + 1.0);
                             b.store(x, {0, 0}, b.reshape(b.trans(b.load(y, {0, 0}, {8, 64})), {8, 64}));
                           }),
                2);  // one barrier for the way through shared memory
  check_ordered(*kernel_of("shifted", false,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 32}) + 1.0);
                             b.store(x, {0, 32}, b.load(y, {1, 0}, {8, 32}));
                           }),
                1);
  check_ordered(*kernel_of("one_element", false,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 64}));
                             b.store(x, {0, 0}, b.load(x, {0, 0}, {8, 64}) + b.full({8, 64}, b.load_scalar(y, {5, 9})));
                           }),
                1);
}

TEST_CASE("ordering: a store behind a load leaves what other threads have not read", "[jit][nvptx][sim]") {
  check_ordered(*kernel_of("moved", false,
                           [](KernelBuilder& b, Var x, Var) {
                             b.store(x, {0, 0}, b.load(x, {1, 0}, {8, 32}));
                           }),
                1);
  check_ordered(*kernel_of("moved_between_tensors", true,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.store(y, {0, 0}, b.load(x, {1, 0}, {8, 64}));
                           }),
                1, kTogether);
  check_ordered(*kernel_of("set_behind_a_read", false,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 64}));
                             b.store_scalar(x, {3, 7}, 5.0);
                           }),
                1);
}

TEST_CASE("ordering: an element that is set is seen by all threads", "[jit][nvptx][sim]") {
  check_ordered(*kernel_of("set_then_read", false,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.store_scalar(x, {2, 5}, 3.0);
                             b.store(y, {0, 0}, b.full({8, 64}, b.load_scalar(x, {2, 5})));
                           }),
                1);
  check_ordered(*kernel_of("set_then_overwritten", false,
                           [](KernelBuilder& b, Var x, Var) {
                             b.store_scalar(x, {2, 5}, 3.0);
                             b.store(x, {0, 0}, b.full({8, 64}, 1.0));
                           }),
                1);
}

TEST_CASE("ordering: turns of a loop follow each other", "[jit][nvptx][sim]") {
  check_ordered(
      *kernel_of("rotating", false,
                 [](KernelBuilder& b, Var x, Var) {
                   b.for_loop(0, 5, 1, {}, [&](Var, std::vector<Var>) {
                     Var whole = b.load(x, {0, 0}, {8, 64});
                     b.store(x, {0, 0}, b.concat(b.load(x, {0, 16}, {8, 48}), b.load(x, {0, 0}, {8, 16})) + whole);
                     return std::vector<Var>{};
                   });
                 }),
      3);
  check_ordered(*kernel_of("counting", false,
                           [](KernelBuilder& b, Var x, Var y) {
                             Var limit = b.constant(DType::i64, int64_t{4});
                             b.while_loop(
                                 {b.constant(DType::i64, int64_t{0})}, [&](std::vector<Var> i) { return i[0] < limit; },
                                 [&](std::vector<Var> i) {
                                   b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 64}) + 1.0);
                                   b.store(x, {0, 0}, b.load(y, {3, 0}, {8, 64}));
                                   return std::vector{i[0] + 1};
                                 });
                           }),
                2);
}

TEST_CASE("ordering: what follows a branch or a loop also follows what was before it", "[jit][nvptx][sim]") {
  KernelBuilder b("maybe");
  b.schedule({{"num_warps", int64_t{4}}});
  Var x = b.view("x", DType::f32, {kDynamic, kColumns}), y = b.view("y", DType::f32, {kDynamic, kColumns});
  Var count = b.scalar("count");
  b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 64}) * 2.0);
  b.for_loop(0, count, 1, {}, [&](Var, std::vector<Var>) {
    b.store(x, {0, 0}, b.load(y, {0, 8}, {8, 32}));
    return std::vector<Var>{};
  });
  b.if_then(count > 1, [&] {
    b.store(x, {0, 32}, b.load(y, {1, 0}, {7, 32}));
    return std::vector<Var>{};
  });
  b.store(x, {0, 0}, b.load(y, {2, 0}, {6, 64}));
  const auto function = b.finish();
  for (const int64_t turns : {0, 1, 2, 3}) testing::compare_simulated(*function, {1, 1, 1}, kParams, {turns});
}

TEST_CASE("ordering: threads that read and write their own elements do not wait", "[jit][nvptx][sim]") {
  check_ordered(*kernel_of("in_place", true,
                           [](KernelBuilder& b, Var x, Var y) {
                             Var value = b.load(x, {0, 0}, {8, 64});
                             b.store(x, {0, 0}, value * value);
                             b.store(y, {0, 0}, b.load(x, {0, 0}, {8, 64}) + 1.0);
                           }),
                0, kTogether);
  check_ordered(*kernel_of("halves", true,
                           [](KernelBuilder& b, Var x, Var y) {
                             Var low = b.load(x, {0, 0}, {16, 32}), high = b.load(x, {0, 32}, {16, 32});
                             b.store(y, {0, 0}, low - high);
                             b.store(y, {0, 32}, low + high);
                           }),
                0, kTogether);
  check_ordered(*kernel_of("row_by_row", true,
                           [](KernelBuilder& b, Var x, Var y) {
                             b.for_loop(0, 16, 8, {}, [&](Var row, std::vector<Var>) {
                               Var rows = b.slice(y, {row, 0}, {8, 64});
                               b.store(rows, {0, 0}, b.load(x, {row, 0}, {8, 64}) + 1.0);
                               return std::vector<Var>{};
                             });
                           }),
                0, kTogether);
}

TEST_CASE("ordering: threads beyond a small tile's elements leave memory alone", "[jit][nvptx][sim]") {
  check_ordered(*kernel_of("small",  // 64 elements for 128 threads
                           true,
                           [](KernelBuilder& b, Var x, Var y) {
                             Var low = b.load(x, {3, 0}, {2, 16}), high = b.load(x, {3, 16}, {2, 16});
                             b.store(y, {3, 0}, low * 2.0 - high);
                             b.store(y, {3, 16}, low + high * 2.0);
                           }),
                0, kTogether);
  // All threads of a row read the values that they share.
  check_ordered(*kernel_of("scaled_row", true,
                           [](KernelBuilder& b, Var x, Var y) {
                             Var scale = b.load(x, {0, 0}, {8, 1});
                             b.store(y, {0, 0}, scale + 1.0);
                             b.store(y, {8, 0}, b.load(x, {8, 0}, {8, 64}) * b.broadcast(scale, {8, 64}));
                           }),
                2, kTogether);  // with one barrier for the way through shared memory
}

TEST_CASE("ordering: copies ahead of a loop come behind what the program has stored", "[jit][nvptx][sim]") {
  KernelBuilder b("stored_then_streamed");
  b.schedule({{"num_warps", int64_t{4}}, {"num_stages", int64_t{2}}});
  b.align_rows(16);
  Var x = b.view("x", DType::bf16, {64, 64}), y = b.view("y", DType::bf16, {64, 64});
  Var z = b.view("z", DType::f32, {64, 64});
  b.store(y, {0, 0}, b.load(x, {0, 0}, {64, 64}) + 1.0);
  Var sums = b.for_loop(0, 64, 16, {b.full({64, 64}, 0.0)}, [&](Var k, std::vector<Var> carried) {
    Var left = b.load(y, {0, k}, {64, 16}), right = b.load(x, {0, k}, {64, 16});
    return std::vector{b.dot(left, b.trans(right), carried[0])};
  })[0];
  b.store(z, {0, 0}, sums);
  const auto function = b.finish();
  const std::vector<Param> params = {{DType::bf16, {64, 64}}, {DType::bf16, {64, 64}}, {DType::f32, {64, 64}}};
  testing::compare_simulated(*function, {1, 1, 1}, params, {}, 1e-3);
  CHECK(count_of(SimulatedKernel(*function).text(), "cp.async") > 0);
  // A copy by a thread of another warp group would escape the barriers of the block.
  CHECK(count_of(SimulatedKernel(*function, "sm_90a").text(), "cp.async.bulk") == 0);
  SimulatedKernel kernel(*function);
  std::string text = kernel.text();
  text.insert(text.find("bar.sync"), "// ");
  kernel.set_text(text);
  CHECK(kernel.run({1, 1, 1}, Operands(params)).find("race") != std::string::npos);
}

TEST_CASE("aliasing: windows are compared dimension by dimension", "[jit][ir]") {
  KernelBuilder b("windows");
  Var x = b.view("x", DType::f32, {kDynamic, 4, 64}), y = b.view("y", DType::f32, {kDynamic, 4, 64});
  Var other = b.view("other", DType::f32, {kDynamic, 4, 32});
  Var row = b.program_id(0) * 8, head = b.program_id(1);
  Var x_head = b.at(x, 1, head), y_head = b.at(y, 1, head);
  const auto region = [](Var loaded) { return ir::region_of(*loaded.value()->def); };
  const ir::Region here = region(b.load(x_head, {row, 0}, {8, 32}));
  CHECK(ir::overlap(here, region(b.load(y_head, {row, 0}, {8, 32}))) == ir::Overlap::same);
  CHECK(ir::overlap(here, region(b.load(y_head, {row, 32}, {8, 32}))) == ir::Overlap::none);
  CHECK(ir::overlap(here, region(b.load(y_head, {row + 8, 0}, {8, 32}))) == ir::Overlap::none);
  CHECK(ir::overlap(here, region(b.load(y_head, {row + 7, 0}, {8, 32}))) == ir::Overlap::some);
  CHECK(ir::overlap(here, region(b.load(b.at(y, 1, head + 1), {row, 0}, {8, 32}))) == ir::Overlap::none);
  CHECK(ir::overlap(here, region(b.load(b.at(y, 1, row), {row, 0}, {8, 32}))) == ir::Overlap::some);
  CHECK(ir::overlap(here, region(b.load(b.at(other, 1, head), {row, 0}, {8, 32}))) == ir::Overlap::none);
  Var part = b.slice(b.at(y, 1, head), {row - 4, 16}, {12, 48});
  CHECK(ir::overlap(here, region(b.load(part, {4, 0}, {8, 16}))) == ir::Overlap::some);
  CHECK(ir::overlap(here, region(b.load(part, {4, 16}, {8, 32}))) == ir::Overlap::none);
  CHECK(ir::overlap(here, region(b.gather(y_head, b.iota(8), 32, 32))) == ir::Overlap::none);
  CHECK(ir::overlap(here, region(b.gather(y_head, b.iota(8), 0, 32))) == ir::Overlap::some);
  Var either = b.select(head > 1, x, y);
  CHECK(ir::overlap(here, region(b.load(b.at(either, 1, head), {row, 0}, {8, 32}))) == ir::Overlap::some);
  CHECK(ir::may_share(either.value(), y.value()));
  CHECK_FALSE(ir::may_share(either.value(), other.value()));
}

TEST_CASE("aliasing: turns of a loop are apart where one step moves beyond the window", "[jit][ir]") {
  KernelBuilder b("turns");
  Var x = b.view("x", DType::f32, {kDynamic, 64});
  b.for_loop(0, 64, 8, {}, [&](Var i, std::vector<Var>) {
    const auto across = [&](Var one, Var two) {
      const ir::Op& loop = *i.value()->block->parent;
      return ir::overlaps_across(ir::region_of(*one.value()->def), ir::region_of(*two.value()->def), loop);
    };
    Var here = b.load(x, {i, 0}, {8, 64}), wide = b.load(x, {i, 0}, {9, 64}), next = b.load(x, {i + 8, 0}, {8, 64});
    CHECK_FALSE(across(here, here));
    CHECK(across(wide, here));
    CHECK(across(next, here));
    CHECK_FALSE(across(b.load(x, {0, 0}, {8, 32}), b.load(x, {4, 32}, {8, 32})));
    CHECK(across(b.load(x, {i * 2, 0}, {8, 64}), here));
    return std::vector<Var>{};
  });
}

}  // namespace seqtile
