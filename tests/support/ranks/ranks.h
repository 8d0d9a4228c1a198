// tests/support/ranks/ranks.h -- runs the same work on all ranks of a fabric, on threads or in processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/fabric/core/fabric.h"

namespace seqtile::testing {

/// Runs `work` on all ranks. Returns the errors by rank: "" without an error, "ended with status ..." if a process did
/// not return. `kind`: "threads", "nodes" (threads on two nodes), or "processes", which must end within a minute.
std::vector<std::string> on_ranks(const std::string& kind, int world_size, const std::function<void(Fabric&)>& work);

/// As on_ranks(), on a thread for each of `fabrics`.
std::vector<std::string> on_threads(std::vector<std::unique_ptr<Fabric>> fabrics,
                                    const std::function<void(Fabric&)>& work);

/// As on_ranks(), in processes that have not joined the fabric yet; `world` is the descriptor.
std::vector<std::string> on_processes(int world_size, const std::function<void(int world, int rank)>& work);

}  // namespace seqtile::testing
