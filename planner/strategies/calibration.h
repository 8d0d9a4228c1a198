// planner/strategies/calibration.h -- what is known of a machine: its links and its devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "autotune/fields.h"
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

/// Where and how a calibration was measured.
struct Measured {
  autotune::Fields machine;      ///< as in the keys of tuning records
  std::string fabric;            ///< Fabric::kind()
  std::vector<int> ranks;        ///< by mesh axis
  int threads = 1;               ///< of a rank
  std::string dtype;             ///< of the products
  std::vector<double> residual;  ///< of the links' fit, by mesh axis (link_fit.h)
};

struct Calibration {
  std::vector<double> alpha, beta;  ///< by mesh axis, seconds and seconds per byte; empty: the defaults
  DeviceFacts device;
  double state_bytes = CalibratedCosts{}.state_bytes;
  /// How many times as long kernels and links each take while both are busy, within a kernel and beside it. 1: not at
  /// all longer; from 2 on overlap saves nothing. Products on GPUs were seen at 1.1 to 1.8.
  double overlap_slowdown = 1.2;
  std::optional<Measured> measured;  ///< nothing where a person wrote it
};

/// docs/plan_format.md. Errors: invalid_argument (cannot be read, no JSON, not this format): one line with the place.
Calibration read_calibration(const std::string& path);
Calibration parse_calibration(const std::string& text, const std::string& name);

/// All numbers that decide prices, as a JSON object: what calibration_json() has but for what was measured where.
std::string prices_json(const Calibration& calibration);
/// The JSON of what was measured, one field a line. Requires: `measured` is there.
std::string calibration_json(const Calibration& calibration);
/// Errors: invalid_argument where the calibration was measured on another machine; `name` of it is for the message.
void check_machine(const Calibration& calibration, const autotune::Fields& machine, const std::string& name);

/// Sets the mesh's prices. Errors: invalid_argument (of a mesh with another number of axes).
void apply(const Calibration& calibration, Mesh& mesh);
CalibratedCosts costs_of(const Calibration& calibration, bool trains);

}  // namespace seqtile::planner
