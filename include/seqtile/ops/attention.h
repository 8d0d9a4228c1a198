// include/seqtile/ops/attention.h -- attention, forward and backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "seqtile/operation.h"

namespace seqtile::kernels {

struct Setting;

/// Rows of queries and of keys, of all sequences; sequences.
inline constexpr Extent kTokens{"tokens"}, kKvTokens{"kv_tokens"}, kBatch{"batch"};

/// softmax(scale q k^T) v over a batch of sequences with their own lengths, in one pass over the keys with a running
/// maximum and sum (Milakov and Gimelshein 2018; Dao et al., FlashAttention, NeurIPS 2022). The longest sequence
/// selects the bucket: `length` of a call is the largest number of queries of a sequence, in phase decode (one query
/// each) the largest number of keys.
struct AttentionForward {
  static constexpr std::string_view kName = "attention_forward";
  enum class Phase { prefill, extend, decode };  ///< as many keys as queries; more keys; one query
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  Phase phase = Phase::prefill;
  bool causal = true;   ///< query i sees keys 0 .. i + (number of keys - number of queries)
  int64_t window = 0;   ///< sees only the last `window` of these; 0: all
  double soft_cap = 0;  ///< scores become soft_cap * tanh(score / soft_cap); 0: left alone
  double scale = 0;     ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;

  /// Shapes: q, out [tokens, heads, head_dim]; k, v [kv_tokens, kv_heads, head_dim]; lse [tokens, heads] f32, the
  /// natural logarithm of each row's sum of exponentials. i32: q_start [batch + 1], kv_start [batch], kv_len [batch].
  /// Sequence i has the queries q_start[i] .. q_start[i + 1] - 1, which do not fall, and kv_len[i] keys from
  /// kv_start[i] on. Rows that belong to no sequence are left as they are. Errors, on CPUs: invalid_argument where
  /// these lead out of the tensors or a sequence is longer than `length`. On GPUs such rows are left out or are other
  /// rows.
  template <class T>
  struct Tensors {
    T q, k, v, q_start, kv_start, kv_len, out, lse;
    int64_t length = 0;  ///< longest sequence, see above
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const RowLists queries =
        is_decode() ? RowLists{.limit = kTokens, .least = 1, .most = 1} : RowLists{.limit = kTokens, .most = kLength};
    RowLists keys{.limit = kKvTokens, .counts = "kv_len"};
    if (is_decode()) keys.most = kLength;
    v.input("q", t.q, {kTokens, heads, head_dim});
    v.input("k", t.k, {kKvTokens, kv_heads, head_dim});
    v.input("v", t.v, {kKvTokens, kv_heads, head_dim});
    v.input("q_start", t.q_start, {kBatch + 1}, {.dtype = DType::i32, .borders = queries});
    v.input("kv_start", t.kv_start, {kBatch}, {.dtype = DType::i32, .spans = keys});
    v.input("kv_len", t.kv_len, {kBatch}, {.dtype = DType::i32});
    v.output("out", t.out, {kTokens, heads, head_dim});
    v.output("lse", t.lse, {kTokens, heads}, {.dtype = DType::f32});
  }
  autotune::Workload workload() const { return workload_of(*this); }
  int64_t group() const { return heads / kv_heads; }  ///< query heads that share a key head
  bool is_decode() const { return phase == Phase::decode; }

  /// A program takes block_m queries, in phase decode one of `splits` parts of the keys; block_n keys at a time.
  struct Tile {
    int64_t block_m = 0, splits = 0, block_n = 0;
    std::optional<int64_t> num_warps = {}, num_stages = {};
  };
  void parameters(auto& v, auto& tile) const {
    is_decode() ? v("splits", tile.splits) : v("block_m", tile.block_m);
    v("block_n", tile.block_n);
    v("num_warps", tile.num_warps);
    v("num_stages", tile.num_stages);
  }
  std::vector<Tile> tiles(const Setting& s) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const Tile& tile, const Setting& s) const;
  autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
  std::vector<autotune::GpuSample> gpu_samples(const Tile& tile, int64_t length) const;

