// autotune/plan/calibration.h -- what is known of a machine: its links and its devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "autotune/plan/operator_rule.h"

namespace seqtile::plan {

struct Calibration {
  std::vector<double> alpha, beta;  ///< by mesh axis, seconds and seconds per byte; empty: the defaults
  DeviceFacts device;
  double state_bytes = CalibratedCosts{}.state_bytes;
  /// How many times as long kernels and links each take while both are busy. 1: not at all longer; from 2 on overlap
  /// saves nothing. Products on GPUs were seen at 1.1 to 1.8.
  double overlap_slowdown = 1.2;
};

/// docs/plan_format.md. Errors: io, invalid_argument (no JSON, not this format): one line with the place.
Calibration read_calibration(const std::string& path);
Calibration parse_calibration(const std::string& text, const std::string& name);

/// Sets the mesh's prices. Errors: invalid_argument (of a mesh with another number of axes).
void apply(const Calibration& calibration, Mesh& mesh);
CalibratedCosts costs_of(const Calibration& calibration, bool trains);

}  // namespace seqtile::plan
