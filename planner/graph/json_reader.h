// planner/graph/json_reader.h -- values of a JSON file that know their places, so that messages can name them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "autotune/text/json_text.h"
#include "jit/base/nearest_word.h"
#include "seqtile/error.h"

namespace seqtile::planner {

using Json = nlohmann::json;

/// A file's path, and two texts for messages: the flag that gave it ("--calibration"), and what to give instead ("give
/// ...").
struct FileName {
  std::string path;
  const char *given_as, *advice;
};

/// Reads a file or a pipe, plain or compressed with gzip.
/// Errors: invalid_argument on a folder, a missing or damaged file, or more than 1 GiB.
std::string read_text(const FileName& name);
/// Parses JSON.
/// Errors: invalid_argument with `name`, line, column and the expected token, or with a field name that occurs twice.
Json parse_json(const std::string& text, const std::string& name);

using autotune::excerpt, autotune::one_line, autotune::shortened;

/// A value of a JSON file, and its place in the file.
class Reader {
 public:
  Reader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::invalid_argument, one_line(shortened(place_) + ": " + what));
  }

  void check_is_object() const {
    if (!json_.is_object()) refuse(fmt::format("an object is wanted, not {}", excerpt(json_)));
  }
  /// Refuses an object that has a field other than `names`.
  void allow(std::initializer_list<std::string_view> names) const {
    check_is_object();
    for (const auto& [name, value] : json_.items())
      if (std::ranges::find(names, name) == names.end())
        refuse(fmt::format("unknown field \"{}\"; known ones are {}{}", name, fmt::join(names, ", "),
                           did_you_mean(name, names)));
  }
  bool has(const char* name) const { return json_.contains(name) && !json_.at(name).is_null(); }
  Reader operator[](const char* name) const {
    check_is_object();
    if (!has(name)) refuse(fmt::format("\"{}\" is missing", name));
    return {json_.at(name), place_ + "." + name};
  }
  Reader at(size_t index) const { return {json_.at(index), fmt::format("{}[{}]", place_, index)}; }
  size_t size() const {
    if (!json_.is_array()) refuse(fmt::format("an array is wanted, not {}", excerpt(json_)));
    return json_.size();
  }
  template <class T>
  T as(const char* what) const {
    if (std::is_same_v<T, bool>          ? !json_.is_boolean()
        : std::is_same_v<T, std::string> ? !json_.is_string()
        : std::is_same_v<T, double>      ? !json_.is_number()
                                         : !json_.is_number_integer())
      refuse(fmt::format("{} is wanted, not {}", what, excerpt(json_)));
    return json_.get<T>();
  }
  std::string text() const { return as<std::string>("a string"); }
  double number() const { return as<double>("a number"); }
  double not_negative() const {
    const double value = number();
    if (value < 0) refuse(fmt::format("{} is below 0", value));
    return value;
  }
  int64_t integer(int64_t least, int64_t most) const {
    const auto value = as<int64_t>("an integer");
    if (value < least || value > most) refuse(fmt::format("{} is not in {}..{}", value, least, most));
    return value;
  }
  template <class F>
  void each(const F& f) const {
    for (size_t i = 0; i < size(); ++i) f(at(i));
  }
  const Json& json() const { return json_; }
  const std::string& place() const { return place_; }

 private:
  const Json& json_;
  std::string place_;
};

}  // namespace seqtile::planner
