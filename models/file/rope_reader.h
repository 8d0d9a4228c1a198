// models/file/rope_reader.h -- rope of a config.json, in any of its spellings.
// SPDX-License-Identifier: Apache-2.0
//
// Up to transformers 4 there are rope_theta, partial_rotary_factor and rope_scaling {type or rope_type, factor, ...};
// from 5 on one object rope_parameters has all of them, or an object each for full_attention and sliding_attention. Any
// mixture is read; what is said twice must be the same.
#pragma once
#include "models/file/config_reader.h"
#include "models/file/model_types.h"

namespace seqtile::models {

/// The ropes of layers that see all keys, and of those with a window.
struct RopeForms {
  RopeForm full, window;
};

/// `has_full`, `has_window`: which of the two kinds the model has; only those are read where each has an object of its
/// own. Requires: head_dim and max_positions of `model`. Errors: invalid_argument for values that contradict each other
/// or are out of range, naming both fields; unsupported for a type of rope that is not read.
RopeForms read_rope(const ConfigReader& config, const ModelType& type, const Model& model, bool has_full,
                    bool has_window);

}  // namespace seqtile::models
