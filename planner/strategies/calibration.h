// planner/strategies/calibration.h -- measured facts about a machine: its links and its devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/strategies/operator_rule.h"
#include "seqtile/op.h"

namespace seqtile::planner {

/// The place and the conditions of a calibration's measurement.
struct Measured {
  autotune::Fields machine;      ///< as in the keys of tuning records
  std::string fabric;            ///< Fabric::kind()
  std::vector<int> ranks;        ///< by mesh axis
  int threads = 1;               ///< of each rank
  std::string dtype;             ///< of the measured products
  std::vector<double> residual;  ///< of the fit of the links, by mesh axis (link_fit.h)
};

struct Calibration {
  std::vector<double> alpha, beta;  ///< by mesh axis: seconds, seconds per byte; empty: the defaults
  DeviceFacts device;
  double state_bytes = CalibratedCosts{}.state_bytes;
  /// Factor by which kernels and links slow down while both are busy, within one kernel or side by side. 1: not at all.
  /// From 2 on, overlap saves nothing. Products on GPUs showed 1.1 to 1.8.
  double overlap_slowdown = 1.2;
  std::optional<Measured> measured;  ///< empty if a person wrote the calibration
};

/// Reads a calibration (docs/plan_format.md).
/// Errors: invalid_argument if it cannot be read, is not JSON, or has another form. The message is one line with the
/// place.
Calibration read_calibration(const std::string& path);
Calibration parse_calibration(const std::string& text, const std::string& name);

/// All numbers that decide prices, as a JSON object: the fields of calibration_json() without the origin, and
/// state_bytes.
std::string prices_json(const Calibration& calibration);
/// The calibration as JSON, one field a line, with its origin and without state_bytes. Requires: `measured` has a
/// value.
std::string calibration_json(const Calibration& calibration);
/// Checks that the calibration is for `machine`. A calibration without origin is for any machine.
/// Errors: invalid_argument if it was measured on another machine. The message calls the calibration `name`.
void check_machine(const Calibration& calibration, const autotune::Fields& machine, const std::string& name);

/// Sets the alpha and beta of the mesh.
/// Errors: invalid_argument if the calibration has another number of axes.
void apply(const Calibration& calibration, Mesh& mesh);
/// Prices for generate_calibrated_strategies(); `trains`: a backward pass follows.
CalibratedCosts costs_of(const Calibration& calibration, bool trains);

}  // namespace seqtile::planner
