// tools/cli/tune/explain_model.cpp -- `seqtile explain --model`: a model file, and the records that answer a length.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_requests.h"
#include "tools/cli/model_text.h"
#include "tools/cli/tune/explain.h"

namespace seqtile::cli {
namespace {

/// The options with --length as the number of tokens and of keys.
Options of_one_length(const Options& options) {
  Options one = options;
  one.lengths = one.kv_lengths = options.length;
  one.threads = std::to_string(one_thread_count(options));
  return one;
}

}  // namespace

int explain_model(const Session& session, const Options& options) {
  const models::ModelFile file = read_model_file(options);
  print_model(file);
  Json json = {{"model", model_json(file)}};
  bool is_recorded = true;
  if (!options.length.empty()) {
    const int64_t length = parse_length("--length", options.length);
    json["operations"] = Json::array();
    for (const autotune::TuneRequest& request : model_requests(session.registry, of_one_length(options))) {
      if (length < request.lo || length > request.hi) continue;  // logits of so many rows
      print_line("");
      print_line(request.label);
      Explained explained = explain_workload(session, options, request.workload, length);
      explained.json["label"] = request.label;
      is_recorded = is_recorded && explained.is_recorded;
      json["operations"].push_back(std::move(explained.json));
    }
  }
  if (options.json) print_json(json);
  return is_recorded ? kDone : kNo;
}

}  // namespace seqtile::cli
