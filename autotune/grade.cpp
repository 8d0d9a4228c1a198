// autotune/grade.cpp -- see grade.h. The view v_coverage computes the same grades in SQL.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/grade.h"

namespace seqtile::autotune {

Grade grade_of(const cache::Record& record) {
  using cache::Origin;
  if (record.origin == Origin::tuned || record.origin == Origin::merged || record.origin == Origin::pinned)
    return Grade::searched;
  return record.samples > 0 ? Grade::measured : Grade::built;
}

std::string_view grade_name(Grade grade) {
  switch (grade) {
    case Grade::built: return "built";
    case Grade::measured: return "measured";
    case Grade::searched: return "searched";
  }
  return "unknown";
}

std::optional<Grade> parse_grade(std::string_view name) {
  for (const Grade grade : {Grade::built, Grade::measured, Grade::searched})
    if (grade_name(grade) == name) return grade;
  return std::nullopt;
}

}  // namespace seqtile::autotune
