// tools/cli/cache/diff.cpp -- `seqtile cache diff A B`: shows the different decisions of two stores.
// SPDX-License-Identifier: Apache-2.0
//
// The command compares decisions, not times: two records are the same if origin and configuration are equal.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/cli/cache/edit.h"
#include "tools/cli/cache/records.h"

namespace seqtile::cli {
namespace {

struct DiffOptions : Options {
  std::string a, b;
};

/// The identity of a record, in the order of the output.
using Place = std::tuple<std::string, std::string, std::string, std::string, std::string, int64_t, int64_t, int64_t>;
struct Pair {
  cache::TuningKey key;
  std::optional<cache::Record> a, b;
};

void read(const DiffOptions& options, const std::string& path, std::optional<cache::Record> Pair::*side,
          std::map<Place, Pair>& pairs) {
  Options one = options;
  one.cache = path;
  const auto store = open_store_of(one, StoreUse::read_existing);
  for (cache::KeyedRecord& keyed : store->all_records()) {
    const cache::TuningKey& key = keyed.key;
    const cache::Record& record = keyed.record;
    Pair& pair = pairs[{key.operation, key.workload_json, key.device_kind, key.env_json, key.source_hash,
                        record.bucket_version, record.lo, record.hi}];
    pair.key = key;
    pair.*side = std::move(keyed.record);
  }
  check_was_read(*store);
}

std::string short_text(const cache::Record& record) {
  return fmt::format("{} {}", cache::origin_name(record.origin), format_config(record.config_json));
}

int run(const Session&, const DiffOptions& options) {
  std::map<Place, Pair> pairs;
  read(options, options.a, &Pair::a, pairs);
  read(options, options.b, &Pair::b, pairs);
  Json only_a = Json::array(), only_b = Json::array(), changed = Json::array();
  int64_t same = 0;
  std::string title;
  for (const auto& [place, pair] : pairs) {
    const auto& [key, a, b] = pair;
    if (a && b && a->origin == b->origin && a->config_json == b->config_json) {
      ++same;
      continue;
    }
    if (const std::string own = key_title(key); own != title) print_line(title = own);
    const std::string bucket = format_bucket((a ? *a : *b).lo, (a ? *a : *b).hi);
    if (a && b) {
      print_line(fmt::format("  {} {} -> {}", bucket, short_text(*a), short_text(*b)));
      Json row = record_json(key, *a);
      row["new_origin"] = std::string(cache::origin_name(b->origin));
      row["new_config"] = json_or_text(b->config_json);
      row["new_median_us"] = b->median_us;
      changed.push_back(std::move(row));
    } else {
      print_line(fmt::format("  {} only in {}: {}", bucket, a ? options.a : options.b, short_text(a ? *a : *b)));
      (a ? only_a : only_b).push_back(record_json(key, a ? *a : *b));
    }
  }
  const size_t differing = changed.size() + only_a.size() + only_b.size();
  print_line(fmt::format("{} the same, {} changed, {} only in {}, {} only in {}", format_counted(same, "record"),
                         changed.size(), only_a.size(), options.a, only_b.size(), options.b));
  if (options.json)
    print_json({{"same", same},
                {"changed", std::move(changed)},
                {"only_a", std::move(only_a)},
                {"only_b", std::move(only_b)}});
  return differing == 0 ? kDone : kNo;
}

}  // namespace

void add_cache_diff(CLI::App& cache, Session& session) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App& command =
      add_command(cache, session, "diff", "Compare the decisions of two stores; exit code 1 where they differ",
                  "  seqtile cache diff yesterday.db tuning.db\n"
                  "  seqtile cache diff shipped.db tuning.db --json | tail -n 1",
                  options, run);
  command.add_option("a", options->a, "A tuning.db")->type_name("FILE")->required();
  command.add_option("b", options->b, "Another one")->type_name("FILE")->required();
}

}  // namespace seqtile::cli
