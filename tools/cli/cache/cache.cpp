// tools/cli/cache/cache.cpp -- `seqtile cache`: shows the stores, changes them (edit.h), and fills in binaries.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "autotune/engine/usable.h"
#include "cache/plan_store.h"
#include "tools/cli/cache/binaries.h"
#include "tools/cli/cache/edit.h"
#include "tools/cli/cache/records.h"
#include "tools/cli/command.h"
#include "tools/cli/key_text.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr size_t kWorkloadColumns = 100;
constexpr size_t kGraphDigits = 12;  ///< digits shown of a graph's hash

/// The fields that are neither 0 nor "none".
std::string short_fields(const autotune::Fields& fields) {
  autotune::Fields told;
  for (const auto& [name, value] : fields.values()) {
    const bool is_off = std::visit([](const auto& v) { return fmt::format("{}", v); }, value) == "0" ||
                        value == autotune::FieldValue(std::string("none"));
    if (!is_off) told.set(name, value);
  }
  return format_fields(told);
}

/// Lines of `text`, broken at spaces; at least one line.
std::vector<std::string> wrapped(std::string text) {
  std::vector<std::string> lines;
  while (text.size() > kWorkloadColumns) {
    const size_t space = text.rfind(' ', kWorkloadColumns);
    if (space == std::string::npos) break;
    lines.push_back(text.substr(0, space));
    text.erase(0, space + 1);
  }
  lines.push_back(text);
  return lines;
}

/// The mesh of a plan, by its manifest.
std::string mesh_of(const Json& manifest) {
  std::string text;
  for (const Json& size : manifest["mesh"]) text += (text.empty() ? "" : "x") + size.dump();
  return text;
}

struct PlansFound {
  std::vector<cache::StoredPlan> plans;
  int64_t bad_rows = 0;
};

PlansFound plans_in(const cache::TuningStore& store) {
  if (could_not_read(store)) return {};  // the log has the reason
  const auto plans = cache::PlanStore::open(store.path(), cache::OpenMode::read_only);
  PlansFound found{plans->all()};
  found.bad_rows = plans->bad_rows();
  return found;
}

Json list_plans(const cache::TuningStore& store) {
  Table table({"  plan", "costs", "mesh", "phase", "objective", "best possible", "graph"});
  Json list = Json::array();
  for (const cache::StoredPlan& plan : plans_in(store).plans) {
    const Json manifest = Json::parse(plan.manifest_json);
    const std::string bound = plan.is_exact ? "this one" : fmt::format("at least {:.6g}", plan.lower_bound);
    table.add({fmt::format("  {}", list.size() + 1), manifest["costs"].get<std::string>(), mesh_of(manifest),
               manifest["phase"].get<std::string>(), fmt::format("{:.6g}", plan.objective), bound,
               manifest["graph"].get<std::string>().substr(0, kGraphDigits)});
    list.push_back({{"manifest", manifest},
                    {"objective", plan.objective},
                    {"lower_bound", plan.lower_bound},
                    {"exact", plan.is_exact},
                    {"ms", plan.ms}});
  }
  if (table.empty()) return list;
  print_line("plans");
  table.print();
  return list;
}

int run_ls(const Session&, const Options& options) {
  const auto store = open_store_of(options, StoreUse::read_existing);
  std::map<std::string, Table> tables;  // by device
  Json list = Json::array();
  for (const KeyGroup& group : all_groups(*store)) {
    const std::string lengths = format_bucket(group.records.front().lo, group.records.back().hi);
    const Table header({"  operation", "records", "lengths", "workload, fields that are 0 or none left out"});
    Table& table = tables.try_emplace(group.key.device_name, header).first->second;
    const auto workload = wrapped(short_fields(workload_fields(group.key)));
    table.add({"  " + group.key.operation, std::to_string(group.records.size()), lengths, workload[0]});
    for (size_t i = 1; i < workload.size(); ++i) table.add({"", "", "", workload[i]});
    list.push_back({{"operation", group.key.operation},
                    {"records", group.records.size()},
                    {"lengths", {group.records.front().lo, group.records.back().hi}},
                    {"workload", json_or_text(group.key.workload_json)},
                    {"device", group.key.device_name}});
  }
  for (const auto& [device, table] : tables) {
    print_line(device);
    table.print();
  }
  if (tables.empty() && !could_not_read(*store)) print_line(store->path() + " has no records");
  Json plans = list_plans(*store);
  check_was_read(*store);
  if (options.json) print_json({{"keys", std::move(list)}, {"plans", std::move(plans)}});
  return kDone;
}

