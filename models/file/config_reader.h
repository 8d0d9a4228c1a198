// models/file/config_reader.h -- typed access to the fields of a config.json, with a record of the defaults taken.
// SPDX-License-Identifier: Apache-2.0
//
// An absent field has a default, which is noted. Null is a value of its own, which some fields may have. Reading a
// field marks it as used; models/file/field_rules.h sorts the fields that were not used.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/file/model_file.h"
#include "seqtile/error.h"

namespace seqtile::models {

using Json = nlohmann::json;

constexpr int64_t kMostPositions = int64_t{1} << 30;

class ConfigReader {
 public:
  /// `where` is the file's name and the enclosing objects, for messages. Requires: `json` and `notes` outlive this
  /// object.
  ConfigReader(const Json& json, std::string where, ModelNotes& notes, std::string prefix = {})
      : json_(json), where_(std::move(where)), prefix_(std::move(prefix)), notes_(notes) {}

  /// Throws with the message "FILE: field NAME is VALUE, REASON".
  [[noreturn]] void fail(ErrorCode code, const std::string& name, const std::string& reason) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const {
    fail(ErrorCode::invalid_argument, name, reason);
  }

  bool contains(const std::string& name) const { return json_.contains(name); }
  /// Whether the field is neither absent nor null.
  bool has(const std::string& name) const { return contains(name) && !json_[name].is_null(); }
  const Json& operator[](const std::string& name) const {
    used_.insert(name);
    return json_[name];
  }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }
  /// The field's name with its enclosing objects: "rope_scaling.factor".
  std::string path(const std::string& name) const { return prefix_ + name; }

  int64_t size(const std::string& name, int64_t hi, int64_t fallback) const;
  /// Reads a field that may be null.
  std::optional<int64_t> optional_size(const std::string& name, int64_t hi, std::optional<int64_t> fallback) const;
  double number(const std::string& name, double lo, double hi, double fallback) const;
  std::optional<double> optional_number(const std::string& name, double lo, double hi,
                                        std::optional<double> fallback) const;
  bool flag(const std::string& name, bool fallback) const;  ///< null: false
  std::string text(const std::string& name, const std::string& fallback) const;
  std::vector<double> numbers(const std::string& name, double lo, double hi) const;
  /// The object in a field. Requires: has(name). Errors: invalid_argument on any other value.
  ConfigReader object(const std::string& name) const;

  void use(const std::string& name) const { used_.insert(name); }
  bool is_used(const std::string& name) const { return used_.contains(name); }
  /// Notes the default of a field, at most once for each field.
  void note_default(const std::string& name, const std::string& value) const;
  ModelNotes& notes() const { return notes_; }

 private:
  int64_t whole(const std::string& name, int64_t lo, int64_t hi) const;
  double real(const std::string& name, double lo, double hi) const;

  const Json& json_;
  const std::string where_, prefix_;
  ModelNotes& notes_;
  mutable std::set<std::string> used_;
};

}  // namespace seqtile::models
