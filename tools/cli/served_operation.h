// tools/cli/served_operation.h -- an operation of a model, prepared, and the calls that it takes part in.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>

#include "autotune/engine.h"
#include "autotune/tuner.h"
#include "cache/tuning_store.h"
#include "tools/cli/requests/request_plan.h"

namespace seqtile::cli {

/// Which calls an operation of a model takes part in, and with which length.
enum class Role {
  rows,       ///< every call, by its tokens
  own_rows,   ///< every call, by the tokens that the rank owns
  last_row,   ///< every call, for one row: the language model's head
  attention,  ///< calls of `phase`: by tokens, decode by keys
};

struct ServedOperation {
  std::string label;
  autotune::Workload workload;
  Role role = Role::rows;
  Phase phase = Phase::prefill;  ///< of Role::attention
  Handle handle;
  int rank = 0, world_size = 1;
  int64_t number = -1;  ///< on the ranks' channel; -1: it does not communicate

  /// The tokens of `call` that the rank owns.
  int64_t own_rows_in(const PlannedCall& call) const {
    return (rank + 1) * call.tokens / world_size - rank * call.tokens / world_size;
  }
  /// The bucketed length of this operation in `call`; 0: it takes no part.
  int64_t length_in(const PlannedCall& call) const {
    if (role == Role::rows) return call.tokens;
    if (role == Role::own_rows) return own_rows_in(call);
    if (role == Role::last_row) return 1;
    return call.phase != phase ? 0 : phase == Phase::decode ? call.kv : call.tokens;
  }
};

/// The operation of a request, not prepared yet.
ServedOperation served_operation(const autotune::TuneRequest& request, int rank = 0, int world_size = 1);

/// The longest length up to which every operation has records of all buckets: what a prefill chunk may have.
int64_t covered_length(const autotune::Registry& registry, std::span<const ServedOperation> operations, Device& device,
                       cache::TuningStore& store);

}  // namespace seqtile::cli