std::string time_of(double us) { return us > 0 ? format_us(us) : "-"; }

int run_show(const Session& session, const Options& options) {
  const auto store = open_store_of(options, StoreUse::read_existing);
  const std::vector<KeyGroup> groups = chosen_groups(session, options, *store);
  Json list = Json::array();
  for (const KeyGroup& group : groups) {
    print_line(key_title(group.key));
    Table table({"  bucket", "origin", "median", "default", "config"});
    for (const cache::Record& record : group.records) {
      table.add({"  " + format_bucket(record.lo, record.hi), std::string(cache::origin_name(record.origin)),
                 time_of(record.median_us), time_of(record.default_us), format_config(record.config_json)});
      list.push_back(record_json(group.key, record));
    }
    table.print();
  }
  if (groups.empty() && !could_not_read(*store))
    print_line(fmt::format("no such record of '{}' in {}; see `seqtile cache ls`", options.operation, store->path()));
  check_was_read(*store);
  if (options.json) print_json({{"records", std::move(list)}});
  return groups.empty() ? kNo : kDone;
}

int run_stats(const Session&, const Options& options) {
  const auto store = open_store_of(options, StoreUse::read_existing);
  std::map<std::string, int64_t> origins;
  int64_t records = 0, ranges = 0;
  const std::vector<KeyGroup> groups = all_groups(*store);
  for (const KeyGroup& group : groups) {
    std::string config;
    for (const cache::Record& record : group.records) {
      ++records;
      ++origins[std::string(cache::origin_name(record.origin))];
      ranges += record.config_json != config;
      config = record.config_json;
    }
  }
  const cache::Counters counters = store->counters();
  std::error_code error;
  const auto size = std::filesystem::file_size(store->path(), error);
  const double bytes = error ? 0 : static_cast<double>(size);
  Table table({"what", "count"});
  table.add({"keys", format_count(groups.size())});
  table.add({"records", format_count(records)});
  table.add({"ranges", format_count(ranges)});
  for (const auto& [origin, count] : origins) table.add({"origin " + origin, format_count(count)});
  const auto [plans, bad_plans] = plans_in(*store);
  const int64_t bad_rows = counters.bad_rows + bad_plans;
  table.add({"plans", format_count(std::ssize(plans))});
  table.add({"bad rows", format_count(bad_rows)});
  table.add({"file", format_bytes(bytes)});
  table.print();
  check_was_read(*store);
  if (options.json)
    print_json({{"keys", groups.size()},
                {"records", records},
                {"ranges", ranges},
                {"origins", origins},
                {"plans", plans.size()},
                {"bad_rows", bad_rows},
                {"foreign_rows", counters.foreign_rows},
                {"file_bytes", bytes}});
  return kDone;
}

constexpr size_t kMostListed = 20;

/// Prints the first refused records and the number of the others.
void list_refused(const std::vector<RefusedRecord>& refused) {
  for (size_t i = 0; i < std::min(refused.size(), kMostListed); ++i)
    print_line(fmt::format("{} {}: the record does not serve: {}", refused[i].operation,
                           format_bucket(refused[i].lo, refused[i].hi), refused[i].reason));
  if (refused.size() > kMostListed)
    print_line(fmt::format("{} not listed here", format_counted(refused.size() - kMostListed, "more refused record")));
}

Json refused_json(const std::vector<RefusedRecord>& refused) {
  Json list = Json::array();
  for (const RefusedRecord& record : refused)
    list.push_back({{"operation", record.operation}, {"lo", record.lo}, {"hi", record.hi}, {"reason", record.reason}});
  return list;
}

/// The verdict on a file, with the next step. A store with a status has printed its next step on standard error; its
/// verdict then names no other step.
std::string verdict(const cache::TuningStore& store, const cache::CheckReport& report, size_t refused) {
  if (report.ok() && refused == 0) return "ok";
  if (report.ok())
    return fmt::format("not ok; {} may not serve, `seqtile prewarm` or `seqtile tune` replaces {}",
                       format_counted(refused, "record"), refused == 1 ? "it" : "them");
  if (store.counters().busy > 0) return "not ok; nothing was checked, try again when the other process is done";
  if (!store.status().empty()) return "not ok; the file is left as it is";
  if (!report.is_sound) return "not ok; the file is left as it is: move it away, then run `seqtile prewarm`";
  return "not ok; bad rows are ignored, and `seqtile prewarm` measures lost records again";
}

