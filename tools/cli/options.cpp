// tools/cli/options.cpp -- see options.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "autotune/text/seconds.h"
#include "cache/database/files.h"
#include "cache/database/schema.h"
#include "jit/base/counted.h"
#include "jit/base/descriptor.h"
#include "jit/base/nearest_word.h"
#include "seqtile/device.h"
#include "seqtile/op.h"
#include "tools/cli/errors.h"
#include "tools/cli/file_conflicts.h"
#include "tools/cli/key_text.h"
#include "tools/cli/output.h"
#include "tools/cli/parse_number.h"

namespace seqtile::cli {
namespace {

constexpr int kThreadsPerCore = 4;       ///< more threads per core are taken for a slip
constexpr size_t kApplicationIdAt = 68;  ///< offset in the header of an SQLite file

void refuse_kind(const std::string& flag, const std::string& path, std::filesystem::file_type type,
                 const std::string& advice) {
  if (type == std::filesystem::file_type::regular) return;
  const bool is_folder = type == std::filesystem::file_type::directory;
  bad_input(fmt::format("{} {}: is {}not a regular file; {}", flag, path, is_folder ? "a folder, " : "", advice));
}

/// The nearest part of `folder` that exists.
std::string existing_part(std::string folder) {
  std::error_code error;
  while (!std::filesystem::exists(folder, error) && cache::parent_folder(folder) != folder)
    folder = cache::parent_folder(folder);
  return folder;
}

/// Refuses a path whose folder is absent. Only folders of the default paths are made, because the path may be mistyped.
void check_folder(const std::string& flag, const std::string& path, bool is_default) {
  const std::string folder = cache::parent_folder(path), part = existing_part(folder);
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  if (std::filesystem::exists(part, error) && !std::filesystem::is_directory(part, error))
    bad_input(fmt::format(
        "{} {}: {} is not a folder; {}", flag, path, part,
        is_default ? fmt::format("set SEQTILE_CACHE_DIR to a folder, or give {} FILE", flag) : "give another path"));
  if (!is_default)
    bad_input(fmt::format("{} {}: there is no folder {}; make it, or give another path", flag, path, folder));
}

/// Refuses a path that can never become a database of `schema`, as the caller's mistake.
void check_is_database(const std::string& flag, const std::string& path, bool is_default, const cache::Schema& schema) {
  std::error_code error;
  if (path.empty()) bad_input(fmt::format("{}: {}; give {} FILE", flag, cache::kNoDefaultPath, flag));
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::not_found) {
    if (std::filesystem::is_symlink(path, error))
      bad_input(fmt::format("{} {}: is a symbolic link to nothing; remove it, or give another path", flag, path));
    return check_folder(flag, path, is_default);
  }
  if (type == std::filesystem::file_type::none)
    throw Error(ErrorCode::io,
                fmt::format("{} {}: {}; check the folder and its permissions", flag, path, error.message()));
  refuse_kind(flag, path, type, "give the path of a database");
  if (std::filesystem::is_symlink(path, error))
    bad_input(fmt::format("{} {}: is a symbolic link, which is not followed; give the file it points to, {}", flag,
                          path, std::filesystem::canonical(path, error).string()));
  if (std::filesystem::file_size(path, error) == 0 || error) return;
  char header[kApplicationIdAt + 4] = {};
  std::ifstream(path, std::ios::binary).read(header, sizeof header);
  constexpr std::string_view kMagic{"SQLite format 3\0", 16};
  if (std::string_view(header, kMagic.size()) != kMagic && header[0] != 0)
    bad_input(fmt::format("{} {}: is not an SQLite database; give another path or restore a copy", flag, path));
  int32_t application = 0;  // big-endian
  for (const char c : std::string_view(header, sizeof header).substr(kApplicationIdAt))
    application = application << 8 | static_cast<unsigned char>(c);
  for (const cache::Schema& other : {cache::kTuningSchema, cache::kArtifactSchema})
    if (application == other.application_id && application != schema.application_id)
      bad_input(fmt::format("{} {}: is {}, not {}; --cache and --artifacts look swapped", flag, path, other.subject,
                            schema.subject));
}

/// Refuses one path for both stores. Each store would refuse the other's file, but only after a new file was made.
void check_stores_differ(const Options& options) {
  const std::string cache = tuning_path(options), artifacts = artifacts_path(options);
  if (cache.empty() || artifacts.empty()) return;
  if (is_same_path(cache, artifacts))
    bad_input(fmt::format("--cache {}, --artifacts {}: the same file is given twice; give each a file of its own",
                          cache, artifacts));
}

}  // namespace

