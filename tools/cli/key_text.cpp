// tools/cli/key_text.cpp -- see key_text.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/key_text.h"

#include "autotune/command_line.h"
#include "autotune/usable.h"

namespace seqtile::cli {
autotune::Fields workload_fields(const cache::TuningKey& key) {
  const auto all = autotune::parse_config(key.workload_json);
  if (!all) return {{"workload", key.workload_json}};  // a row that somebody else has written
  autotune::Fields told;
  for (const auto& [name, value] : all->values())
    if (name != "threads" || key.device_kind == "cpu") told.set(name, value);
  return told;
}

std::string next_step(const std::string& command, const Options& options) {
  std::vector<std::pair<std::string, std::string>> flags{{"", options.operation}};
  for (const std::string& field : options.set) flags.emplace_back("--set", field);
  const bool is_default_device = options.device == "cpu" || !options.ranks.empty();
  flags.insert(flags.end(), {{"--model", options.model},
                             {"--ranks", options.ranks},
                             {"--fabric", options.fabric},
                             {"--lengths", options.lengths},
                             {"--kv-lengths", options.kv_lengths},
                             {"--length", options.length},
                             {"--dtype", options.dtype},
                             {"--threads", options.device == "cpu" ? options.threads : ""},
                             {"--device", is_default_device ? "" : options.device},
                             {"--cache", options.cache},
                             {"--artifacts", options.artifacts}});
  return "`" + autotune::command_line(command, flags) + "`";
}

std::string next_build(const Options& options) {
  Options taken;
  taken.device = options.device, taken.cache = options.cache, taken.artifacts = options.artifacts;
  return next_step("cache build", taken);
}

}  // namespace seqtile::cli
