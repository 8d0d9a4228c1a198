// tools/cli/tune/coverage.cpp -- see coverage.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "autotune/engine/usable.h"
#include "autotune/grade.h"
#include "autotune/key_difference.h"
#include "autotune/keys.h"
#include "seqtile/op.h"
#include "tools/cli/key_text.h"

namespace seqtile::cli {
namespace {

using autotune::Bucket;

void add_gap(Coverage& coverage, const std::string& operation, const Bucket& part, const std::string& reason) {
  if (!coverage.gaps.empty() && coverage.gaps.back().hi + 1 == part.lo && coverage.gaps.back().reason == reason)
    coverage.gaps.back().hi = part.hi;
  else coverage.gaps.push_back({operation, part.lo, part.hi, reason});
}

}  // namespace

Coverage coverage_of(const autotune::Registry& registry, const autotune::TuneRequest& request, autotune::Grade wanted,
                     const Options& options, Device& device, cache::TuningStore& store, cache::ArtifactDb& artifacts) {
  const autotune::OpDef& op = registry.find(request.workload.operation);
  const cache::TuningKey key = autotune::make_key(op, request.workload, device.info(), autotune::TuneOptions{}.policy);
  const std::string tuning = next_step(options.model.empty() ? "tune" : "prewarm", options);
  const std::string replaced = "; " + tuning + " replaces it";
  std::string build;                          // next step for a missing binary
  std::map<int64_t, std::string> problems;    // buckets with a record, by lo; an empty text: the record serves
  std::map<int64_t, autotune::Grade> grades;  // grades of the records that serve
  std::vector<cache::BadRecord> bad;
  autotune::Usability usable(op, request.workload, device.target());
  const std::vector<cache::Record> records = store.records(key, &bad);
  for (const cache::BadRecord& row : bad) problems[row.lo] = "the record does not serve: " + row.reason + replaced;
  for (const cache::Record& record : records) {
    const autotune::Judgement judgement = usable.judge(record, device, artifacts);
    if (!judgement.lack.empty() && build.empty()) build = "; " + build_step(options, artifacts);
    if (judgement.is_ready()) problems[record.lo] = "", grades[record.lo] = autotune::grade_of(record);
    else
      problems.try_emplace(record.lo, judgement.is_usable()
                                          ? judgement.lack + build
                                          : "the record does not serve: " + judgement.refusal + replaced);
  }
  std::string no_record = "no record; run " + tuning;
  if (records.empty()) {
    const auto difference = autotune::key_difference(store, key);
    if (!difference.empty()) no_record += " (nearest key differs in " + difference.front() + ")";
  }

  Coverage coverage;
  for (const Bucket& bucket : autotune::buckets(request.lo, request.hi)) {
    const Bucket part{std::max(bucket.lo, request.lo), std::min(bucket.hi, request.hi)};
    const int64_t lengths = part.hi - part.lo + 1;
    coverage.lengths += lengths;
    const auto grade = grades.find(bucket.lo);
    if (grade == grades.end()) {
      const auto found = problems.find(bucket.lo);
      add_gap(coverage, request.label, part, found == problems.end() ? no_record : found->second);
      continue;
    }
    coverage.built += lengths;
    if (grade->second >= autotune::Grade::measured) coverage.measured += lengths;
    if (grade->second == autotune::Grade::searched) coverage.searched += lengths;
    if (grade->second >= wanted) coverage.covered += lengths;
    else
      add_gap(
          coverage, request.label, part,
          fmt::format("{}, not {}; run {}", autotune::grade_name(grade->second), autotune::grade_name(wanted), tuning));
  }
  coverage.stages = usable.stages();
  return coverage;
}

}  // namespace seqtile::cli