void add_operation(CLI::App& app, Options& options) {
  app.add_option("operation", options.operation, "Name of the operation: seqtile operations lists them")->required();
  app.add_option("--set", options.set, "A static field of the operation; may be repeated")->type_name("KEY=VALUE");
}

void add_key(CLI::App& app, Options& options) {
  app.add_option("--dtype", options.dtype, "f32, bf16 or f16 (default: the model's, else f32)")->type_name("DTYPE");
  app.add_option("--threads", options.threads, "Threads of one launch (default: all cores)")->type_name("N[,N...]");
  app.add_option("--device", options.device, "Device that runs the kernels")->type_name("NAME")->capture_default_str();
}

void add_length(CLI::App& app, Options& options) {
  app.add_option("--length", options.length, "A sequence length")->type_name("N");
}

void add_lengths(CLI::App& app, Options& options) {
  app.add_option("--lengths", options.lengths, "Sequence lengths to cover, for example 1..4096")->type_name("A..B");
}

void add_model(CLI::App& app, Options& options) {
  app.add_option("--model", options.model, "Model description: a Hugging Face config.json, or its folder")
      ->type_name("FILE")
      ->required();
  add_strict_model(app, options.strict_model);
  app.add_option("--kv-lengths", options.kv_lengths,
                 "Key/value lengths of decode steps (default: 1 to the model's max_position_embeddings)")
      ->type_name("A..B");
}

void add_strict_model(CLI::App& app, bool& is_strict) {
  app.add_flag("--strict-model", is_strict,
               "Warnings about the model file are errors: fields that are not known, classes of other types");
}

void add_ranks(CLI::App& app, Options& options) {
  app.add_option("--ranks", options.ranks, "Number of ranks that share the work: tensor and sequence parallel")
      ->type_name("P");
  app.add_option("--fabric", options.fabric,
                 "Kind of ranks: threads, processes, sim:sm_80, sim:sm_90a, virtual:sm_80 or virtual:sm_90a (one "
                 "GPU for all: simulated, or --device cuda), cuda:sm_80 or cuda:sm_90a "
                 "(default: threads); mpi: the ranks that "
                 "mpirun has started (replay, prove, timeline)")
      ->type_name("F");
  app.add_option("--as-rank", options.as_rank)->group("");  // hidden from --help
}

void add_stores(CLI::App& app, Options& options) {
  app.add_option("--cache", options.cache, "tuning.db (default: in the user's cache folder)")->type_name("FILE");
  app.add_option("--artifacts", options.artifacts, "artifacts.db (default: in the user's cache folder)")
      ->type_name("FILE");
}

void add_json(CLI::App& app, Options& options) {
  app.add_flag("--json", options.json, "Print one JSON object on the last line of standard output");
}

double parse_seconds(const std::string& flag, const std::string& text) {
  const auto seconds = autotune::parse_seconds(text);
  if (!seconds) bad_input(fmt::format("{} '{}': not a time above 0: {}", flag, text, autotune::kSecondsForm));
  if (*seconds > autotune::kMaxSeconds)
    bad_input(fmt::format("{} {}: longer than {:.0f} s; write for example 2h", flag, text, autotune::kMaxSeconds));
  return *seconds;
}

DType parse_dtype_flag(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16 && *dtype != DType::f16))
    bad_input(fmt::format("--dtype {}: unknown; use f32, bf16 or f16{}", text,
                          did_you_mean(text, {"f32", "bf16", "f16", "float32", "bfloat16", "float16"})));
  return *dtype;
}

namespace {

/// 1e2 and 100.0 are the whole number 100, as in a trace.
autotune::FieldValue number_of(double real) {
  constexpr double kExact = 9007199254740992;  // 2^53: each whole number up to here is a double
  if (std::trunc(real) == real && std::abs(real) <= kExact) return static_cast<int64_t>(real);
  return real;
}

}  // namespace

