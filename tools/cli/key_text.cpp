// tools/cli/key_text.cpp -- see key_text.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/key_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "autotune/engine/usable.h"
#include "autotune/text/command_line.h"
#include "cache/database/files.h"
#include "cache/key_file.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// True if rows can be added to the file; SQLite needs a writable folder for its journal.
bool can_be_written(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return errno == ENOENT && !path.empty();  // SQLite makes an absent file
  return access(path.c_str(), W_OK) == 0 && access(cache::parent_folder(path).c_str(), W_OK) == 0;
}

}  // namespace

autotune::Fields workload_fields(const cache::TuningKey& key) {
  const auto all = autotune::parse_config(key.workload_json);
  if (!all) return {{"workload", key.workload_json}};  // the workload is no JSON of fields
  autotune::Fields told;
  for (const auto& [name, value] : all->values())
    if (name != "threads" || key.device_kind == "cpu") told.set(name, value);
  return told;
}

std::string next_step(const std::string& command, const Options& options, const std::string& strategy) {
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
                             {"--strategy", strategy},
                             {"--cache", options.cache},
                             {"--artifacts", options.artifacts}});
  return "`" + autotune::command_line(command, flags) + "`";
}

std::string next_build(const Options& options) {
  Options taken;
  taken.device = options.device, taken.cache = options.cache, taken.artifacts = options.artifacts;
  return next_step("cache build", taken);
}

namespace {

/// "artifacts.db has 140 binaries under another key"; empty if it has none.
std::string text_of_others(const Options& options, cache::ArtifactDb& artifacts) {
  const int64_t others = artifacts.count_others();
  if (others == 0) return {};
  return fmt::format("{} has {} under another key", artifacts_path(options), format_counted(others, "binary"));
}

}  // namespace

std::string build_step(const Options& options, cache::ArtifactDb& artifacts) {
  const std::string status = artifacts.status();
  // Without a key no binary can be read or stored, whatever the file has.
  if (status.starts_with(cache::kKeyProblem)) return "first correct the " + status;
  if (const std::string step = new_file_step(options, artifacts); !step.empty()) return step;
  const std::string others = text_of_others(options, artifacts);
  return (others.empty() ? "run " : others + "; run ") + next_build(options);
}

std::string new_file_step(const Options& options, cache::ArtifactDb& artifacts) {
  const std::string path = artifacts_path(options);
  if (can_be_written(path)) return {};
  Options renewed = options;
  renewed.artifacts = "NEW";
  const std::string step = "cannot be written: run " + next_build(renewed) + " for a new file";
  const std::string others = text_of_others(options, artifacts);
  if (others.empty()) return (path.empty() ? "the default of --artifacts" : path) + " " + step;
  return others + " and " + step + ", or set SEQTILE_CONFIG_DIR to a folder with that key";
}

}  // namespace seqtile::cli
