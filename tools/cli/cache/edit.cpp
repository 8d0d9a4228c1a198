// tools/cli/cache/edit.cpp -- `seqtile cache rm|pin|unpin`: edits of rows, which have checksums and need a program.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/cache/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autotune/engine/usable.h"
#include "seqtile/op.h"
#include "tools/cli/cache/binaries.h"
#include "tools/cli/cache/records.h"
#include "tools/cli/tune/config_choice.h"

namespace seqtile::cli {
namespace {

struct EditOptions : Options {
  std::vector<std::string> config;
  bool dry_run = false, with_trials = false;
};

std::vector<cache::TrialRow> trials_of(cache::TuningStore& store, const cache::TuningKey& key,
                                       const cache::Record& record) {
  return store.trials(key, record.bucket_version, record.lo, record.hi);
}

/// The edit of one record: the row before, the row after, and a note for people.
struct Edit {
  cache::TuningKey key;
  cache::Record before, after;
  bool is_needed = true;
  std::string note;
};

/// Throws the reason if the store could not be written.
void check_written(bool is_written, const cache::TuningStore& store) {
  if (is_written) return;
  const std::string status = store.status();
  throw Error(ErrorCode::io, status.empty() ? store.path() +
                                                  ": nothing was changed: another process has it locked or has "
                                                  "changed it, or a line above names a record that cannot be stored; "
                                                  "try again, or choose others"
                                            : status);
}

/// Prints one line for each record. `done` is "removed", "pinned" or "unpinned".
void print_edits(const std::vector<Edit>& edits, const std::string& done, bool is_dry_run) {
  std::string title;
  for (const Edit& edit : edits) {
    if (const std::string own = key_title(edit.key); own != title) print_line(title = own);
    const std::string verb = !edit.is_needed ? "unchanged" : is_dry_run ? "would be " + done : done;
    print_line(fmt::format("  {} {} {} {}{}", format_bucket(edit.before.lo, edit.before.hi), verb,
                           cache::origin_name(edit.before.origin), format_config(edit.after.config_json), edit.note));
  }
}

/// The answer of all three commands: one line for each record, one for all records, and one of JSON.
int answer(const std::vector<Edit>& edits, const std::string& done, const EditOptions& options, const std::string& path,
           const std::string& more = {}) {
  print_edits(edits, done, options.dry_run);
  const auto changed = std::ranges::count_if(edits, &Edit::is_needed);
  if (edits.empty())
    print_line(fmt::format("no such record in {}{}; see `seqtile cache show {}`", path, more, options.operation));
  else
    print_line(fmt::format("{}: {} {}{}{}", path, format_counted(changed, "record"),
                           options.dry_run ? "would be " + done : done, more,
                           options.dry_run ? "; nothing was written" : ""));
  if (options.json) {
    Json list = Json::array();
    for (const Edit& edit : edits) {
      if (!edit.is_needed) continue;
      Json row = record_json(edit.key, edit.before);
      row["new_origin"] = done == "removed" ? Json(nullptr) : Json(std::string(cache::origin_name(edit.after.origin)));
      row["new_config"] = done == "removed" ? Json(nullptr) : json_or_text(edit.after.config_json);
      list.push_back(std::move(row));
    }
    print_json({{done, std::move(list)},
                {"unchanged", static_cast<int64_t>(edits.size()) - changed},
                {"dry_run", options.dry_run}});
  }
  return edits.empty() ? kNo : kDone;
}

std::unique_ptr<cache::TuningStore> open_for_edit(const EditOptions& options) {
  return open_store_of(options, options.dry_run ? StoreUse::read_existing : StoreUse::edit);
}

/// Puts `after` in the place of `before`: of all records, or of none where one is not what was read any more.
void replace_records(cache::TuningStore& store, const std::vector<Edit>& edits) {
  std::vector<cache::Replacement> rows;
  for (const Edit& edit : edits)
    if (edit.is_needed) rows.push_back({edit.key, edit.before, edit.after});
  if (!rows.empty()) check_written(store.replace(rows), store);
}

/// The chosen records of this release, which alone are edited.
struct OwnRecords {
  std::vector<KeyGroup> groups;
  int64_t others = 0;  ///< number of chosen records of other releases, which stay as they are

