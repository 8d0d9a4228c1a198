// kernels/attention/attention_forward.cpp -- see seqtile/ops/attention.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using attention::Sizes;
using autotune::SizeExpr;

namespace {

constexpr std::array<std::string_view, 3> kPhaseNames = {"prefill", "extend", "decode"};

}  // namespace

void attention::visit_heads(FieldVisitor& v, int64_t& heads, int64_t& kv_heads) {
  v.integer("heads", heads, 1, kMaxHeads);
  v.integer("kv_heads", kv_heads, 1, kMaxHeads);
  if (kv_heads > 0 && heads % kv_heads != 0)
    v.refuse("kv_heads",
             "must divide heads (" + std::to_string(heads) + "): equally many query heads share a key head");
}

void attention::visit_fields(FieldVisitor& v, int64_t& heads, int64_t& kv_heads, int64_t& head_dim, bool& causal,
                             double& scale) {
  visit_heads(v, heads, kv_heads);
  v.integer("head_dim", head_dim, 8, 512);
  if (head_dim % 8) v.refuse("head_dim", "must be a multiple of 8, such as 64, 96, 128 or 256");
  v.flag("causal", causal);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(head_dim));
  v.number("scale", scale, 1e-6, 1e3);
}

double attention::visible_pairs(const Sizes& sizes, bool causal, int64_t window) {
  const double batch = static_cast<double>(sizes.batch), queries = static_cast<double>(sizes.tokens) / batch;
  const double keys = static_cast<double>(sizes.kv_tokens) / batch;
  double seen = causal ? keys - (queries - 1) / 2 : keys;  // by the average query
  if (window) seen = std::min(seen, static_cast<double>(window));
  return queries * seen * batch;
}

void AttentionForward::fields(FieldVisitor& v) {
  attention::visit_fields(v, heads, kv_heads, head_dim, causal, scale);
  v.choice("phase", phase, kPhaseNames);
  v.integer("window", window, 0, int64_t{1} << 30);
  if (window && !causal) v.refuse("window", "needs causal = 1: the window ends at the query's own position");
  v.number("soft_cap", soft_cap, 0, 1e6);
}

/// A batch of one: chunked prefill is tuned with three times as many cached keys as new ones.
std::vector<int64_t> AttentionForward::symbols(int64_t length) const {
  return {length, is_decode() ? 1 : length, phase == Phase::extend ? 4 * length : length, 1};
}

std::array<SizeExpr, 3> AttentionForward::grid(const Tile& tile) const {
  const SizeExpr sequences{1, {{Sizes::kBatchSymbol}}};
  if (is_decode()) return {SizeExpr{tile.splits}, SizeExpr{kv_heads}, sequences};
  return {SizeExpr{1, {{0, tile.block_m}}}, SizeExpr{heads}, sequences};
}

double AttentionForward::flops(std::span<const int64_t> symbols) const {
  return 4 * static_cast<double>(head_dim * heads) * attention::visible_pairs(Sizes(symbols), causal, window);
}

/// Keys and values that no query's window reaches.
double AttentionForward::unread_bytes(std::span<const int64_t> symbols) const {
  const Sizes sizes(symbols);
  if (!window) return 0;
  const int64_t reached = window * sizes.batch + sizes.tokens;
  return static_cast<double>(2 * std::max<int64_t>(0, sizes.kv_tokens - reached) * kv_heads * head_dim *
                             dtype_bytes(dtype));
}

/// Weights are rounded to the storage format before they meet the values: its epsilon counts as an absolute error of
/// a weighted mean.
autotune::OpDef::Tolerance AttentionForward::tolerance(std::span<const int64_t> symbols) const {
  auto bound = kernels::tolerance(dtype, Sizes(symbols).kv_tokens + head_dim);
  if (dtype != DType::f32) bound.absolute += storage_epsilon(dtype) / 2;
  return bound;
}

autotune::OpDef attention_forward() {
  return tile_kernel<AttentionForward>("softmax(q k^T) v over a batch of sequences: prefill, extend, decode", 4);
}

}  // namespace seqtile::kernels