/// The part of `cache check` about artifacts.db: its rows, and the binaries that decisions need.
struct BinaryCheck {
  cache::ArtifactCheck file;
  BuildReport named;
  bool ok() const { return file.ok() && named.remaining() == 0; }
};

std::string verdict(const BinaryCheck& check, const Options& options, cache::ArtifactDb& artifacts) {
  if (check.ok()) return "ok";
  if (check.file.is_locked) return "not ok; nothing was checked, try again when the other process is done";
  const bool is_empty = std::filesystem::is_empty(options.artifacts);
  if (!check.file.is_usable && !is_empty) return "not ok; the file is left as it is";
  const std::string step = "not ok; " + build_step(options, artifacts);
  if (!check.file.is_sound) return step + "; it moves the file away and keeps the readable rows";
  if (check.named.remaining() > 0 || is_empty) return step;
  return "not ok; bad rows are ignored; a new file without them is made once this one is moved away";
}

BinaryCheck check_binaries(const Options& options, const BuildReport& named, cache::ArtifactDb& artifacts) {
  BinaryCheck check{artifacts.check(), named};
  const std::string status = artifacts.status();
  if (!status.empty()) warn(status);  // warn() drops the line if the log has it already
  for (const std::string& problem : check.file.problems)
    if (problem != status) print_line(problem);
  print_line(fmt::format("{}: {}, {} bad; records of {} name {}, {} missing: {}", options.artifacts,
                         format_counted(check.file.rows, "row"), format_count(check.file.bad_rows), options.device,
                         format_counted(check.named.binaries, "binary"), format_count(check.named.remaining()),
                         verdict(check, options, artifacts)));
  return check;
}

int run_check(const Session& session, const Options& options) {
  const auto store = open_store_of(options, StoreUse::check);
  const bool has_artifacts = !options.artifacts.empty();
  const auto artifacts = has_artifacts ? open_existing_artifacts_of(options) : nullptr;
  // The device is opened even without --artifacts, so that a mistyped name is an error.
  const auto device = open_device_of(options, 1);
  const bool is_locked = store->counters().busy > 0;
  const cache::CheckReport report = is_locked ? cache::CheckReport{.problems = {store->status()}} : store->check();
  const std::string status = store->status();  // printed on standard error
  for (const std::string& problem : report.problems)
    if (problem != status) print_line(problem);
  // Named binaries are looked up before all rows are verified, so that the verification counts as no use of the rows.
  const BuildReport named =
      is_locked ? BuildReport{} : find_binaries(session.registry, *store, artifacts.get(), *device);
  list_refused(named.refused);
  print_line(fmt::format("{}: {}, {} bad: {}", store->path(), format_counted(report.rows, "row"),
                         format_count(report.bad_rows), verdict(*store, report, named.refused.size())));
  const bool is_good = report.ok() && named.refused.empty();
  Json json{{"rows", report.rows},
            {"bad_rows", report.bad_rows},
            {"ok", is_good},
            {"refused", refused_json(named.refused)},
            {"problems", report.problems}};
  if (has_artifacts) {
    const BinaryCheck binaries = check_binaries(options, named, *artifacts);
    json["ok"] = is_good && binaries.ok();
    json["artifacts"] = {{"rows", binaries.file.rows},
                         {"bad_rows", binaries.file.bad_rows},
                         {"named", binaries.named.binaries},
                         {"missing", binaries.named.remaining()},
                         {"ok", binaries.ok()},
                         {"problems", binaries.file.problems}};
  }
  if (options.json) print_json(json);
  return json["ok"] ? kDone : kNo;
}

/// Repairs a damaged artifacts.db before binaries are added.
void repair(cache::ArtifactDb& artifacts, const Options& options) {
  for (const cache::ArtifactRepair& repair : artifacts.repair())
    print_line(repair.is_whole
                   ? fmt::format("{} was damaged: it is now {}, and {} of its binaries are in a new file",
                                 artifacts_path(options), repair.moved_to, format_count(repair.kept))
                   : fmt::format("{} was damaged: {} of its binaries are in a new file, the rest is still in {}; {} "
                                 "continues",
                                 artifacts_path(options), format_count(repair.kept), repair.moved_to,
                                 next_build(options)));
  const std::string status = artifacts.status();
  if (status.empty()) return;
  const std::string step = new_file_step(options, artifacts);
  throw Error(ErrorCode::io, step.empty() ? status : status + "; " + step);
}

