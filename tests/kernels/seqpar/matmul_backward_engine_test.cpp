// tests/kernels/seqpar/matmul_backward_engine_test.cpp -- backward operations on a channel, with ragged shares.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/prepare.h"
#include "seqtile/ops/ranks.h"
#include "tests/support/ranks/sharded_layers.h"

using namespace seqtile;
using namespace seqtile::testing;
using kernels::seqpar::channel_options;
using Leading = kernels::seqpar::SequenceParallelLeadingMatmulBackward;
using Trailing = kernels::seqpar::SequenceParallelTrailingMatmulBackward;

namespace {

enum Seed : uint32_t { weight_seed = 11, other_weight_seed, rows_seed, gradient_seed, other_gradient_seed };

int64_t share_of(int rank, int ranks) { return first_of(rank + 1, kWide, ranks) - first_of(rank, kWide, ranks); }

Trailing trailing_op(int rank, int ranks) { return {.n = kHidden, .k = share_of(rank, ranks)}; }
Leading leading_op(int rank, int ranks) {
  const int64_t n = share_of(rank, ranks);
  return {.n = n, .n2 = n + 1, .k = kHidden, .accumulate = true};
}

/// Stores one configuration of each operation. It serves all lengths.
void store_choices(const Home& home, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    for (const char* kind : kKinds) {
      home.store_choice("tuning.db", trailing_op(rank, ranks).workload({ranks, kind}), 64);
      home.store_choice("tuning.db", leading_op(rank, ranks).workload({ranks, kind}), 64);
    }
}

void require_element(const char* name, int64_t length, int64_t row, int64_t column, float got, float want) {
  require(got == want, fmt::format("length {}: {}[{}, {}] is {}, not {}", length, name, row, column, got, want));
}

/// Requires want(row, column) for each element.
template <class Want>
void require_all(const char* name, int64_t length, Matrix& got, const Want& want) {
  for (int64_t row = 0; row < got.tensor.sizes[0]; ++row)
    for (int64_t column = 0; column < got.tensor.sizes[1]; ++column)
      require_element(name, length, row, column, got.at(row, column), want(row, column));
}

/// The sum of a(i) * b(i) over [0, count).
template <class A, class B>
float sum_over(int64_t count, const A& a, const B& b) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a(i) * b(i);
  return sum;
}

/// Both operations on one rank. A weight of the whole layer has the ranks' columns, or rows, in the order of the ranks.
class Backward {
 public:
  Backward(const Home& home, Fabric& fabric)
      : rank_(fabric.rank()),
        ranks_(fabric.world_size()),
        first_(first_of(rank_, kWide, ranks_)),
        width_(share_of(rank_, ranks_)),
        engine(home.engine(fabric)),
        channel(fabric, {.capacity = kCapacity}),
        trailing(*engine, trailing_op(rank_, ranks_), channel),
        leading(*engine, leading_op(rank_, ranks_), channel) {}

  void check_trailing(int64_t length) {
    const int64_t first = own_row(length, rank_), rows = own_row(length, rank_ + 1) - first;
    const Matrix dz(gradient_seed, first, rows, 0, kHidden), w(weight_seed, 0, kHidden, first_, width_),
        u(rows_seed, 0, length, first_, width_);
    Matrix du(length, width_), dw(kHidden, width_);
    trailing({.dz = dz.tensor, .w = w.tensor, .u = u.tensor, .du = du.tensor, .dw = dw.tensor}, length);
    const auto gradient = [](int64_t row, int64_t column) { return operand(gradient_seed, row, column); };
    require_all("du", length, du, [&](int64_t row, int64_t column) {
      return sum_over(
          kHidden, [&](int64_t i) { return gradient(row, i); },
          [&](int64_t i) { return operand(weight_seed, i, first_ + column); });
    });
    require_all("dw", length, dw, [&](int64_t row, int64_t column) {
      return sum_over(
          length, [&](int64_t i) { return gradient(i, row); },
          [&](int64_t i) { return operand(rows_seed, i, first_ + column); });
    });
  }

