// tests/support/references/plan_text.h -- what must hold of the planner's reader for every text, and texts to begin
// with.
// SPDX-License-Identifier: Apache-2.0
//
// Shared by the fuzz target and by the test that changes texts in ways that are the same in every run.
#pragma once
#include <string>
#include <vector>

namespace seqtile::testing {

/// Reads a text; what is read is written and read again, gets strategies and is solved, where it is small enough to
/// take milliseconds. True: it was read. Throws std::logic_error where a promise is broken: an error that is not ours
/// or not one line, a graph that is another one when it is read again.
bool take_plan_text(const std::string& text);

/// Graphs with and without strategies of modules, functions and tuples, and a problem.
std::vector<std::string> plan_texts();

}  // namespace seqtile::testing
