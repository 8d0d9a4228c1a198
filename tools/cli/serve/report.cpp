// tools/cli/serve/report.cpp -- `seqtile report`: makes one table from the JSON of a prewarm and a replay.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

struct ReportOptions : Options {
  std::string prewarm, replay, torch;
};

/// Seconds that PyTorch's compiler takes for a new sequence length of one function (a norm, two linears, SwiGLU), used
/// unless --torch gives a measurement. Median of 7 lengths; docs/benchmarks.md has the circumstances.
struct TorchTime {
  double new_length_s = 3.18;
  std::string where = "PyTorch 2.15.0, Intel Cascade Lake, 2 vCPUs, 2026";
};

/// The object on the last line of a file. Errors: bad input if one of `fields` is missing.
Json read_object(const std::string& flag, const std::string& path, std::initializer_list<const char*> fields) {
  check_is_file(flag, path, "give the output of a run with --json");
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line))
    if (!line.empty()) last = line;
  Json object = Json::parse(last, nullptr, false);
  if (!object.is_object())
    bad_input(
        fmt::format("{} {}: its last line is not a JSON object; give the output of a run with --json", flag, path));
  for (const char* field : fields)
    if (!object.contains(field))
      bad_input(fmt::format("{} {}: has no field {}; the output is of another command", flag, path, field));
  return object;
}

TorchTime torch_time(const std::string& path) {
  TorchTime time;
  if (path.empty()) return time;
  const Json measured = read_object("--torch", path, {"new_length_s", "version"});
  return {measured["new_length_s"],
          fmt::format("PyTorch {}, this machine, now", measured["version"].get<std::string>())};
}

void print_operations(const Json& operations) {
  Table table({"operation", "calls", "time, one layer", "tuned over default"});
  for (const Json& row : operations)
    table.add({row["operation"], format_count(row["calls"]), format_seconds(row["tuned_s"]),
               fmt::format("{:.2f} times", row["speedup"].get<double>())});
  table.print();
}

int run(const Session&, const ReportOptions& options) {
  const Json prewarm =
      read_object("--prewarm", options.prewarm, {"operations", "ranges", "tunings", "coverage_seconds"});
  const Json replay = read_object("--replay", options.replay, {"requests", "lookup_ns", "call_us", "times"});
  const TorchTime torch = torch_time(options.torch);
  const int64_t tunings = prewarm["tunings"], distinct = replay["distinct_lengths"], operations = prewarm["operations"];
  const double tuning_s = prewarm["seconds"].get<double>() - prewarm["coverage_seconds"].get<double>();
  const double per_tuning_s = tunings > 0 ? tuning_s / static_cast<double>(tunings) : 0;
  const double every_length_s = per_tuning_s * static_cast<double>(distinct * operations);
  double tuned_s = 0, padded_s = 0;
  for (const Json& row : replay["times"]) {
    tuned_s += row["tuned_s"].get<double>();
    padded_s += row["padded_s"].get<double>();
  }
  const double padding_percent = tuned_s > 0 ? 100 * (padded_s / tuned_s - 1) : 0;
  const double torch_s = torch.new_length_s * static_cast<double>(distinct);

  print_operations(replay["times"]);
  print_line("");
  Table table({"what happened", "", "how it is known"});
  const auto count = [](const Json& value) { return format_count(value.get<int64_t>()); };
  const int64_t left_out = replay.value("broken_rows", int64_t{0});
  table.add({"requests", count(replay["requests"]),
             left_out > 0 ? format_counted(left_out, "broken row") + " left out" : "all rows of the trace"});
  table.add({"distinct lengths", count(replay["distinct_lengths"]), ""});
  table.add({"buckets touched", count(replay["buckets"]), format_counted(operations, "operation")});
  table.add({"ranges", count(prewarm["ranges"]), "from " + format_counted(tunings, "tuning")});
  table.add({"tunings while serving", count(replay["tunings"]), "counter"});
  table.add({"compiles while serving", count(replay["compiles"]), "counter"});
  const Json &lookup = replay["lookup_ns"], &call = replay["call_us"];
  table.add({"lookup p50 / p99",
             fmt::format("{:.0f} / {:.0f} ns", lookup["p50"].get<double>(), lookup["p99"].get<double>()),
             "calls of the trace, drawn at random"});
  table.add({"host overhead p50 / p99",
             fmt::format("{:.2f} / {:.2f} us", call["p50"].get<double>(), call["p99"].get<double>()),
             "call to first program"});
  table.print();
  print_line("");
  Table others({"what the alternatives cost", "", "how it is known"});
  others.add({"tuning every distinct length", format_seconds(every_length_s),
              tunings > 0 ? fmt::format("{:.2f} s per tuning here x {} x {}", per_tuning_s,
                                        format_counted(distinct, "length"), format_counted(operations, "operation"))
                          : "nothing was tuned in this run"});
  others.add({"padding to a power of two", fmt::format("{:.0f} % more time", padding_percent),
              "measured times of the records"});
  others.add({"torch.compile, static shapes", format_seconds(torch_s),
              fmt::format("{:.2f} s per new length and function; {}", torch.new_length_s, torch.where)});
  others.print();
  if (options.json)
    print_json({{"requests", replay["requests"]},
                {"distinct_lengths", distinct},
                {"buckets", replay["buckets"]},
                {"ranges", prewarm["ranges"]},
                {"tunings", replay["tunings"]},
                {"compiles", replay["compiles"]},
                {"lookup_ns", lookup},
                {"call_us", call},
                {"seconds_per_tuning", per_tuning_s},
                {"tune_every_length_s", every_length_s},
                {"padding_percent", padding_percent},
                {"torch_s", torch_s}});
  return kDone;
}

}  // namespace

void add_report(CLI::App& app, Session& session) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App& command =
      add_command(app, session, "report", "One table from the JSON of a prewarm and a replay",
                  "  seqtile prewarm --model config.json --lengths 1..4096 --cache tuning.db --json > prewarm.json\n"
                  "  seqtile replay --model config.json --requests trace.csv --cache tuning.db --json > replay.json\n"
                  "  seqtile report --prewarm prewarm.json --replay replay.json",
                  options, run);
  command.add_option("--prewarm", options->prewarm, "Output of `seqtile prewarm --json`")
      ->type_name("FILE")
      ->required();
  command.add_option("--replay", options->replay, "Output of `seqtile replay --json`")->type_name("FILE")->required();
  command.add_option("--torch", options->torch, "Output of tools/torch_new_length.py on this machine")
      ->type_name("FILE");
}

}  // namespace seqtile::cli
