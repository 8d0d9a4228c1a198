// autotune/key_difference.h -- why a key has no record: the fields in which it differs from the nearest stored key.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <vector>

#include "seqtile/stores.h"

namespace seqtile::autotune {

/// One line for each field in which `wanted` differs from the nearest stored key, such as "workload.k: 112 wanted, 96
/// stored"; empty if there is no stored key. Lines about the device come first. If the kind of device differs, lines
/// about its facts and about threads are left out, because they follow from the kind. If the operation differs, lines
/// about its workload and source hash are left out.
std::vector<std::string> key_difference(std::span<const cache::TuningKey> stored, const cache::TuningKey& wanted);
/// The same for the keys of a store's records.
std::vector<std::string> key_difference(cache::TuningStore& store, const cache::TuningKey& wanted);

}  // namespace seqtile::autotune
