// tools/cli/served_operation.cpp -- see served_operation.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/served_operation.h"

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
  } else if (world_size > 1 && (name == "embedding" || name == "rms_norm")) {
    operation.role = Role::own_rows;
  }
  return operation;
}

}  // namespace seqtile::cli
