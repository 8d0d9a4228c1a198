// cache/nearest_key.h -- explains a missing record by the fields in which the nearest stored key differs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <vector>

#include "seqtile/stores.h"

namespace seqtile::cache {

/// Names the fields in which `wanted` differs from the nearest stored key (the one with the fewest differing fields),
/// e.g. "workload.threads: 2 wanted, 4 stored". Returns an empty list if there is no stored key.
std::vector<std::string> nearest_key_difference(std::span<const TuningKey> stored, const TuningKey& wanted);
/// Whether two keys have the same records.
bool is_same_key(const TuningKey& a, const TuningKey& b);
/// The keys of all records, each once.
std::vector<TuningKey> distinct_keys(TuningStore& store);

}  // namespace seqtile::cache
