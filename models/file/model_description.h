// models/file/model_description.h -- a model file as it was understood, for people and for programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/file/model_file.h"

namespace seqtile::models {

struct ModelFact {
  std::string name, text;
  nlohmann::ordered_json value;
};

/// The file's facts in reading order: every number of the layers, then the defaults, the ignored fields and the
/// warnings.
std::vector<ModelFact> describe(const ModelFile& file);

}  // namespace seqtile::models
