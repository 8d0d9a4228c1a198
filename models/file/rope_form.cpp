// models/file/rope_form.cpp -- see seqtile/model.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "jit/base/assert.h"
#include "seqtile/ops/rows.h"

namespace seqtile::models {
namespace {

/// Interpolates positions by `factor` for pairs with few turns over a whole context, and not for pairs with many turns.
/// Source: Peng et al., YaRN, ICLR 2024, section 3.
void scale_by_yarn(const RopeForm& form, std::vector<double>& turns) {
  const auto dim = static_cast<double>(form.rotary_dim), context = static_cast<double>(form.original_max_positions);
  const auto pair_with = [&](double rotations) {
    return dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(form.theta));
  };
  double low = pair_with(form.beta_fast), high = pair_with(form.beta_slow);
  if (form.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < turns.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    turns[i] *= interpolated / form.factor + 1 - interpolated;
  }
}

/// Short wavelengths stay, long ones are stretched by `factor`, and the frequencies between are blended. Source: Llama
/// 3.1.
void scale_by_llama3(const RopeForm& form, std::vector<double>& turns) {
  for (double& turn : turns) {
    const double rotations = turn * static_cast<double>(form.original_max_positions);
    const double kept = (rotations - form.low_freq_factor) / (form.high_freq_factor - form.low_freq_factor);
    const double share = std::clamp(kept, 0.0, 1.0);
    turn *= share + (1 - share) / form.factor;
  }
}

/// The base grows with lengths beyond the original context ("NTK-aware").
double dynamic_theta(const RopeForm& form, int64_t length) {
  const auto dim = static_cast<double>(form.rotary_dim), context = static_cast<double>(form.original_max_positions);
  const double longer = std::max(static_cast<double>(length) / context, 1.0);
  return form.theta * std::pow(form.factor * longer - (form.factor - 1), dim / (dim - 2));
}

void scale_by_longrope(const RopeForm& form, int64_t length, std::vector<double>& turns) {
  const std::vector<double>& factors = length > form.original_max_positions ? form.long_factor : form.short_factor;
  SEQTILE_ASSERT(factors.size() == turns.size());
  for (size_t i = 0; i < turns.size(); ++i) turns[i] /= factors[i];
}

/// The frequency of each pair in turns per position, for sequences of up to `length` positions.
std::vector<double> rope_frequencies(const RopeForm& form, int64_t length) {
  const double theta = form.type == "dynamic" ? dynamic_theta(form, length) : form.theta;
  std::vector<double> turns = kernels::rope_turns(form.rotary_dim, theta);
  if (form.type == "linear")
    for (double& turn : turns) turn /= form.factor;
  if (form.type == "yarn") scale_by_yarn(form, turns);
  if (form.type == "llama3") scale_by_llama3(form, turns);
  if (form.type == "longrope") scale_by_longrope(form, length, turns);
  return turns;
}

}  // namespace

bool depends_on_length(const RopeForm& form) { return form.type == "dynamic" || form.type == "longrope"; }

void fill_rope_table(const RopeForm& form, int64_t length, const Tensor& table) {
  kernels::fill_rope_table(rope_frequencies(form, length), form.attention_factor, table);
}

}  // namespace seqtile::models