autotune::Fields parse_fields(const std::string& flag, const std::vector<std::string>& items) {
  autotune::Fields fields;
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == item.size())
      bad_input(fmt::format("{} '{}': not KEY=VALUE; write for example {} n=4096", flag, item, flag));
    const std::string name = item.substr(0, equals), text = item.substr(equals + 1);
    if (text.find('=') != std::string::npos)
      bad_input(fmt::format("{} '{}': one {} gives one field; write {} for each", flag, item, flag, flag));
    if (fields.contains(name)) bad_input(fmt::format("{} {}: the field is given twice", flag, name));
    int64_t integer = 0;
    double real = 0;
    if (parse_number(text, integer)) fields.set(name, integer);
    else if (parse_number(text, real)) fields.set(name, number_of(real));
    else fields.set(name, text);
  }
  return fields;
}

namespace {

std::vector<int> host_thread_counts(const Options& options, const std::string& example) {
  const int cores = cores_available(), limit = kThreadsPerCore * cores;
  if (options.threads.empty()) return {cores};
  std::vector<int> counts;
  for (size_t at = 0; at <= options.threads.size();) {
    const size_t comma = std::min(options.threads.find(',', at), options.threads.size());
    const std::string text = options.threads.substr(at, comma - at);
    at = comma + 1;
    int count = 0;
    if (!parse_number(text, count) || count < 1 || count > limit)
      bad_input(
          fmt::format("--threads {}: '{}' is not a whole number from 1 to {}, {} times the {} of this process; "
                      "write for example {}",
                      options.threads, text, limit, kThreadsPerCore, counted(cores, "core"), example));
    if (std::find(counts.begin(), counts.end(), count) != counts.end())
      bad_input(fmt::format("--threads {}: {} is given twice; give each count once", options.threads, count));
    counts.push_back(count);
  }
  return counts;
}

int one_host_thread_count(const Options& options) {
  const std::vector<int> counts = host_thread_counts(options, "--threads 1");
  if (counts.size() != 1)
    bad_input(fmt::format("--threads {}: {} counts given, this command takes one; run it once for each",
                          options.threads, counts.size()));
  return counts[0];
}

}  // namespace

std::vector<int> thread_counts(const Options& options) {
  const std::vector<int> counts = host_thread_counts(options, "1 or 1,2");
  return options.device == "cpu" ? counts : std::vector<int>{1};
}

int one_thread_count(const Options& options) {
  if (options.device != "cpu") return thread_counts(options).front();
  return one_host_thread_count(options);
}

int host_threads(const Options& options) { return one_host_thread_count(options); }

CLI::Validator at_least_one() {
  const auto complaint = [](const std::string& text) {
    int64_t number = 0;
    return parse_number(text, number) && number > 0 ? std::string() : text + ": a whole number above 0 is wanted";
  };
  return {complaint, ""};
}

namespace {

/// The system's reason why no byte of the file can be read; empty if one can. Some files of /proc open and do not read.
std::string why_unreadable(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  return file.is_open() && ::read(file.get(), &byte, 1) >= 0 ? "" : std::strerror(errno);
}

}  // namespace

void check_is_file(const std::string& flag, const std::string& path, const std::string& advice) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::not_found)
    bad_input(fmt::format("{} {}: no such file; {}", flag, path, advice));
  if (type != std::filesystem::file_type::none) refuse_kind(flag, path, type, advice);
  if (const std::string reason = why_unreadable(path); !reason.empty())
    throw Error(ErrorCode::io, fmt::format("{} {}: cannot be read: {}; check its permissions", flag, path, reason));
}

autotune::Workload workload_of(const autotune::Registry& registry, const Options& options, int threads) {
  const autotune::OpDef& op = registry.find(options.operation);
  autotune::Workload workload;
  workload.operation = options.operation;
  workload.dtype = options.dtype.empty() ? DType::f32 : parse_dtype_flag(options.dtype);
  workload.threads = threads;
  workload.fields = parse_fields("--set", options.set);
  if (op.on_rank && !workload.fields.contains("world_size"))
    bad_input(fmt::format("{} runs on several ranks; give their number, for example --ranks 2", op.name));
  return op.normalize(workload);
}

