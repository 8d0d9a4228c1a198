// tools/cli/serve/replay_summary.cpp -- see replay_summary.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/serve/replay_summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace seqtile::cli {
namespace {

void print_rows(const TraceSummary& trace, const Stream& stream, bool are_bad_rows_skipped) {
  std::string span = trace.duration_s ? " in " + format_seconds(*trace.duration_s) : "";
  if (trace.unreadable_times > 0)
    span += fmt::format(" ({} missing or unreadable)", format_counted(trace.unreadable_times, "time"));
  print_line(fmt::format("{}{} (lines {} to {} of the trace, layout: {}), {}",
                         format_counted(trace.requests, "request"), span, trace.first_line, trace.last_line,
                         trace.layout, format_counted(stream.distinct_lengths, "distinct length")));
  if (trace.broken_rows > 0)
    print_line(fmt::format("{} left out, {}", format_counted(trace.broken_rows, "broken row"),
                           are_bad_rows_skipped ? "as --skip-bad-rows allows"
                                                : "so this is not the whole trace: exit code 1; correct the rows, or "
                                                  "add --skip-bad-rows"));
}

void print_limits(const Served& served) {
  const Stream& stream = served.stream;
  const std::string positions = "the model's " + format_counted(served.limits.positions, "position");
  if (stream.long_prompts > 0)
    print_line(fmt::format("{} longer than {}: cut there, a server would refuse them",
                           format_counted(stream.long_prompts, "prompt"), positions));
  if (stream.long_requests > 0)
    print_line(fmt::format("{} beyond {} while generating: cut there", format_counted(stream.long_requests, "request"),
                           positions));
  if (const int64_t least = served.limits.least_tokens; least > 1)
    print_line(
        fmt::format("--lengths begins with {}: {} of fewer tokens and all decode steps, which have one, are left "
                    "out; give 1..{} to replay them",
                    least, format_counted(stream.cut_chunks, "chunk"), served.limits.chunk));
}

void print_layers(const LayerReport& layers) {
  const Percentiles call_us = layers.call_us.percentiles(), layer_us = layers.layer_us.percentiles();
  print_line(fmt::format(
      "{} executed: {}, {} verified, largest relative error {:.2g}; {}", format_counted(layers.layers, "decoder layer"),
      format_counted(layers.executed, "operation"), format_count(layers.verified), layers.max_rel_err,
      layers.layer_us.empty()
          ? fmt::format("entry to first program p50 {:.2f} us, p99 {:.2f} us", call_us.p50, call_us.p99)
          : fmt::format("a layer takes p50 {:.0f} us, p99 {:.0f} us, a fused call's entry to its first program p50 "
                        "{:.2f} us, p99 {:.2f} us",
                        layer_us.p50, layer_us.p99, call_us.p50, call_us.p99)));
}

Json times_json(const std::vector<OperationTimes>& times) {
  Json list = Json::array();
  for (const OperationTimes& row : times)
    list.push_back({{"operation", row.label},
                    {"calls", row.calls},
                    {"tuned_s", row.tuned_s},
                    {"default_s", row.default_s},
                    {"padded_s", row.padded_s},
                    {"speedup", row.speedup()}});
  return list;
}

Json percentiles_json(const Percentiles& values) { return {{"p50", values.p50}, {"p99", values.p99}}; }

}  // namespace

void print_summary(const Served& served, bool are_bad_rows_skipped, const std::string& next_prewarm) {
  const auto& [trace, limits, stream, lookups, layers, counters, times, is_served] = served;
  print_rows(trace, stream, are_bad_rows_skipped);
  print_limits(served);
  print_line(fmt::format("planned {} and {}; {} outside of the lengths cut",
                         format_counted(stream.chunks, "prefill chunk"),
                         format_counted(stream.decode_steps, "sampled decode step"),
                         format_counted(stream.cut_decode_steps, "generated token")));
  print_line(fmt::format("{} in {}: {}; p50 {:.0f} ns, p99 {:.0f} ns", format_counted(lookups.lookups, "lookup"),
                         format_counted(lookups.buckets, "bucket"), format_counted(lookups.misses, "miss"),
                         lookups.lookup_ns.p50, lookups.lookup_ns.p99));
  for (const std::string& line : lookups.miss_lines) print_line("  miss: " + line);
  if (lookups.misses > 0 && layers.layers == 0)
    print_line((is_served ? "" : "nothing was executed; ") + ("cover these lengths with " + next_prewarm));
  if (layers.layers > 0) print_layers(layers);
  for (const std::string& line : layers.failures) print_line("  wrong: " + line);
  print_line(fmt::format("while serving: {}, {} ({} at load)", format_counted(counters.tunings, "tuning"),
                         format_counted(counters.compiles, "compile"), format_count(counters.compiles_at_load)));
}

Json summary_json(const Served& served) {
  const auto& [trace, limits, stream, lookups, layers, counters, times, is_served] = served;
  return {{"requests", trace.requests},
          {"broken_rows", trace.broken_rows},
          {"layout", trace.layout},
          {"duration_s", trace.duration_s ? Json(*trace.duration_s) : Json(nullptr)},
          {"unreadable_times", trace.unreadable_times},
          {"positions", limits.positions},
          {"long_prompts", stream.long_prompts},
          {"long_requests", stream.long_requests},
          {"chunks", stream.chunks},
          {"cut_chunks", stream.cut_chunks},
          {"decode_steps", stream.decode_steps},
          {"cut_decode_steps", stream.cut_decode_steps},
          {"distinct_lengths", stream.distinct_lengths},
          {"lookups", lookups.lookups},
          {"buckets", lookups.buckets},
          {"tunings", counters.tunings},
          {"compiles", counters.compiles},
          {"compiles_at_load", counters.compiles_at_load},
          {"misses", lookups.misses},
          {"lookup_ns", percentiles_json(lookups.lookup_ns)},
          {"call_us", percentiles_json(layers.call_us.percentiles())},
          {"layers", layers.layers},
          {"executed", layers.executed},
          {"verified", layers.verified},
          {"max_rel_err", layers.max_rel_err},
          {"times", times_json(times)}};
}

}  // namespace seqtile::cli
