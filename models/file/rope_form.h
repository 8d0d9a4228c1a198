// models/file/rope_form.h -- how positions become rotations of queries and keys, independent of the file's spelling.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "jit/device/tensor.h"

namespace seqtile::models {

/// A rope with all values resolved: defaults are filled in, and factors that depend on other fields are computed.
/// Source: Su et al., RoFormer (2021); the scalings follow the transformers classes that write model files.
struct RopeForm {
  std::string type = "default";  ///< default | linear | dynamic | yarn | longrope | llama3
  double theta = 10000;
  int64_t rotary_dim = 0;  ///< leading elements of a head that are rotated; the rest is copied
  double factor = 1;       ///< not for default and longrope
  /// dynamic, longrope: sequences longer than this have other frequencies. yarn, llama3: the length before the scaling.
  int64_t original_max_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  bool truncate = true;                              ///< yarn: the ends of the ramp are whole dimensions
  double attention_factor = 1;                       ///< yarn, longrope: multiplies cosine and sine
  std::vector<double> short_factor, long_factor;     ///< longrope, one for each pair

  friend bool operator==(const RopeForm&, const RopeForm&) = default;
};

/// The frequency of each pair in turns per position, for sequences of up to `length` positions.
std::vector<double> rope_frequencies(const RopeForm& form, int64_t length);
/// Whether the frequencies depend on the length. If so, every call needs a newly filled table.
bool depends_on_length(const RopeForm& form);
/// Fills the table of the operation rope (kernels/rows/rope.h). Errors: as kernels::fill_rope_table().
void fill_rope_table(const RopeForm& form, int64_t length, const Tensor& table);

}  // namespace seqtile::models