  std::string note() const {
    return others ? fmt::format(", {} of other releases left as they are", others) : std::string();
  }
};

OwnRecords own_records(const Session& session, const EditOptions& options, cache::TuningStore& store) {
  const auto op = std::ranges::find(session.registry.ops(), options.operation, [](const auto& o) { return o->name; });
  const std::string source = op == session.registry.ops().end() ? "" : (*op)->source_hash();
  OwnRecords own;
  for (KeyGroup& group : chosen_groups(session, options, store)) {
    const bool is_own_source = source.empty() || group.key.source_hash == source;
    own.others += static_cast<int64_t>(std::erase_if(group.records, [&](const cache::Record& record) {
      return !is_own_source || record.bucket_version != autotune::kBucketVersion;
    }));
    if (!group.records.empty()) own.groups.push_back(std::move(group));
  }
  return own;
}

int run_rm(const Session& session, const EditOptions& options) {
  const auto store = open_for_edit(options);
  std::vector<Edit> edits;
  std::vector<cache::KeyedRecord> rows;
  size_t trials = 0;
  const OwnRecords own = own_records(session, options, *store);
  for (const KeyGroup& group : own.groups)
    for (const cache::Record& record : group.records) {
      edits.push_back({group.key, record, record});
      rows.push_back({group.key, record});
      trials += trials_of(*store, group.key, record).size();
    }
  check_was_read(*store);
  if (!options.dry_run && !rows.empty()) check_written(store->remove_records(rows, options.with_trials), *store);
  const std::string more = edits.empty()
                               ? own.note()
                               : fmt::format(", {} {}{}", format_counted(static_cast<int64_t>(trials), "trial"),
                                             options.with_trials ? "with them" : "kept", own.note());
  return answer(edits, "removed", options, store->path(), more);
}

/// Pins the configuration of --config instead of the record's, after a check by the operation, its space and its
/// trials.
class ConfigChoice {
 public:
  ConfigChoice(const Session& session, const EditOptions& options) : session_(session), options_(options) {
    Options device = options;
    if (device.device.empty()) device.device = "cpu";
    device_ = open_device_of(device, 1);
  }
  /// Gives the record the configuration of --config. Errors: invalid_argument if the configuration may not serve the
  /// bucket or has failed there.
  void choose(Edit& edit, const std::vector<cache::TrialRow>& trials) const {
    const auto owner = owner_of(session_.registry, edit.key, device_->info());
    if (!owner)
      bad_input(
          fmt::format("--config: the record is of another release, or of another machine than {}; choose by --device, "
                      "or leave --config out",
                      device_->info().name));
    const auto& [op, workload] = *owner;
    const autotune::Config config = chosen_config(*op, workload, edit.before.hi, options_.config, device_->target());
    if (config.json() == edit.before.config_json) return;
    const auto trial = std::ranges::find(trials, config.json(), &cache::TrialRow::config_json);
    const bool is_known = trial != trials.end() && trial->outcome != "modelled";
    if (is_known && trial->outcome != "ok")
      bad_input(fmt::format("--config {}: the bucket has this configuration as {}: {}; give another one",
                            format_fields(config), trial->outcome, trial->detail));
    cache::Record& record = edit.after;
    record.config_json = config.json();
    const bool by_ranks = is_known && trial->ranks_us > 0;
    record.median_us = by_ranks ? trial->ranks_us : is_known ? trial->median_us : 0;
    record.p20_us = by_ranks ? trial->ranks_p20_us : is_known ? trial->p20_us : 0;
    record.p80_us = by_ranks ? trial->ranks_p80_us : is_known ? trial->p80_us : 0;
    record.max_rel_err = 0, record.measured_length = is_known ? edit.before.measured_length : 0;
    record.samples = 0;  // the tuner has decided nothing by these times
    record.created_us = 0, record.noisy = false, record.sliced = false;
    edit.note = is_known ? "" : ", which was not measured or verified here";
    autotune::Usability usable(*op, workload, device_->target());
    if (const std::string refusal = usable.judge(record).refusal; !refusal.empty())
      bad_input(fmt::format("--config {}: {}", format_fields(config), refusal));
  }

 private:
  const Session& session_;
  const EditOptions& options_;
  std::unique_ptr<Device> device_;
};

/// Calls ConfigChoice::choose(). One configuration is for all chosen records, so that an error names the record that
/// refuses it.
void choose(const ConfigChoice& choice, Edit& edit, const std::vector<cache::TrialRow>& trials) {
  try {
    choice.choose(edit, trials);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} {}: {}", key_title(edit.key),
                                          format_bucket(edit.before.lo, edit.before.hi), error.what()));
  }
}

