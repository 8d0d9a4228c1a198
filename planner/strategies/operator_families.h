// planner/strategies/operator_families.h -- looks up an operator's rule by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

using Family = bool (*)(RuleView&);

/// The rule of a function, method or module. Null for an unknown operator, and for a linear: linears of one input are
/// ruled together. An in-place operator, such as "add_", has the rule of "add".
Family family_of_operator(const Node& node);

bool is_linear(const Node& node);

}  // namespace seqtile::planner
