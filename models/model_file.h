// models/model_file.h -- decoder models from Hugging Face config.json files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

#include "models/model.h"

namespace seqtile::models {

/// `name` is the file's name for messages. Errors: invalid_argument, one line naming the field, for a missing or wrong
/// field; unsupported for another architecture, rope scaling or activation.
Model parse_model(std::string_view json, const std::string& name);
/// Errors: as parse_model(); io when the file cannot be read.
Model load_model(const std::string& path);

}  // namespace seqtile::models
