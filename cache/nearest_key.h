// cache/nearest_key.h -- explains a missing record by the fields in which the nearest stored key differs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "seqtile/stores.h"

namespace seqtile::cache {

/// Names the fields in which `wanted` differs from the nearest stored key (the one with the fewest differing fields),
/// e.g. "workload.threads: 2 wanted, 4 stored". Returns an empty list if the file has no record.
std::vector<std::string> nearest_key_difference(TuningStore& store, const TuningKey& wanted);

}  // namespace seqtile::cache
