// models/file/model_file.h -- reads decoder models from Hugging Face config.json files.
// SPDX-License-Identifier: Apache-2.0
//
// Every field of a file is used, ignored for a reason, or refused by name. Any other field is a warning. An absent
// field has the default of the transformers class that writes files of the type. See models/file/model_types.h for
// types and their defaults, models/file/field_rules.h for other fields, and models/file/rope_reader.h for rope.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/model.h"

namespace seqtile::models {

struct FieldNote {
  std::string name, text;  ///< value of a default, or reason why a field is ignored
};

/// The decisions taken while reading a file.
struct ModelNotes {
  std::vector<FieldNote> defaults, ignored;
  std::map<std::string, std::string> large;  ///< whole numbers beyond 64 bits, as written in the file, for messages
  std::vector<std::string> warnings;         ///< one line each: unknown fields, classes of other types
};

struct ModelFile {
  std::string path;
  Model model;
  ModelNotes notes;
};

/// Parses a config.json. Messages call the file `name` and are one line.
/// Errors: invalid_argument for text that is no JSON or no model description, and for a missing or wrong field, by
/// name; unsupported for a model that this library does not compute, with field or type and the next step.
ModelFile parse_model_file(std::string_view json, const std::string& name);
/// `path` is a config.json or its folder. Errors: as parse_model_file(), and io if the file cannot be read.
ModelFile load_model_file(const std::string& path);
/// As above, without the notes.
Model parse_model(std::string_view json, const std::string& name);
Model load_model(const std::string& path);

}  // namespace seqtile::models