int run_pin(const Session& session, const EditOptions& options) {
  const auto store = open_for_edit(options);
  std::optional<ConfigChoice> choice;
  if (!options.config.empty()) choice.emplace(session, options);
  std::vector<Edit> edits;
  const OwnRecords own = own_records(session, options, *store);
  for (const KeyGroup& group : own.groups)
    for (const cache::Record& record : group.records) {
      Edit edit{group.key, record, record};
      if (choice) choose(*choice, edit, trials_of(*store, group.key, record));
      edit.after.origin = cache::Origin::pinned;
      edit.is_needed = record.origin != cache::Origin::pinned || edit.after.config_json != record.config_json;
      edits.push_back(std::move(edit));
    }
  check_was_read(*store);
  if (!options.dry_run) replace_records(*store, edits);
  return answer(edits, "pinned", options, store->path(), own.note());
}

/// The record's origin without the pin. It is `tuned` if the tuner chose the configuration among several measured ones.
/// It is `default` for any other configuration, such as the value of --config, so that the tuner searches again.
cache::Origin origin_without_pin(const cache::Record& record, const std::vector<cache::TrialRow>& trials) {
  const auto is_measured = [](const cache::TrialRow& trial) {
    return trial.outcome == "ok" && (trial.median_us > 0 || trial.ranks_us > 0 || trial.chosen);
  };
  const auto own = std::ranges::find(trials, record.config_json, &cache::TrialRow::config_json);
  const bool is_own_measured = own != trials.end() && is_measured(*own);
  return record.samples > 0 && is_own_measured && std::ranges::count_if(trials, is_measured) > 1
             ? cache::Origin::tuned
             : cache::Origin::fallback;
}

int run_unpin(const Session& session, const EditOptions& options) {
  const auto store = open_for_edit(options);
  std::vector<Edit> edits;
  const OwnRecords own = own_records(session, options, *store);
  for (const KeyGroup& group : own.groups)
    for (const cache::Record& record : group.records) {
      Edit edit{group.key, record, record};
      edit.is_needed = record.origin == cache::Origin::pinned;
      if (edit.is_needed) {
        edit.after.origin = origin_without_pin(record, trials_of(*store, group.key, record));
        edit.note = fmt::format(", now {}", cache::origin_name(edit.after.origin));
      }
      edits.push_back(std::move(edit));
    }
  check_was_read(*store);
  if (!options.dry_run) replace_records(*store, edits);
  return answer(edits, "unpinned", options, store->path(), own.note());
}

}  // namespace

void add_cache_edits(CLI::App& cache, Session& session) {
  const auto add = [&](const char* name, const char* summary, const char* examples,
                       int (*run)(const Session&, const EditOptions&)) {
    auto options = std::make_shared<EditOptions>();
    CLI::App& command = add_command(cache, session, name, summary, examples, options, run);
    add_record_choice(command, *options);
    command.add_option("--cache", options->cache, "tuning.db (default: in the user's cache folder)")->type_name("FILE");
    command.add_flag("--dry-run", options->dry_run, "Print the changes without writing them");
    return std::pair(&command, options);
  };
  const auto [rm, rm_options] =
      add("rm", "Remove records, so that they are decided anew",
          "  seqtile cache rm linear --set n=4096 --lengths 33..64 --cache tuning.db --dry-run\n"
          "  seqtile cache rm linear --dtype bf16 --trials --cache tuning.db",
          run_rm);
  rm->add_flag("--trials", rm_options->with_trials,
               "Also the trials of these buckets, so that candidates that failed are tried again");
  const auto [pin, pin_options] = add("pin", "Keep records as they are: no tuning replaces them",
                                      "  seqtile cache pin linear --set n=4096 --lengths 512 --cache tuning.db\n"
                                      "  seqtile cache pin softmax --set n=100 --config block_n=128 --cache tuning.db",
                                      run_pin);
  add_config(*pin, pin_options->config);
  pin->get_option("--config")->description("A parameter of the configuration to pin (default: the record's)");
  add("unpin", "Let tuning replace pinned records again",
      "  seqtile cache unpin linear --set n=4096 --lengths 512 --cache tuning.db", run_unpin);
}

}  // namespace seqtile::cli
