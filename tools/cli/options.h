// tools/cli/options.h -- flags that mean the same in all commands, and the parsing of their values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"
#include "tools/cli/lengths.h"

namespace seqtile::cli {

class RankProcess;

struct Options {
  std::string operation;
  std::vector<std::string> set;  ///< "n=4096"
  std::string length, lengths, kv_lengths;
  std::string dtype;
  std::string threads;  ///< "1,2"
  std::string cache, artifacts, device = "cpu", model;
  std::string ranks, fabric;             ///< "2" and "threads"; see ranks.h
  std::string as_rank;                   ///< rank of a copy of this program; see rank_process.h
  std::shared_ptr<RankProcess> process;  ///< set if ranks are processes and this process is a rank
  bool strict_model = false;
  bool json = false;
};

void add_operation(CLI::App& app, Options& options);    ///< OP --set
void add_key(CLI::App& app, Options& options);          ///< --dtype --threads --device
void add_length(CLI::App& app, Options& options);       ///< --length
void add_lengths(CLI::App& app, Options& options);      ///< --lengths
void add_model(CLI::App& app, Options& options);        ///< --model --strict-model --kv-lengths
void add_strict_model(CLI::App& app, bool& is_strict);  ///< --strict-model
void add_ranks(CLI::App& app, Options& options);        ///< --ranks --fabric
void add_stores(CLI::App& app, Options& options);       ///< --cache --artifacts
void add_json(CLI::App& app, Options& options);         ///< --json

// Errors of all of these functions: invalid_argument with flag, value and limit or an example.
double parse_seconds(const std::string& flag, const std::string& text);  ///< "120s" "2m" "90" "500ms"
DType parse_dtype_flag(const std::string& text);
autotune::Fields parse_fields(const std::string& flag, const std::vector<std::string>& items);  ///< "k=v" items
/// The thread counts of --threads, or all cores that this process may use. Returns {1} on GPUs, whose launches need no
/// threads of the host.
std::vector<int> thread_counts(const Options& options);
int one_thread_count(const Options& options);  ///< for commands that take one thread count
int host_threads(const Options& options);      ///< --threads or all cores, on any device
/// A validator for counts. CLI::PositiveNumber accepts 0.5, and prints its range with 300 digits.
CLI::Validator at_least_one();

/// Refuses a path that cannot be read as a file: an absent path, a folder, a pipe, a device. `advice` ends the message.
void check_is_file(const std::string& flag, const std::string& path, const std::string& advice);

/// The workload of OP, --set and --dtype, checked and completed by the operation itself.
autotune::Workload workload_of(const autotune::Registry& registry, const Options& options, int threads);

/// Errors: driver (exit code 3) if the device is not in this machine; unsupported for an unknown name.
std::unique_ptr<Device> open_device_of(const Options& options, int threads);

enum class StoreUse {
  read_existing,
  peek,   ///< an absent file is an empty store
  check,  ///< the file must exist; a file that cannot be used is part of the answer
  write,
  edit,  ///< as write, but the file must exist
};
/// Opens tuning.db. Errors: invalid_argument for a path that is no tuning store (a folder, a link, another program's
/// database), for a path that --artifacts names too, and for an absent file that is to be read; io for a store that
/// cannot be used at all, or cannot be written if it is to be written.
std::unique_ptr<cache::TuningStore> open_store_of(const Options& options, StoreUse use);
/// Called between a command's text for people and its JSON, because JSON must be complete. Errors: io if a part of
/// `store` could not be read.
void check_was_read(const cache::TuningStore& store);
bool could_not_read(const cache::TuningStore& store);
/// Opens artifacts.db. Errors: invalid_argument if the file is no artifact store.
std::unique_ptr<cache::ArtifactDb> open_artifacts_of(const Options& options);
/// Opens artifacts.db for a command that only reads: an empty file stays as it is, and an absent default file is not
/// made. Errors: also invalid_argument if the path of --artifacts is absent.
std::unique_ptr<cache::ArtifactDb> open_existing_artifacts_of(const Options& options);
/// Checks the given paths for commands that leave both stores to an engine. Errors: as open_store_of().
void check_stores_of(const Options& options);
std::string tuning_path(const Options& options);
std::string artifacts_path(const Options& options);

}  // namespace seqtile::cli
