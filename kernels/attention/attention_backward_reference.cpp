// kernels/attention/attention_backward_reference.cpp -- attention_backward in plain double loops.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/attention/attention_backward_parts.h"
#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {
namespace attention_backward_op {
namespace {

using attention::head_rows;
using Bound = AttentionBackward::Tensors<Tensor>;
using Values = std::vector<double>;

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Where a sequence lies, and which of its keys a query sees.
struct Sequence {
  Sequence(const Bound& t, int64_t i)
      : q_first(read_index(t.q_start, i)),
        q_len(read_index(t.q_start, i + 1) - q_first),
        kv_first(read_index(t.kv_start, i)),
        kv_len(read_index(t.kv_len, i)) {}
  /// Query i sees the keys below this one; key j is seen by the queries from this one on.
  int64_t end_of_keys(const AttentionBackward& s, int64_t i) const {
    return s.causal ? std::clamp<int64_t>(i + 1 + kv_len - q_len, 0, kv_len) : kv_len;
  }
  int64_t first_query(const AttentionBackward& s, int64_t j) const {
    return s.causal ? std::max<int64_t>(0, j - (kv_len - q_len)) : 0;
  }
  int64_t q_first, q_len, kv_first, kv_len;
};

ReferenceQueries queries_of(const Bound& t, const AttentionBackward& s, const Sequence& sequence, int64_t head) {
  ReferenceQueries queries;
  queries.q = head_rows(t.q, sequence.q_first, sequence.q_len, head);
  queries.dout = head_rows(t.dout, sequence.q_first, sequence.q_len, head);
  const Values out = head_rows(t.out, sequence.q_first, sequence.q_len, head);
  for (int64_t i = 0; i < sequence.q_len; ++i) {
    queries.lse.push_back(read_element(t.lse, (sequence.q_first + i) * t.lse.strides[0] + head * t.lse.strides[1]));
    queries.delta.push_back(
        dot(&queries.dout[static_cast<size_t>(i * s.head_dim)], &out[static_cast<size_t>(i * s.head_dim)], s.head_dim));
  }
  return queries;
}

/// Weight of a key for query i, and the gradient of its score.
struct Pair {
  Pair(const AttentionBackward& s, const ReferenceQueries& queries, int64_t i, const double* key, const double* value) {
    const double* q = &queries.q[static_cast<size_t>(i * s.head_dim)];
    const double* dout = &queries.dout[static_cast<size_t>(i * s.head_dim)];
    weight = std::exp(s.scale * dot(q, key, s.head_dim) - queries.lse[static_cast<size_t>(i)]);
    slope = weight * (dot(dout, value, s.head_dim) - queries.delta[static_cast<size_t>(i)]);
  }
  double weight, slope;
};

void add_scaled(double* sum, const double* row, double factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += factor * row[i];
}

/// dq of the rows of one sequence and head.
void add_queries(const Bound& t, const AttentionBackward& s, const Sequence& sequence, int64_t head,
                 std::span<const int64_t> rows, Values& dq) {
  const ReferenceQueries queries = queries_of(t, s, sequence, head);
  const Values k = head_rows(t.k, sequence.kv_first, sequence.kv_len, head / s.group());
  const Values v = head_rows(t.v, sequence.kv_first, sequence.kv_len, head / s.group());
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t i = rows[r] - sequence.q_first;
    if (i < 0 || i >= sequence.q_len) continue;
    double* sum = &dq[(r * static_cast<size_t>(s.heads) + static_cast<size_t>(head)) * static_cast<size_t>(s.head_dim)];
    add_reference_keys(s, queries, i, k, v, 0, sequence.end_of_keys(s, i), sum);
  }
}

/// What one query head adds to dk and dv of the rows of one sequence.
void add_keys(const Bound& t, const AttentionBackward& s, const Sequence& sequence, int64_t head,
              std::span<const int64_t> rows, Values& dk, Values& dv) {
  const ReferenceQueries queries = queries_of(t, s, sequence, head);
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t j = rows[r] - sequence.kv_first;
    if (j < 0 || j >= sequence.kv_len) continue;
    const Values key = head_rows(t.k, rows[r], 1, head / s.group());
    const Values value = head_rows(t.v, rows[r], 1, head / s.group());
    const size_t place =
        (r * static_cast<size_t>(s.kv_heads) + static_cast<size_t>(head / s.group())) * static_cast<size_t>(s.head_dim);
    add_reference_queries(s, queries, sequence.first_query(s, j), sequence.q_len, key.data(), value.data(), &dk[place],
                          &dv[place]);
  }
}

}  // namespace

void add_reference_keys(const AttentionBackward& s, const ReferenceQueries& queries, int64_t query, const Values& keys,
                        const Values& values, int64_t lo, int64_t hi, double* dq) {
  for (int64_t j = lo; j < hi; ++j) {
    const double* key = &keys[static_cast<size_t>(j * s.head_dim)];
    const Pair pair(s, queries, query, key, &values[static_cast<size_t>(j * s.head_dim)]);
    add_scaled(dq, key, s.scale * pair.slope, s.head_dim);
  }
}

void add_reference_queries(const AttentionBackward& s, const ReferenceQueries& queries, int64_t lo, int64_t hi,
                           const double* key, const double* value, double* dk, double* dv) {
  for (int64_t i = lo; i < hi; ++i) {
    const Pair pair(s, queries, i, key, value);
    add_scaled(dv, &queries.dout[static_cast<size_t>(i * s.head_dim)], pair.weight, s.head_dim);
    add_scaled(dk, &queries.q[static_cast<size_t>(i * s.head_dim)], s.scale * pair.slope, s.head_dim);
  }
}

}  // namespace attention_backward_op

void AttentionBackward::reference(const Tensors<Tensor>& t, std::span<const int64_t> rows,
                                  Tensors<std::vector<double>>& out) const {
  using namespace attention_backward_op;
  const auto below = [&](const Tensor& tensor) {
    return rows.first(static_cast<size_t>(std::ranges::lower_bound(rows, tensor.sizes[0]) - rows.begin()));
  };
  const auto query_rows = below(t.dq), key_rows = below(t.dk);
  out.dq.resize(query_rows.size() * static_cast<size_t>(heads * head_dim));
  for (auto* gradient : {&out.dk, &out.dv})
    gradient->resize(key_rows.size() * static_cast<size_t>(kv_heads * head_dim));
  for (int64_t i = 0; i < t.kv_len.sizes[0]; ++i) {
    const Sequence sequence(t, i);
    for (int64_t head = 0; head < heads; ++head) {
      add_queries(t, *this, sequence, head, query_rows, out.dq);
      add_keys(t, *this, sequence, head, key_rows, out.dk, out.dv);
    }
  }
}

}  // namespace seqtile::kernels
