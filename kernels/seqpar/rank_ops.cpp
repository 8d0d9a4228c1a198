// kernels/seqpar/rank_ops.cpp -- the table; see rank_ops.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/rank_ops.h"

#include "jit/base/forever.h"

#include <algorithm>

#include <fmt/format.h>

#include "jit/base/error.h"
#include "kernels/seqpar/exchange/heads.h"
#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/operations/alltoall_linear.h"
#include "kernels/seqpar/operations/collectives.h"
#include "kernels/seqpar/operations/context_attention.h"
#include "kernels/seqpar/operations/context_attention_backward.h"
#include "kernels/seqpar/operations/fused_linear.h"
#include "kernels/seqpar/operations/linear_alltoall.h"
#include "kernels/seqpar/operations/matmul_backward.h"
#include "kernels/seqpar/operations/norm_backward.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Workload;

namespace {

/// All forms of a sum have their places in a channel; a configuration uses one. It also says where the rows of a
/// gather stand.
ExchangeShape of_form(ExchangeShape shape, const Config* c) {
  if (!c) return shape;
  if (reduce_form(*c) == ReduceForm::one_shot) shape.first_phase = kOneShotPhase;
  return with_transfer(std::move(shape), transfer_of(*c));
}

template <ExchangeShape (*exchange)(const Workload&, int64_t)>
ExchangeShape in_chunks(const Workload& w, const Config* c) {
  return of_form(exchange(w, c ? c->get_int("chunk_rows") : kSmallestChunk), c);
}

ExchangeShape of_collective(const Workload& w, const Config* c) {
  return c ? in_chunks<collective_exchange>(w, c) : collective_exchange(w);
}

ExchangeShape of_norm(const Workload& w, const Config*) { return norm_backward_exchange(w); }

template <const Protocol& (*protocol)()>
const Protocol& always(const Config&) {
  return protocol();
}

const Protocol& of_gather(const Config& c) { return protocol_of_gather(transfer_of(c)); }

const Protocol& of_sum(const Config& c) { return protocol_of(reduce_form(c)); }

int64_t head_columns(const Workload& w, int rank, bool) { return Heads(w).columns(rank); }
int64_t grouped_columns(const Workload& w, int rank, bool of_keys) { return GroupedHeads(w).columns(rank, of_keys); }

}  // namespace

const std::vector<RankOp>& rank_ops() {
  const std::vector<std::string> rows{"n", "n2", "n3"}, columns{"k"}, none;
  static const auto& table = forever(std::vector<RankOp>{
      {"fused_allgather_and_linear", fused_allgather_and_linear, in_chunks<linear_exchange>, of_gather, rows},
      {"fused_linear_and_reducescatter", fused_linear_and_reducescatter, in_chunks<linear_exchange>, of_sum, columns},
      {"linear_and_allreduce", linear_and_allreduce, in_chunks<linear_exchange>, of_sum, columns},
      {"fused_linear_and_alltoall", fused_linear_and_alltoall, in_chunks<linear_alltoall_exchange>,
       always<gather_protocol>, rows, grouped_columns},
      {"fused_alltoall_and_linear", fused_alltoall_and_linear, in_chunks<alltoall_linear_exchange>,
       always<reduce_scatter_protocol>, none, head_columns},
      {"context_attention_forward", context_attention_forward, in_chunks<context_attention_exchange>, of_gather},
      {"context_attention_backward", context_attention_backward, in_chunks<context_backward_exchange>, of_gather},
      {"sequence_parallel_trailing_matmul_backward", sequence_parallel_trailing_matmul_backward,
       in_chunks<matmul_backward_exchange>, of_gather, columns},
      {"sequence_parallel_leading_matmul_backward", sequence_parallel_leading_matmul_backward,
       in_chunks<matmul_backward_exchange>, always<gather_beside_reduce_scatter_protocol>, rows},
      {"sequence_parallel_rms_norm_backward", sequence_parallel_rms_norm_backward, of_norm, always<gather_protocol>},
      {"all_gather", all_gather, of_collective, of_gather},
      {"reduce_scatter", reduce_scatter, of_collective, of_sum},
      {"all_reduce", all_reduce, of_collective, of_sum},
      {"all_to_all", all_to_all, of_collective, always<gather_protocol>, none, head_columns},
      {"broadcast", broadcast, of_collective, of_gather},
  });
  return table;
}

const RankOp& rank_op(std::string_view name) {
  const auto found = std::ranges::find(rank_ops(), name, &RankOp::name);
  if (found != rank_ops().end()) return *found;
  throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is no operation over ranks", name));
}

}  // namespace seqtile::kernels::seqpar
