// planner/strategies/operator_families.h -- which rule an operator has, by its name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

using Family = bool (*)(RuleView&);

/// Of a function, a method or a module; null where none is known, and for linears, which are ruled together. An
/// operator in place, "add_", has the rule of "add".
Family family_of_operator(const Node& node);

bool is_linear(const Node& node);

}  // namespace seqtile::planner
