// tools/cli/served_operation.cpp -- see served_operation.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/served_operation.h"

#include <algorithm>

#include "autotune/engine/usable.h"
#include "autotune/keys.h"
#include "seqtile/op.h"

namespace seqtile::cli {

ServedOperation served_operation(const autotune::TuneRequest& request, int rank, int world_size) {
  ServedOperation operation{.label = request.label, .workload = request.workload};
  operation.rank = rank, operation.world_size = world_size;
  const std::string& name = request.workload.operation;
  if (name == "attention_forward") {
    const std::string phase = request.workload.fields.get_string("phase");
    operation.role = Role::attention;
    operation.phase = phase == "prefill" ? Phase::prefill : phase == "extend" ? Phase::extend : Phase::decode;
  } else if (request.label == "lm_head") {
    operation.role = Role::last_row;
  } else if (world_size > 1 && (name == "embedding" || name == "rms_norm" || name == "layer_norm")) {
    operation.role = Role::own_rows;
  }
  return operation;
}

int64_t covered_length(const autotune::Registry& registry, std::span<const ServedOperation> operations, Device& device,
                       cache::TuningStore& store) {
  int64_t covered = autotune::kMaxLength;
  for (const ServedOperation& operation : operations) {
    if (operation.role == Role::last_row || operation.phase == Phase::decode) continue;
    const autotune::OpDef& op = registry.find(operation.workload.operation);
    const auto key = autotune::make_key(op, operation.workload, device.info(), autotune::TuneOptions{}.policy);
    int64_t next = 1;
    for (const cache::Record& record : usable_records(op, operation.workload, device.target(), store, key))
      if (record.lo == next) next = record.hi + 1;
    const int64_t rows = next - 1;  // rows of one rank, for operations on own rows
    covered = std::min(covered, operation.role == Role::own_rows ? rows * operation.world_size : rows);
  }
  return covered;
}

}  // namespace seqtile::cli
