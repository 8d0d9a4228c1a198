// autotune/plan/calibration.cpp -- see calibration.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/calibration.h"

#include <cmath>

#include "autotune/plan/json_reader.h"

namespace seqtile::plan {
namespace {

// Links within a machine of eight GPUs of the device facts' year.
constexpr double kAlpha = 5e-6, kBeta = 1 / 200e9;

double at_least(const Reader& json, double least, bool may_be_equal) {
  const double value = json.number();
  if (!std::isfinite(value) || value < least || (value == least && !may_be_equal))
    json.refuse(fmt::format("{} must be {} {}", value, may_be_equal ? "at least" : "more than", least));
  return value;
}

void read_axes(const Reader& root, const char* field, std::vector<double>& values) {
  if (!root.has(field)) return;
  const Reader json = root[field];
  json.each([&](const Reader& value) { values.push_back(at_least(value, 0, true)); });
  if (values.empty() || values.size() > kMaxAxes) json.refuse(fmt::format("1..{} numbers are wanted", kMaxAxes));
}

}  // namespace

Calibration parse_calibration(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  const Reader root(json, name);
  root.allow({"alpha", "beta", "peak_flops", "bandwidth", "launch_s", "state_bytes", "overlap_slowdown"});
  Calibration calibration;
  read_axes(root, "alpha", calibration.alpha);
  read_axes(root, "beta", calibration.beta);
  const auto read = [&](const char* field, double& value, bool may_be_zero) {
    if (root.has(field)) value = at_least(root[field], 0, may_be_zero);
  };
  read("peak_flops", calibration.device.peak_flops, false);
  read("bandwidth", calibration.device.bandwidth, false);
  read("launch_s", calibration.device.launch_s, true);
  read("state_bytes", calibration.state_bytes, true);
  if (root.has("overlap_slowdown")) calibration.overlap_slowdown = at_least(root["overlap_slowdown"], 1, true);
  return calibration;
}

Calibration read_calibration(const std::string& path) { return parse_calibration(read_text(path), path); }

void apply(const Calibration& calibration, Mesh& mesh) {
  const auto set = [&](const char* field, const std::vector<double>& given, double standard, auto& values) {
    if (!given.empty() && static_cast<int>(given.size()) != mesh.num_axes)
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("the calibration has \"{}\" of {} mesh axes, the graph's mesh has {}; give one number for "
                      "each axis",
                      field, given.size(), mesh.num_axes));
    for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis)
      values[axis] = given.empty() ? standard : given[axis];
  };
  set("alpha", calibration.alpha, kAlpha, mesh.alpha);
  set("beta", calibration.beta, kBeta, mesh.beta);
}

CalibratedCosts costs_of(const Calibration& calibration, bool trains) {
  return {roofline(calibration.device), calibration.device.launch_s, trains, calibration.state_bytes};
}

}  // namespace seqtile::plan
