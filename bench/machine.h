// bench/machine.h -- facts about the machine and the build that go beside every number.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace seqtile::bench {

/// Name and value in the order they are printed: date, commit, CPU, cores, caches, clock, governor, kernel, driver.
std::vector<std::pair<std::string, std::string>> machine_facts();

int64_t last_level_cache_bytes();
/// Memory that this process can still get: what the machine, its control group and the process's own limit leave.
int64_t available_bytes();
/// Cores that this process may use.
int usable_cores();

}  // namespace seqtile::bench
