// autotune/grade.h -- how much is known of a stored decision.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string_view>

#include "cache/tuning_store.h"

namespace seqtile::autotune {

/// Each grade includes the ones before it.
enum class Grade {
  built,     ///< its binary was compiled, and verified once for the run of buckets that share it
  measured,  ///< it was timed in its bucket
  searched,  ///< it won over others: in a search, against a neighbour's winner, or by a person's word
};

Grade grade_of(const cache::Record& record);
/// "built" "measured" "searched".
std::string_view grade_name(Grade grade);
/// Nothing for another text.
std::optional<Grade> parse_grade(std::string_view name);

}  // namespace seqtile::autotune
