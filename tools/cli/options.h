// tools/cli/options.h -- flags that mean the same in every command, and how their text is read.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autotune/op_def.h"
#include "cache/artifact_db.h"
#include "cache/tuning_store.h"
#include "jit/device/device.h"

namespace seqtile::cli {

class RankProcess;

struct Options {
  std::string operation;
  std::vector<std::string> set;  ///< "n=4096"
  std::string length, lengths, kv_lengths;
  std::string dtype;
  std::string threads;  ///< "1,2"
  std::string cache, artifacts, device = "cpu", model;
  std::string ranks, fabric;             ///< "2", "threads"; see ranks.h
  std::string as_rank;                   ///< of a copy of this program; see rank_process.h
  std::shared_ptr<RankProcess> process;  ///< where ranks are processes and this one is a rank
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

struct LengthRange {
  int64_t lo, hi;
};

// Errors of all of these: invalid_argument with flag, value and limit or an example.
int64_t parse_length(const std::string& flag, const std::string& text);
LengthRange parse_lengths(const std::string& flag, const std::string& text);  ///< "1..4096" or "512"
double parse_seconds(const std::string& flag, const std::string& text);       ///< "120s" "2m" "90" "500ms"
DType parse_dtype_flag(const std::string& text);
autotune::Fields parse_fields(const std::string& flag, const std::vector<std::string>& items);  ///< "k=v" items
/// As asked, else all cores this process may use. Launches on GPUs do not involve the host's threads: {1}.
std::vector<int> thread_counts(const Options& options);
int one_thread_count(const Options& options);  ///< for commands that serve one
int host_threads(const Options& options);      ///< --threads or all cores, whatever the device
/// For counts: CLI::PositiveNumber takes 0.5, and tells its range with 300 digits.
CLI::Validator at_least_one();

/// Refuses whatever cannot be read as a file: absent, a folder, a pipe, a device. `advice` ends the message.
void check_is_file(const std::string& flag, const std::string& path, const std::string& advice);

/// The workload of OP, --set and --dtype, checked and completed by the operation itself.
autotune::Workload workload_of(const autotune::Registry& registry, const Options& options, int threads);

/// Errors: driver (exit code 3) when the device is not in this machine; unsupported for a name that no device has.
std::unique_ptr<Device> open_device_of(const Options& options, int threads);

enum class StoreUse {
  read_existing,
  peek,   ///< an absent file is an empty store
  check,  ///< the file must exist; one that cannot be used is the caller's answer
  write,
  edit,  ///< as write, of a file that must exist
};
/// Opens tuning.db. Errors: invalid_argument for what is no tuning store (a folder, a link, another program's
/// database), a file that --artifacts names too, or an absent one that should be read; io when a store is there and
/// cannot be used at all, or should be written and cannot be.
std::unique_ptr<cache::TuningStore> open_store_of(const Options& options, StoreUse use);
/// Between what a command prints for people and its JSON: an answer for programs is whole, or an error. Errors: io when
/// a part of `store` could not be read.
void check_was_read(const cache::TuningStore& store);
bool could_not_read(const cache::TuningStore& store);
/// Opens artifacts.db. Errors: invalid_argument for what is no artifact store.
std::unique_ptr<cache::ArtifactDb> open_artifacts_of(const Options& options);
/// The same for a command that only asks: an empty file stays as it is, and the default one is not made where there is
/// none. Errors: also invalid_argument where --artifacts names no file.
std::unique_ptr<cache::ArtifactDb> open_existing_artifacts_of(const Options& options);
/// For commands that leave both files to an engine, before it is opened. Errors: as open_store_of(), of paths that are
/// given.
void check_stores_of(const Options& options);
std::string tuning_path(const Options& options);
std::string artifacts_path(const Options& options);

}  // namespace seqtile::cli
