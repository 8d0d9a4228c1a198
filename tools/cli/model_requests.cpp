// tools/cli/model_requests.cpp -- see model_requests.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_requests.h"

namespace seqtile::cli {

kernels::Model model_of(const Options& options) {
  check_is_file("--model", options.model, "give a Hugging Face config.json");
  return kernels::load_model(options.model);
}

std::vector<autotune::TuneRequest> model_requests(const autotune::Registry& registry, const Options& options) {
  const kernels::Model model = model_of(options);
  const LengthRange tokens = parse_lengths("--lengths", options.lengths);
  kernels::ModelLengths lengths{tokens.lo, tokens.hi};
  if (!options.kv_lengths.empty()) {
    const LengthRange keys = parse_lengths("--kv-lengths", options.kv_lengths);
    lengths.kv_lo = keys.lo;
    lengths.kv_hi = keys.hi;
  }
  const DType dtype = options.dtype.empty() ? model.dtype : parse_dtype_flag(options.dtype);
  std::vector<autotune::TuneRequest> requests;
  for (int threads : thread_counts(options))
    for (autotune::TuneRequest& request : kernels::model_operations(model, lengths, dtype, threads)) {
      request.workload = registry.find(request.workload.operation).normalize(request.workload);
      requests.push_back(std::move(request));
    }
  return requests;
}

}  // namespace seqtile::cli
