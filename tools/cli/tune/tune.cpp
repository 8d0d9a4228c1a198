// tools/cli/tune/tune.cpp -- `seqtile tune`: tunes one operation over a range of lengths.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/tune/tune_run.h"

namespace seqtile::cli {
namespace {

int tune_lengths(const Session& session, const TuneRunOptions& given) {
  TuneRunOptions options = given;
  set_rank_fields(session, options);
  if (options.length.empty() == options.lengths.empty()) bad_input("tune: give either --length N or --lengths A..B");
  const LengthRange range =
      options.lengths.empty() ? parse_lengths("--length", options.length) : parse_lengths("--lengths", options.lengths);
  std::vector<autotune::TuneRequest> requests;
  for (int threads : thread_counts(options))
    requests.push_back({"", workload_of(session.registry, options, threads), range.lo, range.hi});
  return tune_run(session, options, "tune", requests);
}

}  // namespace

void add_tune(CLI::App& app, Session& session) {
  auto options = std::make_shared<TuneRunOptions>();
  CLI::App& command = add_command(
      app, session, "tune", "Tune one operation and store the measurements",
      "  seqtile tune linear --set n=4096 --set k=4096 --dtype f32 --length 512 --cache tuning.db\n"
      "  seqtile tune rms_norm --set n=576 --lengths 1..4096 --threads 1,2 --budget 60s\n"
      "  seqtile tune attention_forward --set heads=32 --set kv_heads=8 --set head_dim=128 --set phase=prefill \\\n"
      "      --lengths 1..4096 --strategy halving\n"
      "  seqtile tune fused_allgather_and_linear --set n=512 --set k=512 --ranks 2 --fabric threads --lengths 1..1024",
      options, tune_lengths);
  add_operation(command, *options);
  add_key(command, *options);
  add_ranks(command, *options);
  add_length(command, *options);
  add_lengths(command, *options);
  add_stores(command, *options);
  add_tune_run(command, *options);
}

}  // namespace seqtile::cli
