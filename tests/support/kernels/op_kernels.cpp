// tests/support/kernels/op_kernels.cpp -- see op_kernels.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/op_kernels.h"

#include <functional>

#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile::testing {

using ir::OpKind;

namespace {

constexpr int64_t kRows = 8, kColumns = 24;
constexpr DType kAll[] = {DType::i1,  DType::i8,   DType::i16, DType::i32, DType::i64,
                          DType::f16, DType::bf16, DType::f32, DType::f64};

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    case DType::f32: return 4e-5;
    case DType::f64: return 1e-9;
    default: return 0;
  }
}

class Collector {
 public:
  /// Adds a kernel of x and z [8, 24], of type `from`, and the output y of type `to`, unless the IR's rules refuse it.
  using Body = std::function<void(KernelBuilder& b, Var x, Var z, Var y)>;
  void add(const std::string& name, DType from, DType to, const Body& body, double lo = -2, double hi = 2) {
    KernelBuilder b(name);
    b.schedule({{"num_warps", int64_t{2}}});
    Var x = b.view("x", from, {kRows, kColumns}), z = b.view("z", from, {kRows, kColumns});
    Var y = b.view("y", to, {kDynamic, kDynamic});
    try {
      body(b, x, z, y);
      kernels_.push_back({name,
                          b.finish(),
                          {{from, {kRows, kColumns}, lo, hi},
                           {from, {kRows, kColumns}, lo, hi},
                           {to, {2 * kRows, 2 * kColumns}, 0, 0, true}},
                          std::max(tolerance_of(from), tolerance_of(to))});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::compile_failed) throw;
    }
  }

  /// Adds a kernel of an operation on a tile and on a scalar beside it.
  using Value = std::function<Var(KernelBuilder& b, Var x, Var z)>;
  void add_elementwise(const std::string& name, DType from, DType to, const Value& value, double lo = -2,
                       double hi = 2) {
    add(
        name, from, to,
        [&](KernelBuilder& b, Var x, Var z, Var y) {
          Var left = b.load(x, {0, 0}, {kRows, kColumns}), right = b.load(z, {0, 0}, {kRows, kColumns});
          b.store(y, {0, 0}, value(b, left, right));
          Var first = b.load_scalar(x, {3, 5}), second = b.load_scalar(z, {3, 5});
          b.store_scalar(y, {kRows, kColumns}, value(b, first, second));
        },
        lo, hi);
  }
  /// Adds a kernel of an operation from a tile to a tile of any shape.
  void add_tile(const std::string& name, DType from, DType to,
                const std::function<Var(KernelBuilder& b, Var x)>& value) {
    add(name, from, to, [&](KernelBuilder& b, Var x, Var, Var y) {
      Var result = value(b, b.load(x, {0, 0}, {kRows, kColumns}));
      if (result.type().rank == 1) result = b.expand(result, 0);
      b.store(y, {0, 0}, result);
    });
  }

  std::vector<OpKernel> take() { return std::move(kernels_); }

 private:
  std::vector<OpKernel> kernels_;
};

std::string name_of(OpKind kind, DType dtype, const std::string& more = "") {
  return std::string(ir::op_info(kind).name) + more + "_" + std::string(dtype_name(dtype));
}

void add_arithmetic(Collector& all) {
  for (int k = static_cast<int>(OpKind::neg); k <= static_cast<int>(OpKind::fma); ++k) {
    const auto kind = static_cast<OpKind>(k);
    if (kind == OpKind::cast || kind == OpKind::bitcast || kind == OpKind::cmp || kind == OpKind::select) continue;
    const bool is_positive = kind == OpKind::log2 || kind == OpKind::sqrt || kind == OpKind::rsqrt ||
                             kind == OpKind::rcp || kind == OpKind::pow || kind == OpKind::div || kind == OpKind::rem ||
                             kind == OpKind::shl || kind == OpKind::shr;
    for (const DType dtype : kAll)
      all.add_elementwise(
          name_of(kind, dtype), dtype, dtype,
          [&](KernelBuilder& b, Var x, Var z) {
            if (kind == OpKind::fma) return b.fma(x, z, x);
            return ir::op_info(kind).num_operands == 1 ? b.unary(kind, x) : b.binary(kind, x, z);
          },
          is_positive ? 1 : -2, is_positive ? 4 : 3);
  }
  for (const DType dtype : kAll) {
    for (const Compare predicate : {Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge})
      all.add_elementwise(name_of(OpKind::cmp, dtype, std::to_string(static_cast<int>(predicate))), dtype, DType::i1,
                          [&](KernelBuilder& b, Var x, Var z) { return b.compare(predicate, x, z); });
    all.add_elementwise(name_of(OpKind::select, dtype), dtype, dtype, [&](KernelBuilder& b, Var x, Var z) {
      return b.select(b.compare(Compare::lt, b.cast(x, DType::f32), b.cast(z, DType::f32)), x, z);
    });
    for (const DType to : kAll) {
      const std::string pair = std::string(dtype_name(dtype)) + "_to";
      all.add_elementwise(
          name_of(OpKind::cast, to, "_" + pair), dtype, to, [&](KernelBuilder& b, Var x, Var) { return b.cast(x, to); },
          -100, 100);
      all.add_elementwise(name_of(OpKind::bitcast, to, "_" + pair), dtype, to,
                          [&](KernelBuilder& b, Var x, Var) { return b.bitcast(x, to); });
    }
  }
}

