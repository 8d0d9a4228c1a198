// tests/support/ranks/fused_linear_run.h -- calls of products that communicate on several ranks, with expected results.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "kernels/seqpar/patterns/allgather_linear.h"
#include "kernels/seqpar/patterns/linear_reduce.h"
#include "seqtile/ops/linear.h"
#include "tests/support/protocol/flag_recorder.h"
#include "tests/support/ranks/rank_run.h"
#include "tests/support/ranks/sharded_rows.h"

namespace seqtile::testing::fused_linear {

using namespace seqtile::kernels;

constexpr int64_t kIdentity = 0x5a17;

struct Case {
  enum Kind { gather, reduce, two_shot, one_shot } kind;
  int world_size;
  int64_t n, k;  ///< sizes of one rank
  std::vector<int64_t> lengths;
  DType dtype = DType::f32;
  linear_op::Tile tile{"outer", 24, 32, 6, 16, 32};
  seqpar::GatherSchedule gathers{{16, 1}};
  seqpar::ReduceSchedule reduces{24, 5};
  DType transport = DType::f32;
  std::optional<autotune::Config> config = std::nullopt;  ///< configuration from which the tile and the schedule come

  seqpar::ReduceForm form() const {
    return kind == reduce     ? seqpar::ReduceForm::scatter
           : kind == two_shot ? seqpar::ReduceForm::two_shot
                              : seqpar::ReduceForm::one_shot;
  }
};

inline const Protocol& protocol_of(Case::Kind kind) {
  return kind == Case::reduce     ? reduce_scatter_protocol()
         : kind == Case::two_shot ? two_shot_protocol()
                                  : gather_protocol();
}

constexpr Case::Kind kKinds[] = {Case::gather, Case::reduce, Case::two_shot, Case::one_shot};

inline int64_t first_row(int rank, int64_t length, int world_size) { return rank * length / world_size; }

/// Operands are 0 or 1, mostly 0, so that all orders of the sums give the same bits, in bf16 too.
inline void fill_sparsely(const Tensor& tensor, std::mt19937& random) {
  for (int64_t i = 0; i < tensor.num_elements(); ++i) write_element(tensor, i, random() % 8 == 0);
}

/// The launches of a case with their tensors and expected results.
class Problem {
 public:
  explicit Problem(const Case& c)
      : case_(c), shape_{.n = c.n, .k = c.k, .dtype = c.dtype}, calls(static_cast<size_t>(c.world_size)) {
    std::mt19937 random(17);
    for (int rank = 0; rank < c.world_size; ++rank) {
      weights_.emplace_back(c.dtype, c.n, c.k);
      fill_sparsely(weights_.back().tensor, random);
    }
    for (const int64_t length : c.lengths)
      c.kind == Case::gather ? add_gather(length, random) : add_reduce(length, random);
  }

  std::unique_ptr<ir::Function> kernel() const {
    const Case& c = case_;
    KernelBuilder b(c.kind == Case::gather ? "allgather_linear" : "linear_reduce");
    if (c.config) schedule_for_gpu(b, *c.config);
    if (c.kind == Case::gather) seqpar::build_allgather_linear(b, shape_, c.tile, c.gathers, exchange());
    else seqpar::build_linear_reduce(b, shape_, c.tile, c.reduces, c.form(), c.transport, exchange());
    return b.finish();
  }

  seqpar::ExchangeShape exchange() const {
    const Case& c = case_;
    const seqpar::TransferSchedule& transfer = c.gathers.transfer;
    seqpar::ExchangeShape exchange =
        c.kind == Case::gather
            ? with_transfer(seqpar::gather_shape(shape_, c.world_size, transfer.chunk_rows), transfer.way)
            : seqpar::reduce_shape(partials(), c.form(), c.world_size, c.reduces.chunk_rows);
    exchange.identity = kIdentity;
    return exchange;
  }
  ChannelOptions channel(ChannelOptions options) const {
    const seqpar::ExchangeShape shape = exchange();
    options.capacity = capacity();
    options.staging_bytes = seqpar::staging_bytes(shape, capacity());
    options.flags_per_source = seqpar::flags_per_source(shape, capacity());
    return options;
  }