int run_build(const Session& session, const Options& options) {
  const auto store = open_store_of(options, StoreUse::read_existing);
  const auto artifacts = open_artifacts_of(options);
  install_interrupt_handler();  // an interrupt does not cut off a repair
  repair(*artifacts, options);
  const auto device = open_device_of(options, 1);
  const BuildReport report = build_binaries(session.registry, *store, *artifacts, *device);
  print_line(fmt::format("{} of this machine, binaries that they name: {}; {} there, {} compiled, {} failed in {}",
                         format_counted(report.records, "record"), format_count(report.binaries),
                         format_count(report.there), format_count(report.compiled), format_count(report.failed),
                         format_seconds(report.seconds)));
  list_refused(report.refused);
  if (!report.refused.empty())
    print_line(fmt::format("{} may not serve and {} left out; `seqtile prewarm` or `seqtile tune` replaces {}",
                           format_counted(report.refused.size(), "record"), report.refused.size() == 1 ? "is" : "are",
                           report.refused.size() == 1 ? "it" : "them"));
  if (report.interrupted)
    print_line(fmt::format("Interrupted: {} of {} were not looked at; {} goes on from here.",
                           format_count(report.remaining()), format_count(report.binaries), next_build(options)));
  if (report.other_records > 0)
    print_line(fmt::format("{} of another machine, toolchain or version, left alone{}",
                           format_counted(report.other_records, "record"),
                           report.records == 0 ? "; --device h200, for example, takes the records of that GPU" : ""));
  if (!report.interrupted) check_was_read(*store);
  if (options.json)
    print_json({{"records", report.records},
                {"other_records", report.other_records},
                {"binaries", report.binaries},
                {"there", report.there},
                {"compiled", report.compiled},
                {"failed", report.failed},
                {"refused", refused_json(report.refused)},
                {"remaining", report.remaining()},
                {"seconds", report.seconds},
                {"interrupted", report.interrupted}});
  if (report.interrupted) return interrupted_exit_code();
  return report.failed == 0 && report.refused.empty() ? kDone : kNo;
}

}  // namespace

void add_cache(CLI::App& app, Session& session) {
  CLI::App& cache = *app.add_subcommand("cache", "Look into the stores, change and check them, fill in binaries");
  cache.require_subcommand(1);
  cache.footer(
      "Examples:\n  seqtile cache ls --cache tuning.db\n  seqtile cache show linear --cache tuning.db\n"
      "  seqtile cache check --cache tuning.db --json\n"
      "  seqtile cache rm linear --set n=4096 --lengths 33..64 --cache tuning.db --dry-run");
  struct Part {
    const char *name, *summary, *examples;
    int (*run)(const Session&, const Options&);
  };
  for (const Part& part :
       {Part{"ls", "One line for every key and every plan", "  seqtile cache ls --cache tuning.db", run_ls},
        Part{"show", "The records of an operation",
             "  seqtile cache show linear\n  seqtile cache show linear --set n=4096 --lengths 33..64 --cache tuning.db",
             run_show},
        Part{"stats", "Counts of keys, records, ranges, origins and plans", "  seqtile cache stats", run_stats},
        Part{
            "check", "Verify every row; with --artifacts also every binary, and that no decision lacks its own",
            "  seqtile cache check --cache tuning.db\n  seqtile cache check --cache tuning.db --artifacts artifacts.db",
            run_check},
        Part{"build", "Compile the binaries that records name and that are missing",
             "  seqtile cache build --cache shipped.db", run_build}}) {
    auto options = std::make_shared<Options>();
    CLI::App& command = add_command(cache, session, part.name, part.summary, part.examples, options, part.run);
    add_stores(command, *options);
    if (part.run == run_show) add_record_choice(command, *options);
    if (part.run == run_build || part.run == run_check)
      command.add_option("--device", options->device, "Whose records")->capture_default_str();
  }
  add_cache_edits(cache, session);
  add_cache_diff(cache, session);
}

}  // namespace seqtile::cli
