// models/file/field_rules.h -- sorts fields that a type does not use: ignored with a reason, refused, or a warning.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/config_reader.h"

namespace seqtile::models {

/// Refuses files with fields that describe another kind of model, such as experts or quantised weights. The caller
/// checks these first, so that the message names the true cause.
/// Errors: unsupported, with field and next step.
void refuse_other_models(const ConfigReader& config);

/// Sorts the fields that were not used. Errors: unsupported for a field that changes the computation of the layers.
void sort_fields(const ConfigReader& config);

/// Sorts the fields of `file` beside the object `part`, which holds the text model and has been read. A field is a
/// warning if the text model would use or refuse it and has another value.
void sort_outer_fields(const ConfigReader& file, const std::string& part, const ConfigReader& text_model);

/// As sort_fields(), for the fields of rope. A known field that `rope_type` does not have is a warning.
void sort_rope_fields(const ConfigReader& rope, const std::string& rope_type);

}  // namespace seqtile::models
