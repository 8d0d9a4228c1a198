// tools/cli/tune/miss_requests.cpp -- see miss_requests.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/miss_requests.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <tuple>

#include "autotune/misses.h"

namespace seqtile::cli {
namespace {

std::string text_of_file(const std::string& path) {
  check_is_file("--misses", path, "name a file that an engine's write_misses() has written");
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// By operation, workload and length, so that adjacent buckets follow each other.
void sort_misses(std::vector<Miss>& misses) {
  std::ranges::sort(misses, {}, [](const Miss& miss) {
    return std::tuple(miss.workload.operation, miss.workload.json(), miss.bucket.lo);
  });
}

}  // namespace

MissRequests read_miss_requests(const autotune::Registry& registry, const std::string& path) {
  autotune::MissFile file = autotune::read_miss_file(text_of_file(path), path);
  MissRequests read{.device = file.device, .requests = {}};
  for (Miss& miss : file.misses) {
    miss.workload = name_errors(path, [&] { return registry.find(miss.workload.operation).normalize(miss.workload); });
    read.calls += miss.calls;
  }
  sort_misses(file.misses);
  for (const Miss& miss : file.misses) {
    auto& requests = read.requests;
    if (!requests.empty() && requests.back().workload == miss.workload && requests.back().hi + 1 == miss.bucket.lo)
      requests.back().hi = miss.bucket.hi;
    else requests.push_back({"", miss.workload, miss.bucket.lo, miss.bucket.hi});
  }
  return read;
}

}  // namespace seqtile::cli
