// include/seqtile/ops/ranks.h -- operations over ranks: products, norms and attention that communicate inside their
// launch.
// SPDX-License-Identifier: Apache-2.0
//
// Own rows are those of RowLayout::contiguous (seqtile/seqpar.h), perhaps none; attention and norms may have another
// layout. All ranks call the operations of a channel in the same order.
#pragma once
#include "seqtile/ops/linear.h"
#include "seqtile/ops/rows.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

// Linear layers of a sequence-parallel model communicate and compute in one launch.
//
// A column-parallel layer gathers the rows and computes its own columns of all of them; a row-parallel layer computes
// partial sums of all rows and gives each rank the sums of its own. docs/seqpar/guide.md explains how.

/// y = epilogue(gather(x) w^T); one to three weights, or a gated pair.
struct FusedAllgatherAndLinear {
  static constexpr std::string_view kName = "fused_allgather_and_linear";
  static constexpr std::array<std::string_view, 3> kShares = {"n", "n2", "n3"};
  Linear linear = {};  ///< n, n2, n3: columns of this rank's weights
  Ranks ranks = {};    ///< prepare() sets them

  /// Shapes: x [own rows, k]; the others as Linear has them.
  template <class T>
  using Tensors = Linear::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    CutTensors cut(v, {{"x", kOwnRows}});
    linear.tensors(cut, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }
  DType& storage() { return linear.dtype; }
  const DType& storage() const { return linear.dtype; }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// y = epilogue(sum over ranks of x w^T); one weight, or a gated pair. Bias and residual are added once. Partial sums
/// are rounded to `transport`, the owner's too, and added from rank 0 on: the same bits for every schedule that takes k
/// in the same slices. With `norm` a second output is rms_norm(y).
template <bool has_all_rows>
struct SummedLinear {
  static constexpr std::string_view kName = has_all_rows ? "linear_and_allreduce" : "fused_linear_and_reducescatter";
  static constexpr std::array<std::string_view, 1> kShares = {"k"};
  Linear linear = {};  ///< k: this rank's share
  DType transport = DType::f32;
  bool norm = false;
  double eps = 1e-5;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: x [length, k]; w.. [n, k]; bias.. and norm_weight [n]; residual, y and normed [own rows, n], or [length,
  /// n] where every rank has all rows. w3, bias3, y2 and y3 stay empty.
  template <class T>
  struct Tensors {
    T x, w, w2{}, w3{}, bias{}, bias2{}, bias3{}, residual{}, y, y2{}, y3{}, norm_weight{}, normed{};
    Linear::Tensors<T> of_linear() const { return {x, w, w2, w3, bias, bias2, bias3, residual, y, y2, y3}; }
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const Extent rows = has_all_rows ? kLength : kOwnRows;
    CutTensors cut(v, {{"residual", rows}, {"y", rows}});
    linear.tensors(cut, t);
    if (norm) v.weight("norm_weight", t.norm_weight, {linear.n});
    if (norm) v.output("normed", t.normed, {rows, linear.n});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }
  DType& storage() { return linear.dtype; }
  const DType& storage() const { return linear.dtype; }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// Own rows of the sum.
using FusedLinearAndReducescatter = SummedLinear<false>;
/// All rows on every rank, the same bits, and the residual the same on every rank: in one shot for few rows, else in
/// two.
using LinearAndAllreduce = SummedLinear<true>;

autotune::OpDef fused_allgather_and_linear();
autotune::OpDef fused_linear_and_reducescatter();
autotune::OpDef linear_and_allreduce();

// FusedAlltoallAndLinear goes from own heads of all rows to own rows, with the product behind attention.
//
// Attention with its heads cut over the ranks leaves a rank the columns of its heads, of all rows. The output product
// of a row needs all of its columns: they meet in the staging of the row's owner, each rank's beside those of the
// others, so that what is multiplied is a matrix as linear has it, and the bits are linear's.

/// Own rows of y = epilogue(x w^T) + residual, where every rank has the columns of its own heads of x: rank r those of
/// heads [floor(r heads / P), floor((r + 1) heads / P)). Where query heads share key heads and stay together, a group
/// of them is one head here: `heads` is then the number of key heads, `head_dim` that of a whole group.
struct FusedAlltoallAndLinear {
  static constexpr std::string_view kName = "fused_alltoall_and_linear";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, head_dim = 0, n = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool residual = false;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: x [length, own heads head_dim]; w [n, heads head_dim], whole on every rank; bias [n]; residual and y
  /// [own rows, n]. The other members stay empty.
  template <class T>
  using Tensors = Linear::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    CutTensors own(v, {{"x", kLength, own_extent(cut())}, {"residual", kOwnRows}, {"y", kOwnRows}});
    product().tensors(own, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  Heads cut() const { return {heads, head_dim, ranks.world_size}; }
  int64_t own_columns(int rank, bool) const { return cut().columns(rank); }
  /// The product of a rank's rows, with all columns.
  Linear product() const {
    return {
        .n = n, .k = heads * head_dim, .bias = bias, .activation = activation, .residual = residual, .dtype = dtype};
  }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef fused_alltoall_and_linear();

// FusedLinearAndAlltoall is the product in front of attention: own rows of x become own heads of all rows.
//
// Every rank multiplies its rows with all heads' weights. The columns of another rank's heads go straight from the
// registers to that rank's staging, chunk by chunk; own columns go to the outputs. Attention follows on own heads and
// all rows, then fused_alltoall_and_linear as the way back.

/// Own heads of y = x w^T + bias for queries, keys and values, all rows. KV groups are cut by the floor rule, with all
/// their query heads; with fewer KV heads than ranks query heads are, and every rank gets the KV heads that they read
/// (GroupedHeads).
struct FusedLinearAndAlltoall {
  static constexpr std::string_view kName = "fused_linear_and_alltoall";
  /// The operation has no such fields; the names are part of every identity that ranks have compared so far.
  static constexpr std::array<std::string_view, 3> kShares = {"n", "n2", "n3"};
  int64_t heads = 0, kv_heads = 0, head_dim = 0, k = 0;
  bool bias = false;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: x [own rows, k]; w [heads head_dim, k], w2 and w3 [kv_heads head_dim, k], of queries, keys and values,
  /// whole on every rank, and their biases [columns]; y [length, own heads head_dim], y2 and y3 [length, own KV heads
  /// head_dim]. The residual stays empty.
  template <class T>
  using Tensors = Linear::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const GroupedHeads own_heads = cut();
    const Extent queries = own_heads.is_even(false) ? own_heads.most_columns(false) : kOwnColumns;
    const Extent keys = own_heads.is_even(true) ? own_heads.most_columns(true) : kOwnKvColumns;
    CutTensors own(v, {{"x", kOwnRows}, {"y", kLength, queries}, {"y2", kLength, keys}, {"y3", kLength, keys}});
    product().tensors(own, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  GroupedHeads cut() const { return {heads, kv_heads, head_dim, ranks.world_size}; }
  int64_t own_columns(int rank, bool of_keys) const { return cut().columns(rank, of_keys); }
  /// The product of all heads.
  Linear product() const {
    const int64_t of_keys = kv_heads * head_dim;
    return {.n = heads * head_dim, .n2 = of_keys, .n3 = of_keys, .k = k, .bias = bias, .dtype = dtype};
  }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef fused_linear_and_alltoall();

// The products that communicate have backward passes of one launch a rank.
//
// A layer's backward pass is two products over the same rows: of the gradient with the weight, and with what the layer
// was given, summed over the rows. "Leading" is the column-parallel product at the start of a block, whose input is
// gathered; "trailing" the row-parallel one at its end. docs/seqpar/guide.md says what is sent and what hides it.

/// The backward pass of FusedLinearAndReducescatter: du = gather(dz) w and dw = gather(dz)^T u, by one gather. k is
/// this rank's share. Sums of dw are over the rows that there are, in f32: the own ones first, then those of rank + 1,
/// ...
struct SequenceParallelTrailingMatmulBackward {
  static constexpr std::string_view kName = "sequence_parallel_trailing_matmul_backward";
  static constexpr std::array<std::string_view, 1> kShares = {"k"};
  int64_t n = 0, k = 0;       ///< of the weight [n, k]
  bool accumulate = false;    ///< dw = before + the sums
  bool f32_gradient = false;  ///< dw is f32, whatever the operands are: main gradients
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: dz [own rows, n]; w, before and dw [n, k]; u and du [length, k]. `before` is there with `accumulate`, and
  /// may be dw itself, which an aborted call fills with NaN.
  template <class T>
  struct Tensors {
    T dz, w, u, before{}, du, dw;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dz", t.dz, {kOwnRows, n});
    v.weight("w", t.w, {n, k});
    v.input("u", t.u, {kLength, k});
    if (accumulate) v.input("before", t.before, {n, k}, {.dtype = dw_dtype()});
    v.output("du", t.du, {kLength, k});
    v.output("dw", t.dw, {n, k}, {.dtype = dw_dtype(), .in_place = {"before"}});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  DType dw_dtype() const { return f32_gradient ? DType::f32 : dtype; }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

/// The backward pass of FusedAllgatherAndLinear: own rows of dx = sum over ranks and weights of dy_i w_i, and dw_i =
/// dy_i^T gather(x). The products of several weights are one sum, in f32; each rank's is rounded to `transport` and
/// added from rank 0 on.
struct SequenceParallelLeadingMatmulBackward {
  static constexpr std::string_view kName = "sequence_parallel_leading_matmul_backward";
  static constexpr std::array<std::string_view, 3> kShares = {"n", "n2", "n3"};
  int64_t n = 0, n2 = 0, n3 = 0;  ///< columns of this rank's outputs; n2, n3: 0 where there is none
  int64_t k = 0;
  bool accumulate = false;
  bool f32_gradient = false;
  DType transport = DType::f32;
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: dy.. [length, n]; w.., before.. and dw.. [n, k]; x and dx [own rows, k]. `before` as above.
  template <class T>
  struct Tensors {
    T dy, dy2{}, dy3{}, w, w2{}, w3{}, x, before{}, before2{}, before3{}, dx, dw, dw2{}, dw3{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    if (n2) v.input("dy2", t.dy2, {kLength, n2});
    if (n3) v.input("dy3", t.dy3, {kLength, n3});
    v.weight("w", t.w, {n, k});
    if (n2) v.weight("w2", t.w2, {n2, k});
    if (n3) v.weight("w3", t.w3, {n3, k});
    v.input("x", t.x, {kOwnRows, k});
    if (accumulate) v.input("before", t.before, {n, k}, {.dtype = dw_dtype()});
    if (accumulate && n2) v.input("before2", t.before2, {n2, k}, {.dtype = dw_dtype()});
    if (accumulate && n3) v.input("before3", t.before3, {n3, k}, {.dtype = dw_dtype()});
    v.output("dx", t.dx, {kOwnRows, k});
    v.output("dw", t.dw, {n, k}, {.dtype = dw_dtype(), .in_place = {"before"}});
    if (n2) v.output("dw2", t.dw2, {n2, k}, {.dtype = dw_dtype(), .in_place = {"before2"}});
    if (n3) v.output("dw3", t.dw3, {n3, k}, {.dtype = dw_dtype(), .in_place = {"before3"}});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  DType dw_dtype() const { return f32_gradient ? DType::f32 : dtype; }
  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef sequence_parallel_trailing_matmul_backward();
autotune::OpDef sequence_parallel_leading_matmul_backward();

// A norm's gradients are of own rows; the gradient of its weight is summed over ranks in the launch.
//
// A norm's weight is whole on every rank and all rows add to its gradient. Each rank sends the sum over its own rows,
// one row in f32, to all others; every rank adds them up from rank 0 on and gets the same bits.

/// RmsNormBackward of own rows, with dweight summed over the rows of all ranks. A rank without rows takes part.
struct SequenceParallelRmsNormBackward {
  static constexpr std::string_view kName = "sequence_parallel_rms_norm_backward";
  static constexpr std::array<std::string_view, 0> kShares = {};
  RmsNormBackward norm = {};
  RowLayout layout = RowLayout::contiguous;  ///< how many rows a rank owns
  Ranks ranks = {};                          ///< prepare() sets them

  /// Shapes: as RmsNormBackward's, with own rows instead of the length. dx may be dy or residual.
  template <class T>
  using Tensors = RmsNormBackward::Tensors<T>;
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    CutTensors cut(v, {{"dy", kOwnRows}, {"x", kOwnRows}, {"residual", kOwnRows}, {"dx", kOwnRows}});
    norm.tensors(cut, t);
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }
  DType& storage() { return norm.dtype; }
  const DType& storage() const { return norm.dtype; }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef sequence_parallel_rms_norm_backward();

// Context attention works on a sequence whose rows are cut over ranks: one launch a rank.
//
// Context parallelism: q, k, v and the result stay with the rank that owns their rows (RowLayout). Keys and values
// go to every peer inside the launch; sums are kept in f32 from the first rank's keys to the last.

/// Own rows of softmax(scale q k^T) v over the keys of all ranks. A query meets the keys of its own rank first, then
/// those of rank + 1, rank + 2, ..., around: the bits depend on the tile, layout and number of ranks, and on nothing
/// else.
struct ContextAttentionForward {
  static constexpr std::string_view kName = "context_attention_forward";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;                        ///< a query sees the keys of the sequence up to its own row
  RowLayout layout = RowLayout::contiguous;  ///< zigzag: equal work for all ranks under a causal mask
  double scale = 0;                          ///< 0: 1 / sqrt(head_dim)
  bool lse = false;                          ///< a second output
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: q and out [own rows, heads head_dim]; k and v [own rows, kv_heads head_dim]; lse [own rows, heads] f32,
  /// the natural logarithm of each row's sum of exponentials. Own rows are num_rows() of the layout; what else goes by
  /// their place in the sequence, such as `Rope`, takes it from fill_positions().
  template <class T>
  struct Tensors {
    T q, k, v, out, lse{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("q", t.q, {kOwnRows, heads * head_dim});
    v.input("k", t.k, {kOwnRows, kv_heads * head_dim});
    v.input("v", t.v, {kOwnRows, kv_heads * head_dim});
    v.output("out", t.out, {kOwnRows, heads * head_dim});
    if (lse) v.output("lse", t.lse, {kOwnRows, heads}, {.dtype = DType::f32});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef context_attention_forward();

// ContextAttentionBackward computes attention's gradients over a sequence cut over ranks, in one launch.
//
// Every rank gets all rows of k, v, q and dout, and two numbers for each query of a head, inside the launch. It
// computes dq of its own queries over all keys, and dk and dv of its own keys over all queries, in f32 from the first
// rank's rows to the last, rounded once: no partial gradient travels, and nothing is added across ranks.

/// The backward pass of ContextAttentionForward. A rank's rows meet those of its own rank first, then those of
/// rank + 1, rank + 2, ..., around: the bits depend on the tile, layout and number of ranks, and on nothing else.
struct ContextAttentionBackward {
  static constexpr std::string_view kName = "context_attention_backward";
  static constexpr std::array<std::string_view, 0> kShares = {};
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  RowLayout layout = RowLayout::contiguous;  ///< as of the forward pass
  double scale = 0;                          ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;
  Ranks ranks = {};  ///< prepare() sets them

  /// Shapes: q, out, dout and dq [own rows, heads head_dim]; k, v, dk and dv [own rows, kv_heads head_dim]; lse
  /// [own rows, heads] f32. out and lse as the forward pass has written them.
  template <class T>
  struct Tensors {
    T q, k, v, out, lse, dout, dq, dk, dv;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const int64_t columns = heads * head_dim, kv_columns = kv_heads * head_dim;
    v.input("q", t.q, {kOwnRows, columns});
    v.input("k", t.k, {kOwnRows, kv_columns});
    v.input("v", t.v, {kOwnRows, kv_columns});
    v.input("out", t.out, {kOwnRows, columns});
    v.input("lse", t.lse, {kOwnRows, heads}, {.dtype = DType::f32});
    v.input("dout", t.dout, {kOwnRows, columns});
    v.output("dq", t.dq, {kOwnRows, columns});
    v.output("dk", t.dk, {kOwnRows, kv_columns});
    v.output("dv", t.dv, {kOwnRows, kv_columns});
  }
  autotune::Workload workload(const Ranks& on) const { return workload_on(*this, on); }

  ExchangeShape exchange(int64_t chunk_rows) const;
  static const Protocol& protocol(const autotune::Config& config);
};

autotune::OpDef context_attention_backward();

}  // namespace seqtile::kernels::seqpar
