// bench/report.cpp -- computes rates and ratios, prints tables, writes JSON.
// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bench/machine.h"
#include "bench/probe.h"
#include "bench/stats.h"
#include "seqtile/error.h"

namespace seqtile::bench {
namespace {

bool is_ours(const std::string& implementation) { return implementation.rfind("seqtile", 0) == 0; }
bool is_packed(const std::string& implementation) { return implementation.find("_packed") != std::string::npos; }

/// GFLOP/s if the work has multiply-adds, else GB/s.
double rate(const Work& work, double seconds) {
  if (seconds <= 0) return 0;
  return (work.flops > 0 ? work.flops : work.bytes_read + work.bytes_written) / seconds / 1e9;
}

const char* rate_unit(const Work& work) { return work.flops > 0 ? "GFLOP/s" : "GB/s"; }

bool has_work(const Work& work) { return work.flops > 0 || work.bytes_read + work.bytes_written > 0; }

std::string duration(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.1f} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

struct Group {
  std::vector<double> ratios, roofline_shares;
  double worst = 1e30;
  std::string worst_name;
};

using Groups = std::map<std::tuple<std::string, std::string, std::string>, Group>;

Groups grouped(const std::vector<CaseResults>& items) {
  Groups groups;
  for (const auto& [shape, results] : items) {
    for (const auto& result : results) {
      if (!is_ours(result.implementation) || result.seconds.empty() || shape.group.empty()) continue;
      Group& group = groups[{shape.operation + "/" + shape.dtype, shape.group, result.implementation}];
      const double bound = roofline_seconds(shape);
      if (bound > 0) group.roofline_shares.push_back(bound / median(result.seconds));
      const Ratio ratio = ratio_to_best_peer(result, results);
      if (ratio.peer.empty()) continue;
      group.ratios.push_back(ratio.median);
      if (ratio.median < group.worst) group.worst_name = shape.name(ratio.peer);
      group.worst = std::min(group.worst, ratio.median);
    }
  }
  return groups;
}

/// Prints geometric means of the rate over shapes with the same operation, dtype, first word of the shape and threads.
void print_rates(const std::vector<CaseResults>& items) {
  std::map<std::string, std::map<std::string, std::vector<double>>> table;
  std::vector<std::string> order;
  for (const auto& [shape, results] : items) {
    if (!has_work(shape.work)) continue;
    const std::string row =
        fmt::format("{}/{}/{}/t{} {}", shape.operation, shape.dtype, shape.shape.substr(0, shape.shape.find('_')),
                    shape.threads, rate_unit(shape.work));
    if (!table.count(row)) order.push_back(row);
    table[row]["roofline"].push_back(rate(shape.work, roofline_seconds(shape)));
    for (const auto& result : results) {
      if (!result.seconds.empty())
        table[row][result.implementation].push_back(rate(shape.work, median(result.seconds)));
    }
  }
  if (!order.empty()) fmt::print("\ngeometric means of the rate (in brackets: shapes)\n");
  for (const auto& row : order) {
    std::string line = fmt::format("{:<44}", row);
    for (const auto& [implementation, rates] : table[row]) {
      line += fmt::format("  {} {:.1f} ({})", implementation, geometric_mean(rates), rates.size());
    }
    fmt::print("{}\n", line);
  }
}

/// Prints the ratios "a_over_b" that benchmarks count themselves: geometric means and extremes over a group's shapes.
void print_counted_ratios(const std::vector<CaseResults>& items) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<double>> ratios;
  for (const auto& [shape, results] : items)
    for (const auto& result : results)
      for (const auto& [counter, value] : result.counters)
        if (counter.find("_over_") != std::string::npos)
          ratios[{shape.operation + "/" + shape.dtype, shape.group, counter}].push_back(value);
  if (!ratios.empty())
    fmt::print("\nratios of what rounds gave side by side: geometric mean (least .. most; shapes)\n");
  for (const auto& [key, values] : ratios) {
    const auto& [operation, group, counter] = key;
    const auto [least, most] = std::ranges::minmax(values);
    fmt::print("{:<46} {:<10} {:<20} {:.2f} ({:.2f} .. {:.2f}; {})\n", operation, group, counter,
               geometric_mean(values), least, most, values.size());
  }
}

nlohmann::json entry(const Case& shape, const Result& result, const std::vector<Result>& all) {
  nlohmann::json json = {{"name", shape.name(result.implementation)},
                         {"run_name", shape.name(result.implementation)},
                         {"run_type", "iteration"},
                         {"repetitions", result.seconds.size()},
                         {"repetition_index", 0},
                         {"threads", shape.threads},
                         {"iterations", result.calls}};
  if (!result.failure.empty()) {
    json["error_occurred"] = true;
    json["error_message"] = result.failure;
    return json;
  }
  const double middle = median(result.seconds), bound = roofline_seconds(shape);
  json["real_time"] = json["cpu_time"] = middle * 1e6;
  json["time_unit"] = "us";
  json["p20_us"] = quantile(result.seconds, 0.2) * 1e6;
  json["p80_us"] = quantile(result.seconds, 0.8) * 1e6;
  json["max_error"] = result.max_error;
  if (has_work(shape.work)) json[shape.work.flops > 0 ? "gflops" : "gbs"] = rate(shape.work, middle);
  if (bound > 0) json["percent_of_roofline"] = 100 * bound / middle;
  for (const auto& [name, value] : result.counters) json[name] = value;
  if (!result.label.empty()) json["label"] = result.label;
  const Ratio ratio = ratio_to_best_peer(result, all);
  if (!ratio.peer.empty()) {
    json["best_peer"] = ratio.peer;
    json["ratio_to_best_peer"] = ratio.median;
    json["ratio_p20"] = ratio.p20;
    json["ratio_p80"] = ratio.p80;
  }
  return json;
}

nlohmann::json roofline_entry(const Case& shape) {
  const double us = roofline_seconds(shape) * 1e6;
  return {{"name", shape.name("roofline")},
          {"run_name", shape.name("roofline")},
          {"run_type", "iteration"},
          {"repetitions", 1},
          {"repetition_index", 0},
          {"threads", shape.threads},
          {"iterations", 1},
          {"real_time", us},
          {"cpu_time", us},
          {"time_unit", "us"},
          {"peak_gflops", best_peak_gflops(shape.work.peak_dtype, shape.threads)},
          {"bandwidth_gbs", best_bandwidth_gbs(shape.work.bytes_read, shape.work.bytes_written, shape.threads)}};
}

nlohmann::json entries(const std::vector<CaseResults>& items) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [shape, results] : items) {
    for (const auto& result : results) list.push_back(entry(shape, result, results));
    if (roofline_seconds(shape) > 0) list.push_back(roofline_entry(shape));
  }
  return list;
}

}  // namespace

