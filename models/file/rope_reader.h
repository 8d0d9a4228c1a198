// models/file/rope_reader.h -- reads the rope of a config.json in any of its spellings.
// SPDX-License-Identifier: Apache-2.0
//
// Files of transformers up to 4 have rope_theta, partial_rotary_factor and rope_scaling {type or rope_type, factor,
// ...}. From 5 on, one object rope_parameters has all of these; that of types with two ropes has one object each
// for full_attention and sliding_attention. Any mixture is read; values that occur twice must be equal.
#pragma once
#include "models/file/config_reader.h"
#include "models/file/model_types.h"

namespace seqtile::models {

/// The rope of layers that see all keys, and of layers with a window.
struct RopeForms {
  RopeForm full, window;
};

/// Reads the ropes. `has_window`: the model has layers with a window.
/// Requires: head_dim and max_positions of `model`.
/// Errors: invalid_argument for values out of range, and for values that contradict each other, naming both fields;
/// unsupported for an unknown type of rope.
RopeForms read_rope(const ConfigReader& config, const ModelType& type, const Model& model, bool has_window);

}  // namespace seqtile::models
