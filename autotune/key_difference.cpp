// autotune/key_difference.cpp -- see key_difference.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/key_difference.h"

#include <algorithm>

#include "cache/nearest_key.h"

namespace seqtile::autotune {

std::vector<std::string> key_difference(std::span<const cache::TuningKey> stored, const cache::TuningKey& wanted) {
  std::vector<std::string> differences = cache::nearest_key_difference(stored, wanted);
  const auto is_kind = [](const std::string& line) { return line.starts_with("device_kind:"); };
  const auto is_operation = [](const std::string& line) { return line.starts_with("operation:"); };
  if (std::any_of(differences.begin(), differences.end(), is_operation))  // fields of another operation explain nothing
    std::erase_if(differences,
                  [](const auto& line) { return line.starts_with("workload.") || line.starts_with("source_hash:"); });
  const auto is_of_device = [](const std::string& line) { return line.starts_with("env."); };
  if (std::any_of(differences.begin(), differences.end(), is_kind))
    std::erase_if(differences,
                  [&](const auto& line) { return is_of_device(line) || line.starts_with("workload.threads:"); });
  std::stable_partition(differences.begin(), differences.end(),
                        [&](const auto& line) { return is_kind(line) || is_of_device(line); });
  return differences;
}

std::vector<std::string> key_difference(cache::TuningStore& store, const cache::TuningKey& wanted) {
  return key_difference(cache::distinct_keys(store), wanted);
}

}  // namespace seqtile::autotune
