// models/file/class_names.h -- the classes that a file names: those of its type, or others, which compute something
// else.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/config_reader.h"
#include "models/file/model_types.h"

namespace seqtile::models {

/// Warns of each class in `architectures` that is none of the type's or has another head than lm_head, and of code of
/// the file's own (`auto_map`), unless files of the type are written for that code.
void warn_of_classes(const ConfigReader& config, const ModelType& type);

}  // namespace seqtile::models