std::string json_line(const std::vector<CaseResults>& items) {
  int64_t failed = 0;
  for (const auto& item : items) {
    for (const auto& result : item.results) failed += !result.failure.empty();
  }
  return nlohmann::json{{"cases", items.size()}, {"failed", failed}, {"benchmarks", entries(items)}}.dump();
}

double roofline_seconds(const Case& shape) {
  const Work& work = shape.work;
  const double peak = best_peak_gflops(work.peak_dtype, shape.threads);
  const double bandwidth = best_bandwidth_gbs(work.bytes_read, work.bytes_written, shape.threads);
  if (!has_work(work) || peak <= 0 || bandwidth <= 0) return 0;
  return std::max(work.flops / peak, (work.bytes_read + work.bytes_written) / bandwidth) / 1e9;
}

Ratio ratio_to_best_peer(const Result& ours, const std::vector<Result>& all) {
  Ratio ratio;
  if (!is_ours(ours.implementation) || ours.seconds.empty()) return ratio;
  const Result* best = nullptr;
  for (const auto& peer : all) {
    if (is_ours(peer.implementation) || peer.seconds.size() != ours.seconds.size()) continue;
    if (is_packed(peer.implementation) && !is_packed(ours.implementation)) continue;
    if (!best || median(peer.seconds) < median(best->seconds)) best = &peer;
  }
  if (!best) return ratio;
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.seconds.size(); ++i) ratios.push_back(best->seconds[i] / ours.seconds[i]);
  return {best->implementation, median(ratios), quantile(ratios, 0.2), quantile(ratios, 0.8)};
}

void print_case(const CaseResults& item) {
  const auto& [shape, results] = item;
  const double bound = roofline_seconds(shape);
  for (const auto& result : results) {
    const std::string name = shape.name(result.implementation);
    if (!result.failure.empty()) {
      fmt::print("{:<64} failed: {}\n", name, result.failure);
      continue;
    }
    std::string line = fmt::format("{:<64} {:>11}  {:>11} .. {:<11}", name, duration(median(result.seconds)),
                                   duration(quantile(result.seconds, 0.2)), duration(quantile(result.seconds, 0.8)));
    if (has_work(shape.work)) {
      line += fmt::format(" {:>8.1f} {}", rate(shape.work, median(result.seconds)), rate_unit(shape.work));
    }
    if (bound > 0) line += fmt::format(" {:>5.1f} % of roofline", 100 * bound / median(result.seconds));
    for (const auto& [counter, value] : result.counters) line += fmt::format("  {} {:.6g}", counter, value);
    const Ratio ratio = ratio_to_best_peer(result, results);
    if (!ratio.peer.empty()) {
      line += fmt::format("  {:.2f} x {} ({:.2f} .. {:.2f})", ratio.median, ratio.peer, ratio.p20, ratio.p80);
    }
    if (!result.label.empty()) line += "  " + result.label;
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

void print_summary(const std::vector<CaseResults>& items) {
  print_rates(items);
  print_counted_ratios(items);
  const Groups groups = grouped(items);
  if (!groups.empty()) fmt::print("\nagainst the best peer of every shape, all thread counts\n");
  for (const auto& [key, group] : groups) {
    const auto& [operation, name, implementation] = key;
    std::string line = fmt::format("{:<24} {:<10} {:<16}", operation, name, implementation);
    if (!group.ratios.empty()) {
      line += fmt::format(" {:.2f} x geometric mean of {}, worst {:.2f} ({})", geometric_mean(group.ratios),
                          group.ratios.size(), group.worst, group.worst_name);
    }
    if (!group.roofline_shares.empty()) {
      line += fmt::format("; roofline: {:.0f} % geometric mean, {:.0f} % worst",
                          100 * geometric_mean(group.roofline_shares),
                          100 * *std::min_element(group.roofline_shares.begin(), group.roofline_shares.end()));
    }
    fmt::print("{}\n", line);
  }
}

void write_json(const std::string& path, const std::vector<CaseResults>& items,
                const std::vector<std::pair<std::string, std::string>>& peer_versions) {
  nlohmann::json context;
  for (const auto& [name, value] : machine_facts()) context[name] = value;
  context["num_cpus"] = usable_cores();
  context["library_build_type"] = "release";
  for (const auto& [name, version] : peer_versions) context["peer_" + name] = version;
  std::ofstream file(path);
  file << nlohmann::json{{"context", context}, {"benchmarks", entries(items)}}.dump(1) << "\n";
  file.flush();
  if (!file) {
    throw Error(ErrorCode::io, "bench: cannot write " + path + "; give --output a writable file");
  }
}

}  // namespace seqtile::bench
