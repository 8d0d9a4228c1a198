// kernels/attention/attention_backward.cpp -- see seqtile/ops/attention.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention/attention_backward_parts.h"
#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using attention::Sizes;
using autotune::SizeExpr;

// Of three more keys, so that among few keys no weight is far above 1.
double attention_backward_op::usual_lse(double num_keys) { return std::log(num_keys + 3) + 0.5; }

void AttentionBackward::fields(FieldVisitor& v) {
  attention::visit_fields(v, heads, kv_heads, head_dim, causal, scale);
}

/// One sequence, with as many keys as queries.
std::vector<int64_t> AttentionBackward::symbols(int64_t length) const { return {length, length, length, 1}; }

std::array<SizeExpr, 3> AttentionBackward::grid(const Tile& tile) const {
  return {SizeExpr{1, {{0, tile.block}}}, SizeExpr{kv_heads + heads}, SizeExpr{1, {{Sizes::kBatchSymbol}}}};
}

double AttentionBackward::flops(std::span<const int64_t> symbols) const {
  constexpr double kProducts = 5;  // at the least: what two programs compute both counts once
  return kProducts * 2 * static_cast<double>(head_dim * heads) *
         attention::visible_pairs(Sizes(symbols), causal, /*window=*/0);
}

/// Weights of generated problems add up to about 1.
bool AttentionBackward::fill(std::string_view arg, const Tensors<Tensor>& t) const {
  if (arg != "lse") return false;
  const int64_t batch = t.kv_len.sizes[0], queries = t.q.sizes[0] / batch, keys = t.k.sizes[0] / batch;
  for (int64_t token = 0; token < t.lse.sizes[0]; ++token) {
    const int64_t seen = causal ? std::max<int64_t>(1, token % queries + 1 + keys - queries) : keys;
    for (int64_t head = 0; head < heads; ++head)
      write_element(t.lse, token * t.lse.strides[0] + head * t.lse.strides[1],
                    attention_backward_op::usual_lse(static_cast<double>(seen)));
  }
  return true;
}

/// Weights and their gradients, of the order of 1 and of sqrt(head_dim) in all, are rounded to the storage format
/// before they meet keys, queries and gradients.
autotune::OpDef::Tolerance AttentionBackward::tolerance(std::span<const int64_t> symbols) const {
  const double spread = std::sqrt(static_cast<double>(group()));
  auto bound = kernels::tolerance(dtype, Sizes(symbols).kv_tokens + head_dim);
  bound.absolute *= 8 * spread;
  if (dtype != DType::f32) bound.absolute += 3 * storage_epsilon(dtype) * spread;
  return bound;
}

autotune::OpDef attention_backward() {
  return tile_kernel<AttentionBackward>("gradients of attention's queries, keys and values over a batch of sequences",
                                        2);
}

}  // namespace seqtile::kernels
