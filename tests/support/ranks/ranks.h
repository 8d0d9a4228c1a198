// tests/support/ranks/ranks.h -- the same work on every rank of a fabric, on threads or in processes of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/fabric/core/fabric.h"

namespace seqtile::testing {

/// What each rank's work throws, by rank: "" where nothing, "ended with status ..." where a process did not return.
/// `kind`: "threads", "nodes" (threads, on two of them), or "processes", which must not take longer than a minute.
std::vector<std::string> on_ranks(const std::string& kind, int world_size, const std::function<void(Fabric&)>& work);

/// The same on threads, one for each of these ranks.
std::vector<std::string> on_threads(std::vector<std::unique_ptr<Fabric>> fabrics,
                                    const std::function<void(Fabric&)>& work);

/// The same in processes that have not joined yet: `world` is the descriptor.
std::vector<std::string> on_processes(int world_size, const std::function<void(int world, int rank)>& work);

}  // namespace seqtile::testing
