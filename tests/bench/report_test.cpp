// tests/bench/report_test.cpp -- statistics, ratios and the JSON file.
// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/probe.h"
#include "bench/stats.h"
#include "seqtile/error.h"

namespace seqtile::bench {
namespace {

Result timed(const std::string& implementation, std::vector<double> seconds) {
  Result result;
  result.implementation = implementation;
  result.calls = static_cast<int64_t>(seconds.size());
  result.seconds = std::move(seconds);
  return result;
}

}  // namespace

TEST_CASE("stats: quantiles interpolate, means are geometric", "[bench]") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1}) == 2.5);
  CHECK(quantile({0, 10}, 0.2) == Approx(2));
  CHECK(geometric_mean({2, 8}) == Approx(4));
  CHECK(median({}) == 0);
}

TEST_CASE("report: ratios pair the calls of one round", "[bench]") {
  // The machine slows down by two in the second half, but each round's ratio is 1.5.
  const Result ours = timed("seqtile", {1, 1, 2, 2}), peer = timed("openblas", {1.5, 1.5, 3, 3});
  const Ratio ratio = ratio_to_best_peer(ours, {ours, peer});
  CHECK(ratio.peer == "openblas");
  CHECK(ratio.median == Approx(1.5));
  CHECK(ratio.p20 == Approx(1.5));
  CHECK(ratio.p80 == Approx(1.5));
}

TEST_CASE("report: the best peer counts, packed ones only against packed weights of ours", "[bench]") {
  const Result ours = timed("seqtile", {2, 2}), packed = timed("seqtile_packed", {2, 2});
  const Result slow = timed("mkl", {8, 8}), fast = timed("torch", {4, 4}),
               their_packed = timed("onednn_packed", {1, 1});
  const std::vector<Result> all = {ours, packed, slow, fast, their_packed};
  CHECK(ratio_to_best_peer(ours, all).peer == "torch");
  CHECK(ratio_to_best_peer(ours, all).median == Approx(2));
  CHECK(ratio_to_best_peer(packed, all).peer == "onednn_packed");
  CHECK(ratio_to_best_peer(packed, all).median == Approx(0.5));
  CHECK(ratio_to_best_peer(fast, all).peer.empty());
  CHECK(ratio_to_best_peer(ours, {ours, packed}).peer.empty());
}

TEST_CASE("report: the roofline is the slower of arithmetic and memory", "[bench]") {
  probe_peak_gflops(DType::f32, 1);
  probe_bandwidth_gbs(1, 0, 1);
  Case item;
  item.work = {.flops = 1e9, .bytes_read = 1};
  CHECK(roofline_seconds(item) == Approx(1 / best_peak_gflops(DType::f32, 1)));
  item.work = {.flops = 1, .bytes_read = 1e9};
  CHECK(roofline_seconds(item) == Approx(1 / best_bandwidth_gbs(1, 0, 1)));
  item.work = {};
  CHECK(roofline_seconds(item) == 0);
}

TEST_CASE("report: the file has Google Benchmark's shape and keeps failures", "[bench]") {
  Case item{.operation = "op", .dtype = "f32", .shape = "m1", .threads = 1};
  Result failed;
  failed.implementation = "mkl";
  failed.failure = "not there";
  const std::string path =
      std::filesystem::temp_directory_path() / std::string("seqtile_report_").append(std::to_string(getpid()));
  write_json(path, {{item, {timed("seqtile", {1e-6, 3e-6}), timed("torch", {4e-6, 6e-6}), failed}}},
             {{"torch", "2.0"}});
  const auto json = nlohmann::json::parse(std::ifstream(path));
  std::remove(path.c_str());
  for (const char* fact : {"date", "commit", "cpu", "num_cpus", "clock_mhz", "driver", "peer_torch"}) {
    CHECK(json["context"].contains(fact));
  }
  const auto& ours = json["benchmarks"][0];
  CHECK(ours["name"] == "op/f32/m1/seqtile/t1");
  CHECK(ours["real_time"].get<double>() == Approx(2));
  CHECK(ours["time_unit"] == "us");
  CHECK(ours["run_type"] == "iteration");
  CHECK(ours["best_peer"] == "torch");
  CHECK(json["benchmarks"][2]["error_occurred"] == true);
  CHECK(json["benchmarks"][2]["error_message"] == "not there");
  CHECK_THROWS_AS(write_json("/nonexistent/x.json", {}, {}), Error);
}

}  // namespace seqtile::bench
