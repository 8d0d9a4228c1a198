// bench/report.h -- results as a table for people and as Google Benchmark JSON for tools.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "bench/harness.h"

namespace seqtile::bench {

struct CaseResults {
  Case shape;
  std::vector<Result> results;
};

/// Seconds that the best probes of this process allow: max(flops / peak, bytes / bandwidth). 0 without work.
double roofline_seconds(const Case& shape);

/// Paired by round: median of peer / ours, its p20 and p80. `peer` is empty when nothing is there to compare with.
struct Ratio {
  std::string peer;
  double median = 0, p20 = 0, p80 = 0;
};
/// Against the peer with the smallest median. Peers with packed weights only count for `_packed` implementations of
/// ours.
Ratio ratio_to_best_peer(const Result& ours, const std::vector<Result>& all);

/// One line per implementation.
void print_case(const CaseResults& item);
/// Per operation, dtype and group: geometric means and worst cases of our implementations; then rates per first shape
/// word.
void print_summary(const std::vector<CaseResults>& items);
/// One object on one line: cases, failed, benchmarks as in the file.
std::string json_line(const std::vector<CaseResults>& items);
/// Errors: io when the file cannot be written.
void write_json(const std::string& path, const std::vector<CaseResults>& items,
                const std::vector<std::pair<std::string, std::string>>& peer_versions);

}  // namespace seqtile::bench
