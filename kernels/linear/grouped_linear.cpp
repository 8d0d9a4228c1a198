// kernels/linear/grouped_linear.cpp -- see seqtile/ops/linear.h.
// SPDX-License-Identifier: Apache-2.0
//
// A program computes a block of one expert's rows. Expert e has the blocks from offsets[e] / block_m + e on: these
// numbers ascend, and there is room for the blocks of every expert in front of the next one's, so that a binary search
// finds a block's expert. A number without a block, in front of an expert's blocks or behind them, has a program that
// ends at once.
#include "seqtile/ops/linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using autotune::GpuSample;
using autotune::SizeExpr;
using linear_op::portable;
using linear_op::Tile;

namespace {

/// Rows of one expert.
struct Block {
  Var expert, first, end, exists;
};

class BlockFinder {
 public:
  BlockFinder(KernelBuilder& b, Var offsets, Var length, int64_t experts, int64_t block_m)
      : b_(b), offsets_(offsets), length_(length), experts_(experts), block_m_(block_m) {}

  Block find(Var block) const {
    Var expert = b_.constant(DType::i64, int64_t{0});
    for (auto step = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(experts_)) / 2); step > 0; step /= 2) {
      Var later = b_.min(expert + step, experts_ - 1);
      expert = b_.select(first_block(later) <= block, later, expert);
    }
    Var begin = offset(expert), index = block - first_block(expert);
    Var first = begin + index * block_m_, end = b_.min(first + block_m_, offset(expert + 1));
    Var is_of_expert = index >= 0;  // rows before offsets[0] are nobody's
    return {expert, first, end, b_.logical_and(is_of_expert, first < end)};
  }

 private:
  Var first_block(Var expert) const { return offset(expert) / block_m_ + expert; }
  /// The host does not read the offsets of a GPU.
  Var offset(Var expert) const {
    Var given = b_.cast(b_.load_scalar(offsets_, {expert}), DType::i64);
    return b_.is_for_gpu() ? b_.max(b_.min(given, length_), 0) : given;
  }

  KernelBuilder& b_;
  Var offsets_, length_;
  int64_t experts_, block_m_;
};

/// The part of a tensor of all experts that is one expert's.
Tensor part_of(const Tensor& tensor, int64_t expert) {
  Tensor part = tensor;
  part.data = static_cast<char*>(tensor.data) + expert * tensor.strides[0] * dtype_bytes(tensor.dtype);
  part.rank = 2;
  std::copy(tensor.sizes.begin() + 1, tensor.sizes.end(), part.sizes.begin());
  std::copy(tensor.strides.begin() + 1, tensor.strides.end(), part.strides.begin());
  return part;
}

}  // namespace

void GroupedLinear::fields(FieldVisitor& v) {
  constexpr int64_t kMostExperts = 4096;
  v.integer("experts", experts, 1, kMostExperts);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  v.choice("activation", activation, kActivationNames);
  v.flag("gated", gated);
}

Linear GroupedLinear::layer() const {
  return {.n = n, .k = k, .activation = activation, .gated = gated, .dtype = dtype};
}

std::vector<int64_t> GroupedLinear::typical_rows(int64_t length) const {
  // Steps of about 0.618 of the experts mix their order; a step without common divisor meets each of them once.
  int64_t step = std::max<int64_t>(1, experts * 618 / 1000);
  while (std::gcd(step, experts) != 1) ++step;
  std::vector<double> shares(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) shares[e * step % experts] = 1 / std::sqrt(static_cast<double>(1 + e));
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> rows;
  double before = 0;
  for (int64_t begin = 0; const double share : shares) {
    before += share;
    const int64_t end = std::min<int64_t>(length, std::llround(static_cast<double>(length) * before / all));
    rows.push_back(end - begin);
    begin = end;
  }
  return rows;
}

/// The tiles for an expert with the mean number of rows, with half of it, and with the most.
std::vector<Tile> GroupedLinear::tiles(const Setting& s) const {
  const std::vector<int64_t> rows = typical_rows(s.length);
  const int64_t mean = cdiv(s.length, experts), most = std::max(mean, std::ranges::max(rows));
  std::vector<Tile> tiles;
  std::set<Tile> seen;
  for (const int64_t of_expert : std::set<int64_t>{cdiv(mean, 2), mean, most})
    for (const Tile& tile : layer().tiles({of_expert, s.threads, portable(s.target)}))
      if (seen.insert(tile).second) tiles.push_back(tile);
  return tiles;
}

void GroupedLinear::refuse(const Target& target) const {
  throw Error(ErrorCode::unsupported,
              fmt::format("grouped_linear: no tile of {} products of [{}, {}] fits {}; take the CPU", dtype_name(dtype),
                          n, k, target.name));
}

/// Experts come one after the other, and all threads take their programs.
double GroupedLinear::predict_us(const Tile& tile, const Setting& s) const {
  if (s.target.is_gpu()) return autotune::predict_us(gpu_work(tile, s), s.target.gpu);
  const Linear one = layer();
  double us = 0;
  for (const int64_t rows : typical_rows(s.length))
    if (rows) us += one.predict_us(tile, {rows, 1, s.target});
  return us / s.threads;
}

