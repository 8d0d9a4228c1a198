// kernels/attention/attention_reference.cpp -- attention_forward in plain double loops.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {
namespace attention {

std::vector<double> head_rows(const Tensor& tensor, int64_t first, int64_t count, int64_t head) {
  std::vector<double> rows;
  rows.reserve(static_cast<size_t>(count * tensor.sizes[2]));
  for (int64_t i = first; i < first + count; ++i)
    for (int64_t d = 0; d < tensor.sizes[2]; ++d)
      rows.push_back(read_element(tensor, i * tensor.strides[0] + head * tensor.strides[1] + d * tensor.strides[2]));
  return rows;
}

ReferenceRow reference_row(const AttentionForward& s, const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v, int64_t lo, int64_t hi) {
  std::vector<double> score;
  double top = -INFINITY, sum = 0;
  for (int64_t j = lo; j < hi; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) dot += q[d] * k[j * s.head_dim + d];
    dot *= s.scale;
    if (s.soft_cap > 0) dot = s.soft_cap * std::tanh(dot / s.soft_cap);
    score.push_back(dot);
    top = std::max(top, dot);
  }
  ReferenceRow row{std::vector<double>(static_cast<size_t>(s.head_dim), 0.0), -INFINITY};
  for (double& value : score) sum += value = std::exp(value - top);
  for (int64_t j = lo; j < hi; ++j)
    for (int64_t d = 0; d < s.head_dim; ++d) row.out[d] += score[j - lo] / sum * v[j * s.head_dim + d];
  if (hi > lo) row.lse = top + std::log(sum);
  return row;
}

}  // namespace attention

void AttentionForward::reference(const Tensors<Tensor>& t, std::span<const int64_t> rows,
                                 Tensors<std::vector<double>>& out) const {
  using attention::head_rows;
  out.out.resize(rows.size() * static_cast<size_t>(heads * head_dim));
  out.lse.resize(rows.size() * static_cast<size_t>(heads));
  for (int64_t sequence = 0; sequence < t.kv_len.sizes[0]; ++sequence) {
    const int64_t q_first = read_index(t.q_start, sequence), q_end = read_index(t.q_start, sequence + 1);
    const int64_t kv_first = read_index(t.kv_start, sequence), kv_len = read_index(t.kv_len, sequence);
    const auto is_mine = [&](int64_t row) { return row >= q_first && row < q_end; };
    if (std::ranges::none_of(rows, is_mine)) continue;
    for (int64_t head = 0; head < heads; ++head) {
      const std::vector<double> k = head_rows(t.k, kv_first, kv_len, head / group());
      const std::vector<double> v = head_rows(t.v, kv_first, kv_len, head / group());
      for (size_t r = 0; r < rows.size(); ++r) {
        if (!is_mine(rows[r])) continue;
        const int64_t position = rows[r] - q_first + kv_len - (q_end - q_first);
        const int64_t hi = causal ? position + 1 : kv_len;
        const int64_t lo = window ? std::max<int64_t>(0, position + 1 - window) : 0;
        const auto row = attention::reference_row(*this, head_rows(t.q, rows[r], 1, head), k, v, lo, hi);
        const size_t slot = r * static_cast<size_t>(heads) + static_cast<size_t>(head);
        std::ranges::copy(row.out, out.out.begin() + static_cast<int64_t>(slot) * head_dim);
        out.lse[slot] = row.lse;
      }
    }
  }
}

}  // namespace seqtile::kernels
