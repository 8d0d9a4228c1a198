// include/seqtile/ops/collectives.h -- collectives over ranks, one launch a rank.
// SPDX-License-Identifier: Apache-2.0
//
// Own rows are those of RowLayout::contiguous (seqtile/seqpar.h), perhaps none. Sums are taken in f32, from rank 0 on,
// and rounded once: every rank gets the same bits. All ranks call the operations of a channel in the same order.
#pragma once
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

/// The tensors of every collective.
template <class T>
struct CollectiveTensors {
  T x, y;
};

/// y [length, n] is the root's x [length, n]; x may be y, on other ranks it is not read.
struct Broadcast {
  static constexpr std::string_view kName = "broadcast";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t n = 0;
  DType dtype = DType::f32;
  int64_t root = 0;
  Ranks ranks = {};  ///< prepare() sets them

  template <class T>
  using Tensors = CollectiveTensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    v.output("y", t.y, {kLength, n}, {.in_place = {"x"}});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  int64_t most_columns() const { return n; }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// The exchange around attention: rows of all heads against all rows of some heads. Rank r owns heads
/// [floor(r heads / P), floor((r + 1) heads / P)). `to_heads`: x [own rows, heads head_dim] -> y [length, own heads
/// head_dim]; else the way back.
struct AllToAll {
  static constexpr std::string_view kName = "all_to_all";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, head_dim = 0;
  bool to_heads = true;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  template <class T>
  using Tensors = CollectiveTensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const Extent all = cut().all_columns(), own = own_extent(cut());
    v.input("x", t.x, {to_heads ? kOwnRows : kLength, to_heads ? all : own});
    v.output("y", t.y, {to_heads ? kLength : kOwnRows, to_heads ? own : all});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  Heads cut() const { return {heads, head_dim, ranks.world_size}; }
  int64_t own_columns(int rank, bool) const { return cut().columns(rank); }
  int64_t most_columns() const { return cut().most_columns(); }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

enum class RowCollective : uint8_t { all_gather, reduce_scatter, all_reduce };

/// The rows of all ranks, or their sums over ranks.
template <RowCollective kind>
struct CollectiveOfRows {
  static constexpr bool kIsGather = kind == RowCollective::all_gather,
                        kIsScatter = kind == RowCollective::reduce_scatter;
  static constexpr std::string_view kName = kIsGather ? "all_gather" : kIsScatter ? "reduce_scatter" : "all_reduce";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t n = 0;  ///< columns of a row
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  template <class T>
  using Tensors = CollectiveTensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kIsGather ? kOwnRows : kLength, n});
    if (kIsGather) v.output("y", t.y, {kLength, n}, {.in_place = {"x"}});
    else v.output("y", t.y, {kIsScatter ? kOwnRows : kLength, n});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  int64_t most_columns() const { return n; }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// y [length, n]: the rows of all ranks. x [own rows, n], which may be the rank's own rows of y, except in a graph.
using AllGather = CollectiveOfRows<RowCollective::all_gather>;
/// y [own rows, n]: the sums over ranks of x [length, n].
using ReduceScatter = CollectiveOfRows<RowCollective::reduce_scatter>;
/// y [length, n]: the sums over ranks of x [length, n]; in one shot for few rows, else in two.
using AllReduce = CollectiveOfRows<RowCollective::all_reduce>;

autotune::OpDef all_gather();
autotune::OpDef reduce_scatter();
autotune::OpDef all_reduce();
autotune::OpDef all_to_all();
autotune::OpDef broadcast();

}  // namespace seqtile::kernels::seqpar