  /// The second weight of a rank has one more row. The gradient is zero in the column of that row.
  void check_leading(int64_t length) {
    const int64_t first = own_row(length, rank_), rows = own_row(length, rank_ + 1) - first;
    const Matrix x(rows_seed, first, rows, 0, kHidden), w(weight_seed, first_, width_, 0, kHidden),
        w2(other_weight_seed, first_, width_ + 1, 0, kHidden), dy(gradient_seed, 0, length, first_, width_);
    Matrix dy2(other_gradient_seed, 0, length, first_, width_ + 1), dx(rows, kHidden),
        dw(weight_seed, 0, width_, 0, kHidden), dw2(weight_seed, 0, width_ + 1, 0, kHidden);
    for (int64_t row = 0; row < length; ++row) dy2.at(row, width_) = 0;
    leading({.dy = dy.tensor,
             .dy2 = dy2.tensor,
             .w = w.tensor,
             .w2 = w2.tensor,
             .x = x.tensor,
             .before = dw.tensor,
             .before2 = dw2.tensor,
             .dx = dx.tensor,
             .dw = dw.tensor,
             .dw2 = dw2.tensor},
            length);
    const auto product = [&](Seed gradient, Seed weight, int64_t row, int64_t column) {
      return sum_over(
          kWide, [&](int64_t i) { return operand(gradient, row, i); },
          [&](int64_t i) { return operand(weight, i, column); });
    };
    require_all("dx", length, dx, [&](int64_t row, int64_t column) {
      return product(gradient_seed, weight_seed, first + row, column) +
             product(other_gradient_seed, other_weight_seed, first + row, column);
    });
    const auto gradient_of = [&](Seed gradient, int64_t row, int64_t column) {
      return operand(weight_seed, row, column) + sum_over(
                                                     length,
                                                     [&](int64_t i) { return operand(gradient, i, first_ + row); },
                                                     [&](int64_t i) { return operand(rows_seed, i, column); });
    };
    require_all("dw", length, dw, [&](int64_t row, int64_t column) { return gradient_of(gradient_seed, row, column); });
    require_all("dw2", length, dw2, [&](int64_t row, int64_t column) {
      return row == width_ ? operand(weight_seed, row, column) : gradient_of(other_gradient_seed, row, column);
    });
  }

 private:
  int64_t own_row(int64_t length, int rank) const { return first_of(rank, length, ranks_); }

  const int rank_, ranks_;
  const int64_t first_, width_;

 public:
  std::unique_ptr<Engine> engine;
  Channel channel;
  FusedHandle<Trailing> trailing;
  FusedHandle<Leading> leading;
};

}  // namespace

TEST_CASE("matmul backward: on a channel with ragged shares, any length, one launch each", "[seqpar][engine]") {
  const Home home;
  store_choices(home, 3);
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 3, [&](Fabric& fabric) {
      Backward backward(home, fabric);
      const std::vector<int64_t> lengths{0, 1, 2, 7, kCapacity, 64, 0, 131};
      const auto launches = backward.engine->counters().launches;
      for (const int64_t length : lengths) {
        backward.check_trailing(length);
        backward.check_leading(length);
      }
      require(backward.engine->counters().launches == launches + 2 * std::ssize(lengths), "one launch for each call");
      require(backward.channel.epoch() == 2 * lengths.size(), "an epoch for each call");
      backward.channel.check();
      const Matrix dz(9, kHidden), w(kHidden, 1), u(10, 1);
      Matrix du(10, 1), dw(kHidden, 1);
      require_error(fmt::format("argument 'dz': rank {} of 3 owns", fabric.rank()), [&] {
        backward.trailing({.dz = dz.tensor, .w = w.tensor, .u = u.tensor, .du = du.tensor, .dw = dw.tensor}, 10);
      });
      fabric.all_gather("");
    }));
}

TEST_CASE("matmul backward: static arguments that differ are one line on every rank", "[seqpar][engine]") {
  const Home home;
  store_choices(home, 2);
  const auto prepare = [&](auto op, Fabric& fabric) {
    Channel channel(fabric, {.capacity = 64, .staging_bytes = 1 << 16, .flags_per_source = 2});
    const auto engine = home.engine(fabric);
    const FusedHandle handle(*engine, op, channel);
  };
  check_all(on_ranks("threads", 2,
                     [&](Fabric& fabric) {
                       Trailing op = trailing_op(fabric.rank(), 2);
                       op.n += fabric.rank();
                       prepare(op, fabric);
                     }),
            "a fused operation: n is 25 on rank 1 and 24 on rank 0");
  check_all(on_ranks("threads", 2,
                     [&](Fabric& fabric) {
                       Leading op = leading_op(fabric.rank(), 2);
                       if (fabric.rank()) op.n2 = 0;
                       prepare(op, fabric);
                     }),
            "a fused operation: weights is 1 on rank 1 and 2 on rank 0");
}
