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

/// Lower bound of the seconds of a case, by the best probes of this process: max(flops / peak, bytes / bandwidth). 0
/// without work.
double roofline_seconds(const Case& shape);

/// Ratio peer / ours of times of the same round: median, p20 and p80. `peer` is empty if there is no peer.
struct Ratio {
  std::string peer;
  double median = 0, p20 = 0, p80 = 0;
};
/// Compares with the peer of the smallest median. A peer with packed weights counts only against our `_packed`
/// implementations.
Ratio ratio_to_best_peer(const Result& ours, const std::vector<Result>& all);

/// Prints one line for each implementation.
void print_case(const CaseResults& item);
/// Prints rates by first word of the shape, then the ratios that benchmarks count, then geometric means and worst cases
/// of our implementations by operation, dtype and group.
void print_summary(const std::vector<CaseResults>& items);
/// One JSON object on one line: cases, failed, and the benchmarks as in the file.
std::string json_line(const std::vector<CaseResults>& items);
/// Writes Google Benchmark JSON. Errors: io if the file cannot be written.
void write_json(const std::string& path, const std::vector<CaseResults>& items,
                const std::vector<std::pair<std::string, std::string>>& peer_versions);

}  // namespace seqtile::bench