std::unique_ptr<Device> open_device_of(const Options& options, int threads) {
  try {
    return open_device(options.device, threads);
  } catch (const Error& error) {
    const bool is_known = options.device == "cuda" || options.device.starts_with("cuda:");
    if (error.code() != ErrorCode::unsupported) throw;
    if (!is_known) throw Error(ErrorCode::unsupported, std::string("--device: ") + error.what());
    throw Error(ErrorCode::driver, error.what());
  }
}

std::unique_ptr<cache::TuningStore> open_store_of(const Options& options, StoreUse use) {
  const std::string path = tuning_path(options);
  check_stores_differ(options);
  check_is_database("--cache", path, options.cache.empty(), cache::kTuningSchema);
  const bool exists = std::filesystem::exists(path);
  if (!exists && (use == StoreUse::read_existing || use == StoreUse::check || use == StoreUse::edit))
    bad_input(fmt::format("--cache {}: no such file; {} makes one", path,
                          !options.model.empty()    ? next_step("prewarm", options)
                          : !options.length.empty() ? next_step("tune", options)
                                                    : "`seqtile prewarm` or `seqtile tune`"));
  const bool is_for_writing = use == StoreUse::write || use == StoreUse::edit;
  auto store =
      cache::TuningStore::open(path, is_for_writing ? cache::OpenMode::read_write : cache::OpenMode::read_only);
  const std::string status = store->status();
  if (store->counters().foreign_files > 0) bad_input(status);
  const bool is_usable = is_for_writing ? store->is_writable() : !could_not_read(*store);
  if (!is_usable && use != StoreUse::check) throw Error(ErrorCode::io, status);
  const bool is_new = !exists || std::filesystem::is_empty(path);  // a later writer makes a store of the empty file
  if (!status.empty() && (!is_new || is_for_writing || use == StoreUse::check)) warn(status);
  return store;
}

bool could_not_read(const cache::TuningStore& store) {
  const cache::Counters counters = store.counters();
  return counters.bad_files + counters.busy > 0;
}

void check_was_read(const cache::TuningStore& store) {
  if (!could_not_read(store)) return;
  const std::string status = store.status();  // the status lacks passing problems, such as a lock
  throw Error(ErrorCode::io,
              status.empty() ? store.path() + ": a part of the file could not be read; try again" : status);
}

std::unique_ptr<cache::ArtifactDb> open_artifacts_of(const Options& options) {
  const std::string path = artifacts_path(options);
  check_is_database("--artifacts", path, options.artifacts.empty(), cache::kArtifactSchema);
  auto artifacts = cache::ArtifactDb::open(path, cache::default_key_path());
  if (artifacts->counters().foreign_files > 0) bad_input(artifacts->status());
  if (!artifacts->status().empty()) warn(artifacts->status());
  return artifacts;
}

std::unique_ptr<cache::ArtifactDb> open_existing_artifacts_of(const Options& options) {
  const std::string path = artifacts_path(options);
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (!exists && !options.artifacts.empty() && !error)
    bad_input(fmt::format("--artifacts {}: no such file; {} makes one", path, next_build(options)));
  if (exists && std::filesystem::file_size(path, error) > 0) return open_artifacts_of(options);
  try {
    check_is_database("--artifacts", path, options.artifacts.empty(), cache::kArtifactSchema);
  } catch (const Error& problem) {
    // Records say all but which binaries are there, so that --cache alone is enough where no default path can be.
    if (exists || !options.artifacts.empty() || options.cache.empty()) throw;
    warn(problem.what());
  }
  return cache::ArtifactDb::open_empty(path, cache::default_key_path());
}

void check_stores_of(const Options& options) {
  if (!options.cache.empty()) open_store_of(options, StoreUse::peek);
  if (options.artifacts.empty()) return;
  std::error_code error;
  if (std::filesystem::exists(options.artifacts, error)) open_existing_artifacts_of(options);
  else check_is_database("--artifacts", options.artifacts, false, cache::kArtifactSchema);
}

std::string tuning_path(const Options& options) {
  return options.cache.empty() ? cache::default_tuning_path() : options.cache;
}

std::string artifacts_path(const Options& options) {
  return options.artifacts.empty() ? cache::default_artifacts_path() : options.artifacts;
}

}  // namespace seqtile::cli
