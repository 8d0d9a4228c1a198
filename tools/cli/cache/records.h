// tools/cli/cache/records.h -- the records of a tuning.db that flags choose, by key, and how they are shown.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "cache/tuning_store.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {

/// The records of one key, in the order of their buckets.
struct KeyGroup {
  cache::TuningKey key;
  std::vector<cache::Record> records;
};

/// Every key of the file that has records.
std::vector<KeyGroup> all_groups(cache::TuningStore& store);

/// OP --set --dtype --threads --ranks --fabric --lengths --device: which records. A flag that is not given chooses all.
void add_record_choice(CLI::App& command, Options& options);
/// Records that those flags choose; of --lengths those whose bucket has one of them. Errors: invalid_argument for an
/// operation that there is not, and for a field that no record of the operation has.
std::vector<KeyGroup> chosen_groups(const Session& session, const Options& options, cache::TuningStore& store);

/// A stored text, also where it is no JSON.
Json json_or_text(const std::string& text);
/// A stored configuration, also where it is none.
std::string format_config(const std::string& json);
/// "linear {"k":96,...} on AMD EPYC".
std::string key_title(const cache::TuningKey& key);
Json record_json(const cache::Record& record);
/// The same with operation, workload and device.
Json record_json(const cache::TuningKey& key, const cache::Record& record);

}  // namespace seqtile::cli