  /// True if each output of the first `epochs` is right or only NaN. A rank that is late in an epoch may already see
  /// there that a peer has failed in the next one.
  bool is_right_or_nan(size_t epochs) const {
    for (size_t i = 0; i < epochs * static_cast<size_t>(case_.world_size); ++i)
      if (!is_nan(i) && !difference_in(i).empty()) return false;
    return true;
  }
  /// The first epoch with a wrong element; the number of epochs if there is none.
  size_t first_wrong_epoch() const {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (!difference_in(i).empty()) return i / static_cast<size_t>(case_.world_size);
    return case_.lengths.size();
  }
  /// True if the outputs of all ranks but `other` are only NaN from `epoch` on.
  bool is_nan_from(size_t epoch, size_t other) const {
    const auto world_size = static_cast<size_t>(case_.world_size);
    for (size_t i = epoch * world_size; i < outputs_.size(); ++i)
      if (i % world_size != other && !is_nan(i)) return false;
    return true;
  }

  /// Empty, or the first wrong element.
  std::string difference() const {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (std::string text = difference_in(i); !text.empty()) return text;
    return "";
  }

 private:
  bool is_nan(size_t i) const { return testing::is_nan(outputs_[i].tensor); }
  std::string difference_in(size_t i) const {
    const auto rank = static_cast<int>(i % static_cast<size_t>(case_.world_size));
    const size_t epoch = i / static_cast<size_t>(case_.world_size);
    return difference_from([&](int64_t row, int64_t column) { return wanted(epoch, rank, row, column); },
                           outputs_[i].tensor, fmt::format("epoch {}, rank {}, y", epoch, rank));
  }

  static int64_t value(const autotune::SizeExpr& size, int64_t length) { return size.value({&length, 1}); }

  seqpar::PartialShape partials() const { return seqpar::partial_products(shape_, case_.tile, case_.transport, {}); }

  int64_t capacity() const { return *std::max_element(case_.lengths.begin(), case_.lengths.end()); }

  void add_gather(int64_t length, std::mt19937& random) {
    inputs_.emplace_back(case_.dtype, length, case_.k);
    fill_sparsely(inputs_.back().tensor, random);
    for (int rank = 0; rank < case_.world_size; ++rank) {
      const int64_t first = first_row(rank, length, case_.world_size);
      Tensor x = inputs_.back().tensor;
      x.data = static_cast<std::byte*>(x.data) + first * case_.k * dtype_bytes(case_.dtype);
      x.sizes[0] = first_row(rank + 1, length, case_.world_size) - first;
      outputs_.emplace_back(case_.dtype, length, case_.n);
      const auto r = static_cast<size_t>(rank);
      calls[r].push_back(
          {{value(seqpar::gather_programs(shape_, case_.tile, case_.gathers, case_.world_size), length), 1, 1},
           {x, weights_[r].tensor, outputs_.back().tensor},
           1});
    }
  }

  void add_reduce(int64_t length, std::mt19937& random) {
    for (int rank = 0; rank < case_.world_size; ++rank) {
      inputs_.emplace_back(case_.dtype, length, case_.k);
      fill_sparsely(inputs_.back().tensor, random);
      const int64_t own = first_row(rank + 1, length, case_.world_size) - first_row(rank, length, case_.world_size);
      outputs_.emplace_back(case_.dtype, case_.kind == Case::reduce ? own : length, case_.n);
      const auto r = static_cast<size_t>(rank);
      calls[r].push_back(
          {{value(seqpar::reduce_programs(partials(), case_.reduces, case_.form(), case_.world_size), length), 1, 1},
           {inputs_.back().tensor, weights_[r].tensor, outputs_.back().tensor},
           value(seqpar::num_counters(case_.reduces, case_.form(), case_.world_size), length),
           {},
           {length}});
    }
  }

  double wanted(size_t epoch, int rank, int64_t row, int64_t column) const {
    if (case_.kind == Case::gather)
      return product_at(inputs_[epoch].tensor, row, weights_[static_cast<size_t>(rank)].tensor, column);
    double sum = 0;
    if (case_.kind == Case::reduce) row += first_row(rank, case_.lengths[epoch], case_.world_size);
    for (size_t source = 0; source < weights_.size(); ++source)
      sum += product_at(inputs_[epoch * weights_.size() + source].tensor, row, weights_[source].tensor, column);
    return sum;
  }

  const Case case_;
  const Linear shape_;
  std::deque<RowMatrix> weights_, inputs_, outputs_;

 public:
  std::vector<std::vector<RankCall>> calls;
};

}  // namespace seqtile::testing::fused_linear
