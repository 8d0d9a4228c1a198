// tests/support/references/plan_text.h -- checks the planner's reader on any text, and gives texts to begin with.
// SPDX-License-Identifier: Apache-2.0
//
// The fuzz target uses it, and the test that changes texts in the same ways in every run.
#pragma once
#include <string>
#include <vector>

namespace seqtile::testing {

/// Reads a text. A text that was read is written and read again; a small one also gets strategies and is solved, within
/// milliseconds. Returns true if the text was read. Errors: std::logic_error if a promise is broken: an error of
/// another kind or with several lines, or a graph that changes when it is read again.
bool take_plan_text(const std::string& text);

/// Graphs of modules, functions and tuples, with and without strategies, and a problem.
std::vector<std::string> plan_texts();

}  // namespace seqtile::testing