void add_shapes(Collector& all) {
  for (const DType dtype : kAll) {
    const auto add = [&](OpKind kind, const std::function<Var(KernelBuilder&, Var)>& value) {
      all.add_tile(name_of(kind, dtype), dtype, dtype, value);
    };
    all.add_elementwise(name_of(OpKind::constant, dtype), dtype, dtype, [&](KernelBuilder& b, Var x, Var) {
      Var one = is_float(dtype) ? b.constant(dtype, 1.0) : b.constant(dtype, int64_t{1});
      return x.type().is_tile() ? b.full({kRows, kColumns}, one) : one;
    });
    add(OpKind::broadcast, [](KernelBuilder& b, Var x) {
      return b.broadcast(b.expand(b.reshape(b.trans(x), {kRows * kColumns}), 0), {3, kRows * kColumns});
    });
    add(OpKind::reshape, [](KernelBuilder& b, Var x) { return b.reshape(x, {kColumns, kRows}); });
    add(OpKind::trans, [](KernelBuilder& b, Var x) { return b.trans(x); });
    add(OpKind::split, [](KernelBuilder& b, Var x) { return b.split(x).second; });
    add(OpKind::join, [](KernelBuilder& b, Var x) { return b.join(x, x); });
    add(OpKind::concat, [](KernelBuilder& b, Var x) { return b.concat(x, x); });
  }
  all.add_tile("iota_i32", DType::i32, DType::i32, [](KernelBuilder& b, Var) { return b.iota(37); });
  all.add_tile("rand_f32", DType::i32, DType::f32, [](KernelBuilder& b, Var x) {
    return b.rand(b.constant(DType::i64, int64_t{0x123456789}),
                  x + b.reshape(b.iota(kRows * kColumns), {kRows, kColumns}));
  });
}

void add_reductions(Collector& all) {
  for (const DType dtype : kAll)
    for (const int axis : {0, 1}) {
      const auto add = [&](OpKind kind, const std::string& which, const std::function<Var(KernelBuilder&, Var)>& value,
                           DType to) {
        all.add_tile(name_of(kind, dtype, "_" + which + std::to_string(axis)), dtype, to, value);
      };
      for (const std::string which : {"sum", "max", "min", "prod", "any"})
        add(
            OpKind::reduce, which, [&](KernelBuilder& b, Var x) { return b.reduce(x, axis, which); }, dtype);
      for (const std::string which : {"max", "min"}) {
        add(
            OpKind::argreduce, which, [&](KernelBuilder& b, Var x) { return b.argreduce(x, axis, which).first; },
            dtype);
        add(
            OpKind::argreduce, which + "_index",
            [&](KernelBuilder& b, Var x) { return b.argreduce(x, axis, which).second; }, DType::i32);
      }
      for (const std::string which : {"sum", "max"})
        add(
            OpKind::scan, which, [&](KernelBuilder& b, Var x) { return b.scan(x, axis, which); }, dtype);
    }
  for (const DType dtype : kAll)
    for (const bool is_transposed : {false, true})
      all.add(name_of(OpKind::dot, dtype, is_transposed ? "_trans" : ""), dtype, DType::f32,
              [&](KernelBuilder& b, Var x, Var z, Var y) {
                Var left = b.load(x, {0, 0}, {kRows, kColumns});
                Var right = is_transposed ? b.trans(b.load(z, {0, 0}, {kRows, kColumns}))
                                          : b.load(z, {0, 0}, {kColumns, kRows});
                b.store(y, {0, 0}, b.dot(left, right, b.full({kRows, kRows}, 1.0)));
              });
}

