// tools/cli/served_operation.h -- a prepared operation of a model, and its length in each call.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>

#include "seqtile/engine.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tools/cli/requests/request_plan.h"

namespace seqtile::cli {

/// The calls in which an operation of a model takes part, and its length there.
enum class Role {
  rows,      ///< all calls; the length is the number of tokens
  own_rows,  ///< all calls; the length is the number of tokens that the rank owns
  last_row,  ///< all calls; the length is 1: the language model's head
  /// Calls of `phase`; the length is the number of tokens, in decode the number of keys.
  attention,
};

struct ServedOperation {
  std::string label;
  autotune::Workload workload;
  Role role = Role::rows;
  Phase phase = Phase::prefill;  ///< for Role::attention
  Handle handle;
  int rank = 0, world_size = 1;
  int64_t op_id = -1;  ///< op id on the ranks' channel; -1: the operation does not communicate

  /// The number of tokens of `call` that the rank owns.
  int64_t own_rows_in(const PlannedCall& call) const {
    return (rank + 1) * call.tokens / world_size - rank * call.tokens / world_size;
  }
  /// The bucketed length of this operation in `call`; 0 if it takes no part.
  int64_t length_in(const PlannedCall& call) const {
    if (role == Role::rows) return call.tokens;
    if (role == Role::own_rows) return own_rows_in(call);
    if (role == Role::last_row) return 1;
    return call.phase != phase ? 0 : phase == Phase::decode ? call.kv : call.tokens;
  }
};

/// The operation of a request, before it is prepared.
ServedOperation served_operation(const autotune::TuneRequest& request, int rank = 0, int world_size = 1);

/// The longest length up to which all operations have records of all buckets. It is the limit of a prefill chunk.
int64_t covered_length(const autotune::Registry& registry, std::span<const ServedOperation> operations, Device& device,
                       cache::TuningStore& store);

}  // namespace seqtile::cli
