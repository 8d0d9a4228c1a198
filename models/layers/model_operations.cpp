// models/layers/model_operations.cpp -- see seqtile/model.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/model.h"

#include <algorithm>

namespace seqtile::models {

std::vector<autotune::TuneRequest> model_operations(const Model& model, const ModelLengths& lengths, DType dtype,
                                                    int threads) {
  std::vector<autotune::TuneRequest> requests;
  Model typed = model;
  typed.dtype = dtype;
  for (Step& step : distinct_steps(typed)) {
    autotune::TuneRequest request{std::move(step.label), std::move(step.workload), lengths.lo, lengths.hi};
    request.workload.threads = threads;
    if (step.length == StepLength::logits) {
      request.lo = 1;  // a call of any tokens may ask for the logits of one row
      request.hi = std::min(lengths.hi, kMaxLogitRows);
    } else if (step.length == StepLength::keys) {
      request.lo = lengths.kv_lo;
      request.hi = lengths.kv_hi ? lengths.kv_hi : model.max_positions;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace seqtile::models
