// jit/fabric/core/agreement.h -- checks that all ranks give a collective call the same arguments.
// SPDX-License-Identifier: Apache-2.0
//
// A rank that cannot take part makes the call all the same and says why. Otherwise its peers would wait for it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "seqtile/error.h"
#include "seqtile/fabric.h"

namespace seqtile::fabric {

/// Values that a rank asks for, by name. No line breaks.
using Arguments = std::vector<std::pair<std::string, std::string>>;

/// Collective: returns if all ranks have equal `arguments` and no rank has a problem. Errors, the same on all ranks:
/// invalid_argument for the first value that differs from rank 0's (names the rank and both values), else the problem
/// of the first rank that has one.
void agree(Fabric& fabric, const std::string& what, const Arguments& arguments,
           const std::optional<Error>& problem = std::nullopt);

/// Runs `work` and returns the exception that it throws, as an Error (internal for other exceptions); else nothing.
std::optional<Error> problem_in(const std::function<void()>& work);

}  // namespace seqtile::fabric
