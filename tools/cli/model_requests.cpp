// tools/cli/model_requests.cpp -- see model_requests.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_requests.h"

#include <algorithm>
#include <fmt/format.h>

#include "jit/base/counted.h"
#include "seqtile/model.h"
#include "tools/cli/errors.h"
#include "tools/cli/model_text.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {
namespace {

/// The lengths and the number format that the command asks for.
struct ModelCalls {
  models::ModelLengths lengths;
  DType dtype;
};

ModelCalls calls_of(const models::Model& model, const Options& options) {
  const LengthRange tokens = parse_lengths("--lengths", options.lengths);
  ModelCalls calls{{tokens.lo, tokens.hi}, options.dtype.empty() ? model.dtype : parse_dtype_flag(options.dtype)};
  if (options.kv_lengths.empty()) return calls;
  const LengthRange keys = parse_lengths("--kv-lengths", options.kv_lengths);
  calls.lengths.kv_lo = keys.lo, calls.lengths.kv_hi = keys.hi;
  return calls;
}

using Requests = std::vector<autotune::TuneRequest>;

void normalize(const autotune::Registry& registry, Requests& requests) {
  for (autotune::TuneRequest& request : requests)
    request.workload = registry.find(request.workload.operation).normalize(request.workload);
}

bool same_work(const autotune::TuneRequest& a, const autotune::TuneRequest& b) {
  return a.workload.operation == b.workload.operation && a.workload.dtype == b.workload.dtype &&
         a.workload.threads == b.workload.threads && a.workload.fields.json() == b.workload.fields.json();
}

/// The distinct operations of all ranks. If the shares of ranks differ, the label names the first rank with the share.
Requests requests_of_ranks(const std::vector<Requests>& by_rank) {
  Requests requests;
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    const size_t first = requests.size();
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      const autotune::TuneRequest& request = by_rank[rank][i];
      const auto is_same = [&](const autotune::TuneRequest& other) { return same_work(other, request); };
      if (std::any_of(requests.begin() + static_cast<int64_t>(first), requests.end(), is_same)) continue;
      requests.push_back(request);
      if (rank > 0) requests.back().label += fmt::format(" (rank {})", rank);
    }
  }
  return requests;
}

/// Ranks that share a GPU have one launch, which has one n for all: refuses other shares of an operation over ranks.
void check_one_launch(const World& world, const models::Model& model, const std::vector<Requests>& by_rank) {
  if (!is_shared(world)) return;
  for (size_t rank = 1; rank < by_rank.size(); ++rank)
    for (size_t i = 0; i < by_rank[0].size(); ++i)
      if (by_rank[0][i].workload.fields.contains("world_size") && !same_work(by_rank[0][i], by_rank[rank][i]))
        bad_input(
            fmt::format("--ranks {}: ranks that share a GPU have one launch, but the share of {} on rank {} is another "
                        "than on rank "
                        "0; give a number that divides the model's {} ({} of keys), or another --fabric",
                        world.size, by_rank[0][i].label, rank, counted(model.heads, "head"), model.kv_heads));
}

}  // namespace

models::Model model_of(const Options& options) { return read_model_file(options.model, options.strict_model).model; }

std::vector<autotune::TuneRequest> model_requests(const autotune::Registry& registry, const Options& options) {
  const models::Model model = model_of(options);
  const ModelCalls calls = calls_of(model, options);
  const auto world = world_of(options);
  Requests requests;
  for (const int threads : thread_counts(options)) {
    Requests of_count;
    if (world) {
      std::vector<Requests> by_rank;
      for (int rank = 0; rank < world->size; ++rank)
        by_rank.push_back(rank_requests(registry, options, *world, rank, threads));
      check_one_launch(*world, model, by_rank);
      of_count = requests_of_ranks(by_rank);
    } else {
      of_count = models::model_operations(model, calls.lengths, calls.dtype, threads);
      normalize(registry, of_count);
    }
    requests.insert(requests.end(), of_count.begin(), of_count.end());
  }
  return requests;
}

std::vector<autotune::TuneRequest> rank_requests(const autotune::Registry& registry, const Options& options,
                                                 const World& world, int rank, int threads) {
  const models::Model model = model_of(options);
  const ModelCalls calls = calls_of(model, options);
  Requests requests =
      models::rank_operations(model, calls.lengths, calls.dtype, threads, {rank, world.size, world.fabric});
  normalize(registry, requests);
  return requests;
}

}  // namespace seqtile::cli