autotune::GpuWork GroupedLinear::gpu_work(const Tile& tile, const Setting& s) const {
  const std::vector<int64_t> rows = typical_rows(s.length);
  int64_t busy = 0, blocks = 0;
  for (const int64_t of_expert : rows) busy += of_expert > 0, blocks += cdiv(of_expert, tile.block_m);
  autotune::GpuWork work = layer().gpu_work(tile, {cdiv(s.length, busy), s.threads, portable(s.target)});
  work.programs = static_cast<double>(blocks * cdiv(n, tile.block_n));
  work.memory_bytes *= static_cast<double>(busy);
  return work;
}

std::vector<GpuSample> GroupedLinear::gpu_samples(const Tile& tile, int64_t length) const {
  std::vector<GpuSample> samples = layer().gpu_samples(tile, std::min(length, tile.block_m));
  for (GpuSample& sample : samples) {
    GroupedLinear one = *this;
    const auto of_layer = op_of<Linear>(sample.workload);
    one.experts = 1, one.n = of_layer.n, one.k = of_layer.k;
    sample.workload = one.workload();
  }
  return samples;
}

autotune::Cost GroupedLinear::cost(int64_t length) const {
  const double rows = static_cast<double>(length), bytes = static_cast<double>(dtype_bytes(dtype));
  const double weights = layer().weights_per_loop() * static_cast<double>(n) * static_cast<double>(k);
  const double read = static_cast<double>(std::min(experts, length)) * weights + rows * static_cast<double>(k);
  return {2 * rows * weights, read * bytes, rows * static_cast<double>(n) * bytes};
}

std::array<SizeExpr, 3> GroupedLinear::grid(const Tile& tile) const {
  return {SizeExpr{1, {{0, tile.block_m}}, experts}, SizeExpr{cdiv(n, tile.block_n)}, SizeExpr{1}};
}

void GroupedLinear::build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target&) const {
  const Linear one = layer();
  const BlockFinder finder(b, v.offsets, b.size(v.x, 0), experts, tile.block_m);
  const Block block = finder.find(b.program_id(0));
  b.when(block.exists, [&] {
    const auto rows_of = [&](Var view) {
      return b.slice(view, {block.first, 0}, {block.end - block.first, b.size(view, 1)});
    };
    linear_op::Operands operands;
    operands.x = rows_of(v.x);
    operands.w.push_back(b.at(v.w, 0, block.expert));
    if (gated) operands.w.push_back(b.at(v.w2, 0, block.expert));
    operands.y.push_back(rows_of(v.y));
    Var row = b.constant(DType::i64, int64_t{0}), column = b.program_id(1) * tile.block_n;
    linear_op::store_result(b, one, operands, row, column, linear_op::multiply(b, one, tile, operands, row, column));
  });
}

bool GroupedLinear::fill(std::string_view arg, const Tensors<Tensor>& t) const {
  if (arg != "offsets") return false;
  int64_t at = 0;
  write_element(t.offsets, 0, 0);
  for (int64_t e = 0; const int64_t rows : typical_rows(t.x.sizes[0]))
    write_element(t.offsets, ++e * t.offsets.strides[0], static_cast<double>(at += rows));
  return true;
}

void GroupedLinear::reference(const Tensors<Tensor>& t, std::span<const int64_t> rows,
                              Tensors<std::vector<double>>& out) const {
  const Linear one = layer();
  for (int64_t e = 0; e < experts; ++e) {
    const auto begin = std::ranges::lower_bound(rows, read_index(t.offsets, e));
    const auto end = std::ranges::lower_bound(rows, read_index(t.offsets, e + 1));
    if (begin == end) continue;
    std::vector<std::vector<double>> x;
    for (auto row = begin; row != end; ++row) x.push_back(read_row(t.x, *row));
    Linear::Tensors<Tensor> weights{.x = {}, .w = part_of(t.w, e), .y = {}};
    if (gated) weights.w2 = part_of(t.w2, e);
    const auto y = linear_op::reference_epilogue(one, weights, std::span(begin, end),
                                                 linear_op::reference_products(one, weights, x))
                       .y;
    out.y.insert(out.y.end(), y.begin(), y.end());
  }
}

autotune::OpDef::Tolerance GroupedLinear::tolerance() const { return layer().tolerance(); }
double GroupedLinear::deviation() const { return 1 / std::sqrt(static_cast<double>(k)); }

autotune::OpDef grouped_linear() {
  autotune::OpDef op = tile_kernel<GroupedLinear>(
      "linear layers of experts, each for its rows: x [rows sorted by expert] w[expert]^T, gated or not");
  op.has_uneven_programs = true;
  op.cost = [](const autotune::Workload& w, std::span<const int64_t> symbols) {
    return op_of<GroupedLinear>(w).cost(symbols[0]);
  };
  return op;
}

}  // namespace seqtile::kernels
