// tools/cli/cache/records.cpp -- see records.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/cache/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "autotune/engine/usable.h"
#include "jit/base/nearest_word.h"
#include "tools/cli/key_text.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {
namespace {

std::vector<KeyGroup> grouped(std::vector<cache::KeyedRecord> records) {
  std::map<std::string, KeyGroup> groups;
  for (cache::KeyedRecord& keyed : records) {
    const cache::TuningKey& key = keyed.key;
    KeyGroup& group = groups[key.operation + key.workload_json + key.device_kind + key.env_json + key.source_hash];
    group.key = keyed.key;
    group.records.push_back(std::move(keyed.record));
  }
  std::vector<KeyGroup> list;
  for (auto& [name, group] : groups) list.push_back(std::move(group));
  return list;
}

/// The fields of a key that the flags name.
autotune::Fields wanted_fields(const Session& session, const Options& given) {
  Options options = given;
  name_rank_fields(session, options);
  autotune::Fields wanted = parse_fields("--set", options.set);
  const auto add = [&](const char* flag, const char* name, const autotune::FieldValue& value) {
    if (wanted.contains(name))
      bad_input(fmt::format("{}: --set {} gives the field already; leave one of the two out", flag, name));
    wanted.set(name, value);
  };
  if (!options.dtype.empty()) add("--dtype", "dtype", std::string(dtype_name(parse_dtype_flag(options.dtype))));
  if (!options.threads.empty()) {
    int64_t threads = 0;  // a record may come from a machine with more cores than this one
    const char* end = options.threads.data() + options.threads.size();
    if (std::from_chars(options.threads.data(), end, threads).ptr != end || threads < 1)
      bad_input(fmt::format("--threads {}: a whole number above 0 is wanted", options.threads));
    add("--threads", "threads", threads);
  }
  return wanted;
}

std::string value_text(const autotune::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

/// A number equals itself in any spelling.
bool is_same(const autotune::FieldValue& a, const autotune::FieldValue& b) { return value_text(a) == value_text(b); }

bool has(const autotune::Fields& fields, const autotune::Fields& wanted) {
  for (const auto& [name, value] : wanted.values()) {
    const auto at = fields.values().find(name);
    if (at == fields.values().end() || !is_same(at->second, value)) return false;
  }
  return true;
}

/// Refuses unknown field names and texts where the records have numbers: a mistyped field would otherwise choose no
/// record and look like an answer.
void check_fields(const autotune::Fields& wanted, const std::string& operation,
                  const std::vector<cache::KeyedRecord>& records) {
  std::map<std::string, bool> known;  // true for a text
  for (const cache::KeyedRecord& keyed : records)
    if (const auto fields = autotune::parse_config(keyed.key.workload_json))
      for (const auto& [name, value] : fields->values()) known[name] = std::holds_alternative<std::string>(value);
  for (const auto& [name, value] : wanted.values()) {
    const auto at = known.find(name);
    if (at == known.end()) {
      std::vector<std::string> names;
      for (const auto& [field, is_text] : known) names.push_back(field);
      bad_input(fmt::format("--set {}: no record of {} has this field; they have {}{}", name, operation,
                            fmt::join(names, ", "), did_you_mean(name, names)));
    }
    if (std::holds_alternative<std::string>(value) != at->second)
      bad_input(fmt::format("--set {}={}: this field of {} is a {}; see `seqtile cache ls`", name, value_text(value),
                            operation, at->second ? "text" : "number"));
  }
}

}  // namespace

std::vector<KeyGroup> all_groups(cache::TuningStore& store) { return grouped(store.all_records()); }

void add_record_choice(CLI::App& command, Options& options) {
  options.device.clear();  // empty: records of all devices
  add_operation(command, options);
  command.get_option("--set")->description("A static field that the records have; may be repeated");
  add_key(command, options);
  command.get_option("--dtype")->description("f32, bf16 or f16 (default: all)");
  command.get_option("--threads")->description("Threads of one launch (default: all)")->type_name("N");
  command.get_option("--device")->description("Device of the records (default: all devices)")->default_str("");
  add_ranks(command, options);
  add_lengths(command, options);
  command.get_option("--lengths")->description("Buckets with one of these lengths (default: all)");
}

std::vector<KeyGroup> chosen_groups(const Session& session, const Options& options, cache::TuningStore& store) {
  std::vector<cache::KeyedRecord> records = store.all_records();
  std::erase_if(records, [&](const cache::KeyedRecord& keyed) { return keyed.key.operation != options.operation; });
  if (records.empty()) {
    session.registry.find(options.operation);  // throws for an unknown operation
    return {};
  }
  const autotune::Fields wanted = wanted_fields(session, options);
  check_fields(wanted, options.operation, records);
  const LengthRange lengths =
      options.lengths.empty() ? LengthRange{0, INT64_MAX} : parse_lengths("--lengths", options.lengths);
  const auto device = options.device.empty() ? nullptr : open_device_of(options, 1);
  std::erase_if(records, [&](const cache::KeyedRecord& keyed) {
    const auto fields = autotune::parse_config(keyed.key.workload_json);
    const bool is_of_device =
        !device || (keyed.key.device_kind == device->info().kind && keyed.key.device_name == device->info().name);
    const bool is_in_lengths = keyed.record.lo <= lengths.hi && keyed.record.hi >= lengths.lo;
    return !is_of_device || !is_in_lengths || !has(fields ? *fields : autotune::Fields{}, wanted);
  });
  return grouped(std::move(records));
}

Json json_or_text(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json(text) : json;
}

std::string format_config(const std::string& json) {
  const auto config = autotune::parse_config(json);
  return config ? format_fields(*config) : json;
}

std::string key_title(const cache::TuningKey& key) {
  return fmt::format("{} {} on {}", key.operation, workload_fields(key).json(), key.device_name);
}

Json record_json(const cache::Record& record) {
  return {{"bucket", {record.lo, record.hi}},
          {"origin", std::string(cache::origin_name(record.origin))},
          {"config", json_or_text(record.config_json)},
          {"median_us", record.median_us},
          {"default_us", record.default_us},
          {"noisy", record.noisy},
          {"sliced", record.sliced}};
}

Json record_json(const cache::TuningKey& key, const cache::Record& record) {
  Json row = record_json(record);
  row["operation"] = key.operation;
  row["workload"] = json_or_text(key.workload_json);
  row["device"] = key.device_name;
  return row;
}

}  // namespace seqtile::cli
