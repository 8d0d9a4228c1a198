// tests/support/kernels/sample_kernels.cpp -- small kernels that several tests use.
// SPDX-License-Identifier: Apache-2.0
//
// Loads are named before they are combined, because C++ leaves the order of evaluating arguments to the compiler, and
// these kernels are compared as text.
#include "tests/support/kernels/sample_kernels.h"

#include <limits>

#include "seqtile/builder.h"

namespace seqtile::testing {

using ir::OpKind;

std::unique_ptr<ir::Function> sample_matmul(int64_t n, int64_t k, int64_t block_m, int64_t block_n, int64_t block_k) {
  KernelBuilder b("sample_matmul");
  Var x = b.view("x", DType::f32, {kDynamic, k});
  Var w = b.view("w", DType::f32, {n, k});
  Var y = b.view("y", DType::f32, {kDynamic, n}, {.noalias = true});
  Var row = b.program_id(0) * block_m;
  Var col = b.program_id(1) * block_n;
  Var acc = b.for_loop(0, k, block_k, {b.full({block_m, block_n}, 0.0)}, [&](Var kk, std::vector<Var> carried) {
    Var x_tile = b.load(x, {row, kk}, {block_m, block_k});
    Var w_tile = b.load(w, {col, kk}, {block_n, block_k});
    return std::vector{b.dot(x_tile, b.trans(w_tile), carried[0])};
  })[0];
  b.store(y, {row, col}, acc);
  return b.finish();
}

std::unique_ptr<ir::Function> sample_softmax(int64_t block) {
  KernelBuilder b("sample_softmax");
  Var x = b.view("x", DType::f32, {kDynamic, kDynamic});
  Var y = b.view("y", DType::f32, {kDynamic, kDynamic});
  Var row = b.program_id(0);
  Var values = b.load(x, {row, 0}, {1, block}, -std::numeric_limits<double>::infinity());
  Var largest = b.expand(b.reduce_max(values, 1), 1);
  Var powers = b.exp(values - largest);
  Var total = b.expand(b.sum(powers, 1), 1);
  b.store(y, {row, 0}, powers / total);
  return b.finish();
}

namespace {

/// Folds all create, shape, unary, binary and reduce operations into one [8, 8] f32 tile.
Var every_value_op(KernelBuilder& b, Var tile) {
  for (OpKind kind : {OpKind::neg, OpKind::abs, OpKind::sqrt, OpKind::exp2, OpKind::log2, OpKind::tanh, OpKind::erf,
                      OpKind::sin, OpKind::cos, OpKind::floor})
    tile = b.unary(kind, tile);
  tile = b.unary(OpKind::rcp, b.unary(OpKind::rsqrt, b.unary(OpKind::exp2, tile)));
  tile = b.fma(tile, 2.0, 1.0) - tile / 3.0;
  tile = b.binary(OpKind::pow, b.max(tile, 0.5), 1.5);
  tile = b.cast(b.cast(tile, DType::bf16), DType::f32);

  Var ints = b.iota(64) * 3 % 7;
  for (OpKind kind : {OpKind::bit_and, OpKind::bit_or, OpKind::bit_xor}) ints = b.binary(kind, ints, 5);
  ints = b.binary(OpKind::shr, b.binary(OpKind::shl, b.unary(OpKind::bit_not, ints), 2), 1);
  Var noise = b.reshape(b.rand(7, ints), {8, 8});
  Var other = b.cast(b.reshape(ints, {8, 8}), DType::f32);
  tile = b.select(noise < 0.5, b.min(tile, other), tile);

  auto [even, odd] = b.split(tile);
  tile = b.join(odd, even);
  tile = b.trans(b.concat(even, odd)) + b.scan(tile, 1, "sum");
  auto [largest, where] = b.argreduce(tile, 1, "max");
  Var positions = b.cast(b.expand(where, 1), DType::f32);
  Var total = b.expand(b.sum(tile, 1), 1);
  return tile / total - b.broadcast(b.expand(largest, 1), {8, 8}) + positions;
}

/// Uses all synchronisation operations on counters; the signal before a wait satisfies it.
void every_sync_op(KernelBuilder& b, Var flags) {
  b.signal("set", flags, {0}, 1);
  b.wait_ge(flags, {0}, 1, "sys");
  Var old = b.atomic("add", flags, {1}, 5);
  b.cas(flags, {1}, 5, old, "acquire", "cta");
  b.fence("sys");
  b.griddep("wait");
  b.griddep("launch");
  Var seen = b.atomic_load(flags, {0}, "relaxed", "sys");
  Var address = b.load_scalar(flags, {3});  // the block of a channel is optional
  b.when(address > 4096, [&] {
    Var outcome = b.await(flags, {0}, seen, flags);
    b.store_scalar(b.view_at(address, DType::i64, {2, 3}), {1, 2}, outcome + 9);
    b.store_scalar(flags, {3}, b.clock(flags, {2}));
  });
}

}  // namespace

std::unique_ptr<ir::Function> sample_every_op() {
  KernelBuilder b("sample_every_op");
  Var x = b.view("x", DType::f32, {8, 8}, {.alignment = 32});
  Var y = b.view("y", DType::f32, {kDynamic, 8}, {.noalias = true});
  Var flags = b.view("flags", DType::i64, {4});
  Var count = b.scalar("count");
  Var programs = b.num_programs(0);
  b.assume(b.program_id(0) < programs);
  b.assert_true(count >= 0, "count is \"negative\"\n");
  b.print(count, "count");

  b.prefetch(x, {0, 0});
  Var tile = every_value_op(b, b.load(x, {0, 0}, {8, 8}));
  tile = b.dot(tile, tile, b.full({8, 8}, -0.0), "tf32");
  Var rows = b.iota(8);
  tile = tile + b.gather(x, rows, 4, 8, 1e-05);
  tile = b.for_loop(0, count, 2, {tile},
                    [&](Var i, std::vector<Var> carried) { return std::vector{carried[0] + b.cast(i, DType::f32)}; },
                    {{"form", "outer"}, {"unroll", std::vector<int64_t>{2, 1}}})[0];
  tile = b.if_then(
      count > 3, [&] { return std::vector{b.sigmoid(tile)}; }, [&] { return std::vector{tile}; })[0];
  Var last = b.while_loop(
      {count}, [&](std::vector<Var> carried) { return carried[0] > 7; },
      [&](std::vector<Var> carried) { return std::vector{carried[0] - 3}; })[0];

  Var half = b.slice(y, {0, 0}, {b.min(b.size(y, 0), 4), 8});
  Var target = b.select(count > 3, half, y);
  b.assert_true(b.compare(Compare::ne, b.address(x), b.address(target)), "x is y");
  b.store(target, {0, 0}, tile);
  b.store_add(y, {0, 4}, tile);
  b.scatter(y, rows, 0, tile);
  Var first = b.load_scalar(b.at(x, 0, 1), {last % 8});
  Var first_bits = b.bitcast(first, DType::i32);
  b.store_scalar(y, {0, 0}, b.cast(first_bits, DType::f32));
  every_sync_op(b, flags);
  return b.finish();
}

}  // namespace seqtile::testing
