// models/file/model_description.h -- what was understood of a model file, for people and for programs.
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

/// Every number that layers are made of, in the order of a reading; last what the file left out and what was ignored.
std::vector<ModelFact> describe(const ModelFile& file);

}  // namespace seqtile::models
