// tools/cli/cache/records.h -- the records of a tuning.db that flags choose, by key, and their texts.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "seqtile/stores.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {

/// The records of one key, in the order of their buckets.
struct KeyGroup {
  cache::TuningKey key;
  std::vector<cache::Record> records;
};

/// All keys of the file that have records.
std::vector<KeyGroup> all_groups(cache::TuningStore& store);

/// Adds OP --set --dtype --threads --ranks --fabric --lengths --device, which choose records. An absent flag chooses
/// all.
void add_record_choice(CLI::App& command, Options& options);
/// The records chosen by the flags of add_record_choice(). --lengths chooses the buckets that contain one of the
/// lengths. Errors: invalid_argument for an unknown operation, and for a field that no record of the operation has.
std::vector<KeyGroup> chosen_groups(const Session& session, const Options& options, cache::TuningStore& store);

/// A stored text as JSON; as a string if it is no JSON.
Json json_or_text(const std::string& text);
/// A stored configuration as "a=1 b=x"; unchanged if it is no configuration.
std::string format_config(const std::string& json);
/// "linear {"k":96,...} on AMD EPYC".
std::string key_title(const cache::TuningKey& key);
Json record_json(const cache::Record& record);
/// As record_json(record), with operation, workload and device.
Json record_json(const cache::TuningKey& key, const cache::Record& record);

}  // namespace seqtile::cli