  std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
  std::vector<autotune::Workspace> workspaces(const Tile& tile) const;
  std::vector<int64_t> symbols(int64_t length) const;
  double flops(std::span<const int64_t> symbols) const;
  double unread_bytes(std::span<const int64_t> symbols) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance(std::span<const int64_t> symbols) const;
};

autotune::OpDef attention_forward();

/// The backward pass of attention_forward over a batch of sequences (Dao et al., FlashAttention, NeurIPS 2022, with
/// every product that two programs need computed by both, so that nothing is added across programs): sums are in f32
/// and in an order that only the configuration decides. `length` of a call is the largest number of queries or of keys
/// of a sequence. With s = scale q k^T, p = exp(s - lse) and delta = sum(dout out) of a query:
///
///   dv = p^T dout     ds = p (dout v^T - delta)     dq = scale ds k     dk = scale ds^T q
struct AttentionBackward {
  static constexpr std::string_view kName = "attention_backward";
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;  ///< query i saw keys 0 .. i + (number of keys - number of queries)
  double scale = 0;    ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;

  /// Shapes: q, out, dout, dq [tokens, heads, head_dim]; k, v, dk, dv [kv_tokens, kv_heads, head_dim]; lse
  /// [tokens, heads] f32; out and lse as attention_forward has written them. i32: q_start [batch + 1],
  /// kv_start [batch], kv_len [batch]. Keys that belong to no sequence get no gradient written.
  template <class T>
  struct Tensors {
    T q, k, v, out, lse, dout, q_start, kv_start, kv_len, dq, dk, dv;
    int64_t length = 0;  ///< longest sequence, see above
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    const RowLists queries{.limit = kTokens, .most = kLength};
    const RowLists keys{.limit = kKvTokens, .counts = "kv_len", .most = kLength, .is_disjoint = true};
    v.input("q", t.q, {kTokens, heads, head_dim});
    v.input("k", t.k, {kKvTokens, kv_heads, head_dim});
    v.input("v", t.v, {kKvTokens, kv_heads, head_dim});
    v.input("out", t.out, {kTokens, heads, head_dim});
    v.input("lse", t.lse, {kTokens, heads}, {.dtype = DType::f32});
    v.input("dout", t.dout, {kTokens, heads, head_dim});
    v.input("q_start", t.q_start, {kBatch + 1}, {.dtype = DType::i32, .borders = queries});
    v.input("kv_start", t.kv_start, {kBatch}, {.dtype = DType::i32, .spans = keys});
    v.input("kv_len", t.kv_len, {kBatch}, {.dtype = DType::i32});
    v.output("dq", t.dq, {kTokens, heads, head_dim});
    v.output("dk", t.dk, {kKvTokens, kv_heads, head_dim});
    v.output("dv", t.dv, {kKvTokens, kv_heads, head_dim});
  }
  autotune::Workload workload() const { return workload_of(*this); }
  int64_t group() const { return heads / kv_heads; }  ///< query heads that share a key head

  /// The grid has two kinds of programs, told apart along its second axis. The first kv_heads of them take a block of
  /// keys and sum dk and dv over all queries that see it, of all query heads of the group. The others take a block of
  /// queries and sum dq over the keys that it sees. Both have blocks of `block` rows and go over the other side
  /// `block_n` rows at a time.
  struct Tile {
    int64_t block = 0, block_n = 0;
    std::optional<int64_t> num_warps = {}, num_stages = {};
  };
  void parameters(auto& v, auto& tile) const {
    v("block", tile.block);
    v("block_n", tile.block_n);
    v("num_warps", tile.num_warps);
    v("num_stages", tile.num_stages);
  }
  std::vector<Tile> tiles(const Setting& s) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const Tile& tile, const Setting& s) const;
  autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;

  std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
  std::vector<int64_t> symbols(int64_t length) const;
  double flops(std::span<const int64_t> symbols) const;
  bool fill(std::string_view arg, const Tensors<Tensor>& t) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance(std::span<const int64_t> symbols) const;
};

autotune::OpDef attention_backward();

}  // namespace seqtile::kernels
