// tests/jit/codegen/streams_test.cpp -- the loads of a loop that may happen turns ahead.
// SPDX-License-Identifier: Apache-2.0
#include "jit/analysis/streams.h"

#include <catch2/catch.hpp>

#include <functional>

#include "seqtile/builder.h"

namespace seqtile::testing {
namespace {

using ir::OpKind;

struct Matmul {
  Var x, w, y;
};
/// Changes a turn beside its product: takes the turn's operands and returns the left factor.
using Change = std::function<Var(KernelBuilder&, const Matmul&, Var kk, Var tile)>;

std::unique_ptr<ir::Function> matmul(const Change& change = nullptr, double fill = 0) {
  KernelBuilder b("matmul");
  const Matmul m{b.view("x", DType::bf16, {kDynamic, 64}), b.view("w", DType::bf16, {64, 64}),
                 b.view("y", DType::f32, {kDynamic, 64})};
  Var acc = b.for_loop(0, 64, 16, {b.full({32, 64}, 0.0)}, [&](Var kk, std::vector<Var> carried) {
    Var x = b.load(m.x, {0, kk}, {32, 16}, fill);
    if (change) x = change(b, m, kk, x);
    Var w = b.load(m.w, {0, kk}, {64, 16});
    return std::vector{b.dot(x, b.trans(w), carried[0])};
  })[0];
  b.store(m.y, {0, 0}, acc);
  return b.finish();
}

codegen::StreamedLoop found_in(const ir::Function& function) {
  for (const ir::Op* op : function.body().ops)
    if (op->kind == OpKind::for_loop) return codegen::find_streams(*op, codegen::users_of(function));
  return {};
}

}  // namespace

TEST_CASE("streams: both operands of a product that is computed in a loop", "[jit][codegen]") {
  const auto function = matmul();
  const auto found = found_in(*function);
  REQUIRE(found.streams.size() == 2);
  CHECK(found.streams[0].operand == 0);
  CHECK(found.streams[1].operand == 1);
  CHECK(found.streams[0].dot == found.streams[1].dot);
  CHECK(codegen::is_transposed(found.streams[0].dot->operands[1]));
  CHECK(codegen::stored_operand(*found.streams[1].dot, 1) == found.streams[1].load->results[0]);
  CHECK(found.residents.empty());
}

TEST_CASE("streams: both operands of a weight's gradient, the left one turned", "[jit][codegen]") {
  KernelBuilder b("gradient");
  Var dy = b.view("dy", DType::bf16, {kDynamic, 64}), x = b.view("x", DType::bf16, {kDynamic, 64});
  Var dw = b.view("dw", DType::f32, {64, 64});
  Var acc = b.for_loop(0, b.size(dy, 0), 16, {b.full({64, 64}, 0.0)}, [&](Var token, std::vector<Var> sums) {
    Var left = b.trans(b.load(dy, {token, 0}, {16, 64}));
    return std::vector{b.dot(left, b.load(x, {token, 0}, {16, 64}), sums[0])};
  })[0];
  b.store(dw, {0, 0}, acc);
  const auto function = b.finish();
  const auto found = found_in(*function);
  REQUIRE(found.streams.size() == 2);
  CHECK(found.streams[0].operand == 0);
  CHECK(codegen::stored_operand(*found.streams[0].dot, 0) == found.streams[0].load->results[0]);
}

TEST_CASE("streams: a load that something else reads too is not one", "[jit][codegen]") {
  const auto function = matmul([](KernelBuilder& b, const Matmul&, Var, Var x) { return b.cast(x * x, DType::bf16); });
  const auto found = found_in(*function);
  REQUIRE(found.streams.size() == 1);
  CHECK(found.streams[0].operand == 1);
}

TEST_CASE("streams: a fill other than zero is not what a copy leaves", "[jit][codegen]") {
  CHECK(found_in(*matmul(nullptr, 1.0)).streams.size() == 1);
}

TEST_CASE("streams: a loop that writes has none", "[jit][codegen]") {
  const auto function = matmul([](KernelBuilder& b, const Matmul& m, Var kk, Var x) {
    b.store(m.y, {0, kk}, b.full({32, 16}, 1.0));
    return x;
  });
  CHECK(found_in(*function).streams.empty());
}

TEST_CASE("streams: an address that depends on memory of the turn is not known ahead", "[jit][codegen]") {
  KernelBuilder b("gathered");
  Var x = b.view("x", DType::bf16, {kDynamic, 64}), order = b.view("order", DType::i64, {kDynamic});
  Var y = b.view("y", DType::f32, {kDynamic, 64});
  Var eye = b.load(x, {0, 0}, {32, 16});
  Var acc = b.for_loop(0, 4, 1, {b.full({32, 64}, 0.0)}, [&](Var i, std::vector<Var> carried) {
    Var row = b.load_scalar(order, {i});
    return std::vector{b.dot(eye, b.load(x, {row, 0}, {16, 64}), carried[0])};
  })[0];
  b.store(y, {0, 0}, acc);
  CHECK(found_in(*b.finish()).streams.empty());
}

TEST_CASE("streams: tiles from outside are residents, and index arithmetic is found in order", "[jit][codegen]") {
  KernelBuilder b("scores");
  Var q = b.view("q", DType::bf16, {kDynamic, 64}), k = b.view("k", DType::bf16, {kDynamic, 64});
  Var y = b.view("y", DType::f32, {kDynamic, 64});
  Var queries = b.load(q, {0, 0}, {32, 64});
  Var acc = b.for_loop(0, 4, 1, {b.full({32, 32}, 0.0)}, [&](Var i, std::vector<Var> carried) {
    Var keys = b.load(k, {i * 32 + 7, 0}, {32, 64});
    return std::vector{b.dot(queries, b.trans(keys), carried[0])};
  })[0];
  b.store(y, {0, 0}, acc);
  const auto function = b.finish();
  const auto found = found_in(*function);
  REQUIRE(found.streams.size() == 1);
  REQUIRE(found.residents.size() == 1);
  CHECK(found.residents[0].load->results[0] == found.streams[0].dot->operands[0]);
  std::vector<OpKind> arithmetic;
  for (const ir::Op* op : found.indices)
    if (op->kind != OpKind::constant) arithmetic.push_back(op->kind);
  CHECK(arithmetic == std::vector<OpKind>{OpKind::mul, OpKind::add});
}

TEST_CASE("streams: what follows from a tile element by element is seen through shared operands", "[jit][codegen]") {
  KernelBuilder b("doubled");
  Var x = b.view("x", DType::f32, {kDynamic, 64});
  Var tile = b.load(x, {0, 0}, {8, 64}), sum = tile;
  for (int i = 0; i < 60; ++i) sum = sum + sum;  // two paths a step: a walk that forgets visited values would not end
  b.store(x, {0, 0}, sum);
  const auto function = b.finish();
  const auto& ops = function->body().ops;
  const ir::Op *load = nullptr, *store = ops.back();
  for (const ir::Op* op : ops)
    if (op->kind == OpKind::load) load = op;
  REQUIRE(load);
  CHECK(codegen::follows_from(store->operands.back(), load->results[0]));
  CHECK_FALSE(codegen::follows_from(load->results[0], store->operands.back()));
}

}  // namespace seqtile::testing
