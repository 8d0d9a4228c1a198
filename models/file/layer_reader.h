// models/file/layer_reader.h -- reads from a config.json which layers have a window, and which have no rope.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/config_reader.h"
#include "models/file/model_types.h"

namespace seqtile::models {

inline constexpr int64_t kMostLayers = 1000;  ///< the deepest models have some hundred

/// Sets `kinds` and `kind_of_layer`. Requires: layers, head_dim and max_positions of `model`.
/// Errors: invalid_argument where layer_types, the window's fields and no_rope_layers contradict each other, naming
/// both; unsupported for a kind of layer that the library does not compute; and as read_rope().
void read_layers(const ConfigReader& config, const ModelType& type, Model& model);

}  // namespace seqtile::models
