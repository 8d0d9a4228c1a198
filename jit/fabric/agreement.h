// jit/fabric/agreement.h -- collective calls in which every rank must want the same.
// SPDX-License-Identifier: Apache-2.0
//
// A rank that cannot take part comes all the same and says why: else its peers would wait for it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/error.h"
#include "jit/fabric.h"

namespace seqtile::fabric {

/// What a rank wants, by name; no line breaks.
using Wishes = std::vector<std::pair<std::string, std::string>>;

/// Collective: returns where all ranks want the same and none has a problem. Errors, the same on all ranks: the first
/// value that is not rank 0's (invalid_argument; names rank, value and both of them), or else the first rank's problem.
void agree(Fabric& fabric, const std::string& what, const Wishes& wishes,
           const std::optional<Error>& problem = std::nullopt);

/// What `work` throws.
std::optional<Error> problem_in(const std::function<void()>& work);

}  // namespace seqtile::fabric
