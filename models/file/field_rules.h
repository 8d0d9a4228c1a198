// models/file/field_rules.h -- fields that a type does not use: ignored with a reason, refused by name, or a warning.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "models/file/config_reader.h"

namespace seqtile::models {

/// Fields that make another model of the file, whatever else is in it: experts, quantised weights. To be called first,
/// so that the true cause is named. Errors: unsupported, with field and next step.
void refuse_other_models(const ConfigReader& config);

/// Sorts the fields that were not used. Errors: unsupported for one that changes what layers compute.
void sort_fields(const ConfigReader& config);

/// Sorts the fields of a file that stand beside the object `part` of its text model, which has been read: a warning
/// where the text model would use or refuse the field and has another value.
void sort_outer_fields(const ConfigReader& file, const std::string& part, const ConfigReader& text_model);

/// The same as sort_fields() for the fields of rope, where a known one that `rope_type` does not have is a warning.
void sort_rope_fields(const ConfigReader& rope, const std::string& rope_type);

}  // namespace seqtile::models
