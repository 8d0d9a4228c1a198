// tools/cli/model_text.cpp -- see model_text.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/file/model_description.h"
#include "tools/cli/errors.h"

namespace seqtile::cli {

models::ModelFile read_model_file(const std::string& path, bool is_strict) {
  std::error_code error;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file, error)) file /= "config.json";
  check_is_file("--model", file.string(), "give a Hugging Face config.json");
  models::ModelFile model = models::load_model_file(file.string());
  const std::vector<std::string>& warnings = model.notes.warnings;
  if (is_strict && !warnings.empty()) bad_input(fmt::format("--strict-model: {}", warnings.front()));
  for (const std::string& warning : warnings) warn(warning);
  return model;
}

models::ModelFile read_model_file(const Options& options) {
  models::ModelFile file = read_model_file(options.model, options.strict_model);
  warn_of_lengths(file, "--lengths", options.lengths);
  warn_of_lengths(file, "--kv-lengths", options.kv_lengths);
  warn_of_lengths(file, "--length", options.length);
  return file;
}

void warn_of_lengths(models::ModelFile& file, const std::string& flag, const std::string& lengths) {
  if (lengths.empty() || parse_lengths(flag, lengths).hi <= file.model.max_positions) return;
  file.notes.warnings.push_back(fmt::format("{} {}: the model has {}, a server would refuse longer requests", flag,
                                            lengths, format_counted(file.model.max_positions, "position")));
  warn(file.notes.warnings.back());
}

void print_model(const models::ModelFile& file) {
  constexpr size_t kColumn = 19;
  for (const models::ModelFact& fact : models::describe(file)) {
    std::string name = fact.name;
    for (size_t begin = 0; begin <= fact.text.size();) {
      const size_t end = std::min(fact.text.find('\n', begin), fact.text.size());
      print_line(fmt::format("{:<{}}{}", name, kColumn, fact.text.substr(begin, end - begin)));
      name.clear();
      begin = end + 1;
    }
  }
}

Json model_json(const models::ModelFile& file) {
  Json json = Json::object();
  for (models::ModelFact& fact : models::describe(file)) json[fact.name] = std::move(fact.value);
  return json;
}

}  // namespace seqtile::cli
