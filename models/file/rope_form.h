// models/file/rope_form.h -- how positions become rotations of queries and keys, whatever the spelling of the model
// file.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "jit/device/tensor.h"

namespace seqtile::models {

/// All values are resolved: defaults are filled in, factors that depend on others are computed.
/// Source: Su et al., RoFormer (2021); the scalings as the classes that write model files compute them.
struct RopeForm {
  std::string type = "default";  ///< default | linear | dynamic | yarn | longrope | llama3
  double theta = 10000;
  int64_t rotary_dim = 0;  ///< elements of a head that are rotated, the first ones; the rest is copied
  double factor = 1;       ///< not of default and longrope
  /// dynamic, longrope: longer sequences have other frequencies; yarn, llama3: the length before the scaling.
  int64_t original_max_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  bool truncate = true;                              ///< yarn: bounds of the ramp are whole dimensions
  double attention_factor = 1;                       ///< yarn, longrope: multiplies cosine and sine
  std::vector<double> short_factor, long_factor;     ///< longrope, one a pair

  friend bool operator==(const RopeForm&, const RopeForm&) = default;
};

/// Turns per position of each pair, for sequences of up to `length` positions.
std::vector<double> rope_frequencies(const RopeForm& form, int64_t length);
/// Whether longer sequences have other frequencies: a table is filled anew for every call then.
bool depends_on_length(const RopeForm& form);
/// The table of the operation rope (kernels/rows/rope.h). Errors: as kernels::fill_rope_table().
void fill_rope_table(const RopeForm& form, int64_t length, const Tensor& table);

}  // namespace seqtile::models
