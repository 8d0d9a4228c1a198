// autotune/key_difference.h -- why a key has no record: what differs from the nearest one, the device first.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "cache/tuning_store.h"

namespace seqtile::autotune {

/// "workload.k: 112 wanted, 96 stored", one line a field; empty where the store has no records. Where the kind of
/// device differs, that and the workload are said: facts of the device and the host's threads follow from it.
std::vector<std::string> key_difference(cache::TuningStore& store, const cache::TuningKey& wanted);

}  // namespace seqtile::autotune
