// models/file/other_files.h -- recognises files that people give in place of a model's config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace seqtile::models {

/// The kind of file and the next step, if `json` is known not to be a model's config.json; else empty.
std::string other_file(const nlohmann::json& json);

/// Refuses a folder with a description of quantised weights beside config.json, which some programs write.
/// Errors: unsupported, with the name of that file.
void refuse_quantised_folder(const std::filesystem::path& config);

}  // namespace seqtile::models