void add_memory(Collector& all) {
  for (const DType dtype : kAll) {
    const auto add = [&](OpKind kind, const Collector::Body& body) {
      all.add(name_of(kind, dtype), dtype, dtype, body);
    };
    add(OpKind::load, [](KernelBuilder& b, Var x, Var, Var y) {
      b.store(y, {1, 1}, b.load(x, {-1, 2}, {kRows, kColumns}, 1.0));
    });
    add(OpKind::store_add, [](KernelBuilder& b, Var x, Var, Var y) {
      b.store_add(y, {2, 3}, b.load(x, {0, 0}, {kRows, kColumns}));
    });
    add(OpKind::gather, [](KernelBuilder& b, Var x, Var, Var y) {
      b.store(y, {0, 0}, b.gather(x, b.iota(16) * 3 % 11, 5, kColumns, 1.0));
    });
    add(OpKind::scatter, [](KernelBuilder& b, Var x, Var, Var y) {
      b.scatter(y, b.cast(b.iota(8) * 3 - 2, DType::i64), 40, b.load(x, {0, 0}, {kRows, kColumns}));
    });
    add(OpKind::slice, [](KernelBuilder& b, Var x, Var z, Var y) {
      Var either = b.select(b.program_id(0) > 0, x, z);
      b.store(b.at(y, 0, 5), {7}, b.load(b.at(b.slice(either, {1, 2}, {4, 20}), 1, 3), {0}, {4}));
    });
    add(OpKind::for_loop, [](KernelBuilder& b, Var x, Var z, Var y) {
      Var tile = b.load(x, {0, 0}, {kRows, kColumns}), one = b.load_scalar(x, {1, 1});
      auto carried = b.for_loop(0, 3, 1, {tile, one}, [&](Var i, std::vector<Var> c) {
        auto next = b.if_then(
            i > 1,
            [&] {
              return std::vector{b.load(z, {0, 0}, {kRows, kColumns}), b.load_scalar(z, {i, i})};
            },
            [&] { return c; });
        return next;
      });
      b.store(y, {0, 0}, carried[0]);
      b.store_scalar(y, {kRows, kColumns}, carried[1]);
    });
    add(OpKind::prefetch, [](KernelBuilder& b, Var x, Var z, Var y) {
      b.prefetch(x, {3, 4});
      b.prefetch(z, {3, 400});
      b.store_scalar(y, {0, 0}, b.load_scalar(x, {3, 4}));
    });
  }
}

void add_synchronisation(Collector& all) {
  for (const DType dtype : kAll) {
    const auto add = [&](const std::string& name, const Collector::Body& body) {
      all.add(name + "_" + std::string(dtype_name(dtype)), dtype, dtype, body);
    };
    for (const std::string scope : {"cta", "gpu", "sys"}) {
      for (const std::string order : {"relaxed", "acquire", "release", "acq_rel"}) {
        for (const std::string kind : {"add", "max", "min", "exchange"})
          add("atomic_" + kind + "_" + order + "_" + scope, [&](KernelBuilder& b, Var x, Var, Var y) {
            b.store_scalar(y, {0, 0}, b.load_scalar(x, {0, 0}));
            b.store_scalar(y, {0, 1}, b.atomic(kind, y, {0, 0}, b.load_scalar(x, {0, 1}), order, scope));
          });
        add("cas_" + order + "_" + scope, [&](KernelBuilder& b, Var x, Var, Var y) {
          Var old = b.load_scalar(y, {0, 0});
          b.store_scalar(y, {0, 1}, b.cas(y, {0, 0}, old, b.load_scalar(x, {0, 1}), order, scope));
        });
      }
      for (const std::string order : {"relaxed", "acquire"})
        add("atomic_load_" + order + "_" + scope, [&](KernelBuilder& b, Var x, Var, Var y) {
          b.store_scalar(y, {0, 0}, b.atomic_load(x, {1, 2}, order, scope));
        });
      for (const std::string kind : {"set", "add"})
        add("signal_" + kind + "_" + scope, [&](KernelBuilder& b, Var x, Var, Var y) {
          b.signal(kind, y, {0, 0}, b.load_scalar(x, {0, 1}), scope);
          b.wait_ge(y, {0, 0}, b.load_scalar(x, {0, 1}), scope);
        });
    }
  }
  for (const std::string scope : {"cta", "gpu", "sys"})
    all.add("fence_" + scope, DType::i32, DType::i32, [&](KernelBuilder& b, Var, Var, Var) { b.fence(scope); });
  for (const std::string kind : {"wait", "launch"})
    all.add("griddep_" + kind, DType::i32, DType::i32, [&](KernelBuilder& b, Var, Var, Var) { b.griddep(kind); });
}

}  // namespace

std::vector<OpKernel> every_op_kernel() {
  Collector all;
  add_arithmetic(all);
  add_shapes(all);
  add_reductions(all);
  add_memory(all);
  add_synchronisation(all);
  return all.take();
}

}  // namespace seqtile::testing
