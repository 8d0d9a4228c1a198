// models/file/class_names.h -- compares the classes that a file names with the classes of its type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/config_reader.h"
#include "models/file/model_types.h"

namespace seqtile::models {

/// Adds warnings for each class in `architectures` that does not belong to the type or has a head other than lm_head,
/// and for code of the file's own (`auto_map`), unless files of the type are written for such code.
void warn_of_classes(const ConfigReader& config, const ModelType& type);

}  // namespace seqtile::models
