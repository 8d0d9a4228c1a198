// planner/strategies/calibration.cpp -- see calibration.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/calibration.h"

#include "jit/base/counted.h"
#include "jit/base/nearest_word.h"
#include "planner/graph/json_reader.h"

#include <fmt/ranges.h>

#include <span>

namespace seqtile::planner {
namespace {

// Links within a machine of eight GPUs, of the same year as the default DeviceFacts.
constexpr double kAlpha = 5e-6, kBeta = 1 / 200e9;

const std::initializer_list<std::string_view> kFields = {
    "alpha",   "beta",   "peak_flops", "bandwidth", "launch_s", "state_bytes", "overlap_slowdown",
    "machine", "fabric", "ranks",      "threads",   "dtype",    "residual"};

/// The range of a plausible machine. A number outside it is a typing error or in another unit.
struct Range {
  double least, most;
  const char* unit;
};
constexpr Range kAlphas{0, 10, "seconds of a message"}, kBetas{0, 1e-3, "seconds of a byte"},
    kPeakFlops{1e3, 1e20, "floating-point operations per second"}, kBandwidths{1e3, 1e18, "bytes per second"},
    kLaunches{0, 10, "seconds of a kernel"}, kStateBytes{0, 1024, "bytes of a parameter"},
    kSlowdowns{1, 100, "times as long"}, kResiduals{0, 1e6, "the fit's relative error"};

constexpr std::string_view kFabrics[] = {"threads", "processes"}, kDtypes[] = {"f32", "bf16", "f16"};

double within(const Reader& json, const Range& range) {
  const double value = json.number();
  if (!(value >= range.least && value <= range.most))
    json.refuse(fmt::format("{} must be {} {}: {}", value, value > range.most ? "at most" : "at least",
                            value > range.most ? range.most : range.least, range.unit));
  return value;
}

std::string one_of(const Reader& json, std::span<const std::string_view> names) {
  const std::string name = json.text();
  if (std::ranges::find(names, name) == names.end())
    json.refuse(fmt::format("\"{}\" is none of {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
  return name;
}

void read_axes(const Reader& root, const char* field, const Range& range, std::vector<double>& values) {
  if (!root.has(field)) return;
  const Reader json = root[field];
  json.each([&](const Reader& value) { values.push_back(within(value, range)); });
  if (values.empty() || values.size() > kMaxAxes) json.refuse(fmt::format("1..{} numbers are wanted", kMaxAxes));
}

autotune::Fields read_machine(const Reader& json) {
  if (!json.json().is_object() || json.json().empty()) json.refuse("an object of texts is wanted");
  autotune::Fields machine;
  for (const auto& [name, value] : json.json().items()) machine.set(name, json[name.c_str()].text());
  return machine;
}

/// Reads the origin; either all of its fields are there or none. Links were measured on each of `num_axes` axes.
std::optional<Measured> read_measured(const Reader& root, size_t num_axes) {
  if (!root.has("machine")) {
    for (const char* field : {"fabric", "ranks", "threads", "dtype", "residual"})
      if (root.has(field)) root.refuse(fmt::format("\"{}\" is there without \"machine\"", field));
    return std::nullopt;
  }
  Measured measured{read_machine(root["machine"]), one_of(root["fabric"], kFabrics), {}, 1, "", {}};
  root["ranks"].each([&](const Reader& n) { measured.ranks.push_back(static_cast<int>(n.integer(2, 1 << 20))); });
  measured.threads = static_cast<int>(root["threads"].integer(1, 1 << 20));
  measured.dtype = one_of(root["dtype"], kDtypes);
  root["residual"].each([&](const Reader& value) { measured.residual.push_back(within(value, kResiduals)); });
  const auto check_axes = [&](const char* field, size_t count) {
    if (count != num_axes)
      root[field].refuse(
          fmt::format("{}, \"alpha\" has {}; give one number for each axis", counted(count, "mesh axis"), num_axes));
  };
  check_axes("ranks", measured.ranks.size());
  check_axes("residual", measured.residual.size());
  return measured;
}

/// The fields that tell `machine` apart from `other`, for messages.
std::string describe(const autotune::Fields& machine, const autotune::Fields& other) {
  constexpr const char* kKind = "device_kind";
  const bool is_same_kind = machine.get_string(kKind, "") == other.get_string(kKind, "");
  std::string text = machine.get_string(kKind, "device");
  for (const auto& [name, value] : machine.values()) {
    const bool is_name = name == "model" || name == "sm";
    const bool is_other = !other.contains(name) || other.get_string(name) != machine.get_string(name);
    if (is_name || (is_same_kind && is_other && name != kKind))
      text += fmt::format(", {} {}", name, machine.get_string(name));
  }
  return one_line(text);
}

}  // namespace

Calibration parse_calibration(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  const Reader root(json, name);
  root.allow(kFields);
  Calibration calibration;
  read_axes(root, "alpha", kAlphas, calibration.alpha);
  read_axes(root, "beta", kBetas, calibration.beta);
  const auto read = [&](const char* field, const Range& range, double& value) {
    if (root.has(field)) value = within(root[field], range);
  };
  read("peak_flops", kPeakFlops, calibration.device.peak_flops);
  read("bandwidth", kBandwidths, calibration.device.bandwidth);
  read("launch_s", kLaunches, calibration.device.launch_s);
  read("state_bytes", kStateBytes, calibration.state_bytes);
  read("overlap_slowdown", kSlowdowns, calibration.overlap_slowdown);
  calibration.measured = read_measured(root, calibration.alpha.size());
  return calibration;
}

Calibration read_calibration(const std::string& path) {
  constexpr const char* kAdvice = "give a file that `seqtile plan calibrate -o FILE` writes (docs/plan_format.md)";
  return parse_calibration(read_text({path, "--calibration", kAdvice}), path);
}

std::string prices_json(const Calibration& calibration) {
  return Json{{"alpha", calibration.alpha},
              {"beta", calibration.beta},
              {"peak_flops", calibration.device.peak_flops},
              {"bandwidth", calibration.device.bandwidth},
              {"launch_s", calibration.device.launch_s},
              {"state_bytes", calibration.state_bytes},
              {"overlap_slowdown", calibration.overlap_slowdown}}
      .dump();
}

std::string calibration_json(const Calibration& calibration) {
  const Measured& measured = *calibration.measured;
  Json fields = Json::parse(prices_json(calibration));
  fields.erase("state_bytes");  // belongs to the optimiser, not to the machine
  fields.update({{"machine", Json::parse(measured.machine.json())},
                 {"fabric", measured.fabric},
                 {"ranks", measured.ranks},
                 {"threads", measured.threads},
                 {"dtype", measured.dtype},
                 {"residual", measured.residual}});
  std::string text = "{";
  for (const std::string_view field : kFields)
    if (const auto value = fields.find(field); value != fields.end())
      text += fmt::format("{}\n  \"{}\": {}", text == "{" ? "" : ",", field, value->dump());
  return text + "\n}\n";
}

void check_machine(const Calibration& calibration, const autotune::Fields& machine, const std::string& name) {
  if (!calibration.measured || calibration.measured->machine == machine) return;
  const autotune::Fields& other = calibration.measured->machine;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: measured on {}; the plan is for {}; run `seqtile plan calibrate` there; plan graph "
                          "and plan model also take the machine of the file with --device",
                          name, describe(other, machine), describe(machine, other)));
}

void apply(const Calibration& calibration, Mesh& mesh) {
  const auto set = [&](const char* field, const std::vector<double>& given, double standard, auto& values) {
    if (!given.empty() && static_cast<int>(given.size()) != mesh.num_axes)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the calibration has \"{}\" of {}, the graph's mesh has {}; give one number for "
                              "each axis",
                              field, counted(given.size(), "mesh axis"), mesh.num_axes));
    for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis)
      values[axis] = given.empty() ? standard : given[axis];
  };
  set("alpha", calibration.alpha, kAlpha, mesh.alpha);
  set("beta", calibration.beta, kBeta, mesh.beta);
}

CalibratedCosts costs_of(const Calibration& calibration, bool trains) {
  CalibratedCosts costs{roofline(calibration.device), calibration.device.launch_s, trains, calibration.state_bytes};
  costs.overlap_slowdown = calibration.overlap_slowdown;
  return costs;
}

}  // namespace seqtile::planner
