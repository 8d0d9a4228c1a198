// models/file/other_files.h -- files that people give in place of a model's config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace seqtile::models {

/// The kind of file that the JSON is and the next step, where it is known to be no model's config.json; else empty.
std::string other_file(const nlohmann::json& json);

/// Some programs describe quantised weights in a file beside config.json. Errors: unsupported, naming it.
void refuse_quantised_folder(const std::filesystem::path& config);

}  // namespace seqtile::models
