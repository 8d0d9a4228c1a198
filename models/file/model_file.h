// models/file/model_file.h -- decoder models from Hugging Face config.json files.
// SPDX-License-Identifier: Apache-2.0
//
// Every field of a file is used, ignored for a reason, or refused by name; a field that is none of these is a warning.
// A field that is absent has the default of the class of transformers that writes files of the type. Types and their
// defaults: models/file/model_types.h; the other fields: models/file/field_rules.h; rope: models/file/rope_reader.h.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/file/model.h"

namespace seqtile::models {

struct FieldNote {
  std::string name, text;  ///< a default's value, or the reason why a field is ignored
};

/// The decisions that a file's reading took.
struct ModelNotes {
  std::vector<FieldNote> defaults, ignored;
  std::map<std::string, std::string> large;  ///< whole numbers beyond 64 bits as the file has them, for messages
  std::vector<std::string> warnings;         ///< one line each: fields that are not known, classes of other types
};

struct ModelFile {
  std::string path;
  Model model;
  ModelNotes notes;
};

/// `name` is the file's name for messages. Errors: invalid_argument, one line, for a text that is no JSON or no model
/// description, and for a missing or wrong field, by its name; unsupported, naming field or type and the next step, for
/// what this library does not compute.
ModelFile parse_model_file(std::string_view json, const std::string& name);
/// `path`: a config.json or the folder of one. Errors: as parse_model_file(); io when the file cannot be read.
ModelFile load_model_file(const std::string& path);
/// The same without the notes.
Model parse_model(std::string_view json, const std::string& name);
Model load_model(const std::string& path);

}  // namespace seqtile::models
