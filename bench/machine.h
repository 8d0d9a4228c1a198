// bench/machine.h -- facts about the machine and the build, printed beside every number.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace seqtile::bench {

/// Names and values in printing order: date, commit, CPU, cores, caches, clock, governor, kernel, driver.
std::vector<std::pair<std::string, std::string>> machine_facts();

int64_t last_level_cache_bytes();
/// Bytes that this process can still get: the least of the machine's, the control group's and the process's own limit.
int64_t available_bytes();
/// Cores that this process may use.
int usable_cores();

}  // namespace seqtile::bench
