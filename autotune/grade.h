// autotune/grade.h -- how much is known of a stored decision.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string_view>

#include "seqtile/stores.h"

namespace seqtile::autotune {

/// Each grade includes the ones before it.
enum class Grade {
  built,     ///< the binary was compiled, and verified once for the run of buckets that share it
  measured,  ///< the configuration was timed in its bucket
  searched,  ///< the configuration was chosen: tuned, merged or pinned
};

/// The grade follows from the record's origin and number of samples.

Grade grade_of(const cache::Record& record);
/// "built" "measured" "searched".
std::string_view grade_name(Grade grade);
/// The inverse of grade_name(); nullopt for another text.
std::optional<Grade> parse_grade(std::string_view name);

}  // namespace seqtile::autotune
