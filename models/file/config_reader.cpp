// models/file/config_reader.cpp -- see config_reader.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autotune/text/json_text.h"

namespace seqtile::models {

void ConfigReader::fail(ErrorCode code, const std::string& name, const std::string& reason) const {
  const auto large = notes_.large.find(path(name));
  const std::string written = large == notes_.large.end() ? "" : autotune::shortened(large->second, 40);
  const std::string value =
      contains(name) ? fmt::format(" is {},", written.empty() ? autotune::excerpt(json_[name]) : written) : "";
  throw Error(code, autotune::one_line(fmt::format("{}: field {}{} {}", where_, name, value, reason)));
}

void ConfigReader::note_default(const std::string& name, const std::string& value) const {
  if (std::ranges::find(notes_.defaults, path(name), &FieldNote::name) == notes_.defaults.end())
    notes_.defaults.push_back({path(name), value});
}

int64_t ConfigReader::whole(const std::string& name, int64_t lo, int64_t hi) const {
  const Json& value = (*this)[name];
  // Some programs write 4096.0 for 4096. Beyond 2^53 every double is a whole number.
  const double number = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(number >= static_cast<double>(lo) && number <= static_cast<double>(hi)) || number != std::floor(number))
    refuse(name, fmt::format("must be a whole number of {}..{}", lo, hi));
  return value.get<int64_t>();
}

double ConfigReader::real(const std::string& name, double lo, double hi) const {
  const Json& value = (*this)[name];
  if (!value.is_number() || !(value.get<double>() >= lo && value.get<double>() <= hi))
    refuse(name, hi == std::numeric_limits<double>::max() ? fmt::format("must be a number of at least {}", lo)
                                                          : fmt::format("must be a number of {} to {}", lo, hi));
  return value.get<double>();
}

int64_t ConfigReader::size(const std::string& name, int64_t hi, int64_t fallback) const {
  use(name);
  if (contains(name)) return whole(name, 1, hi);
  note_default(name, fmt::format("{}", fallback));
  return fallback;
}

std::optional<int64_t> ConfigReader::optional_size(const std::string& name, int64_t hi,
                                                   std::optional<int64_t> fallback) const {
  if (has(name)) return whole(name, 1, hi);
  use(name);
  if (contains(name)) return {};
  note_default(name, fallback ? fmt::format("{}", *fallback) : "null");
  return fallback;
}

double ConfigReader::number(const std::string& name, double lo, double hi, double fallback) const {
  use(name);
  if (contains(name)) return real(name, lo, hi);
  note_default(name, fmt::format("{}", fallback));
  return fallback;
}

std::optional<double> ConfigReader::optional_number(const std::string& name, double lo, double hi,
                                                    std::optional<double> fallback) const {
  if (has(name)) return real(name, lo, hi);
  use(name);
  if (contains(name)) return {};
  note_default(name, fallback ? fmt::format("{}", *fallback) : "null");
  return fallback;
}

bool ConfigReader::flag(const std::string& name, bool fallback) const {
  use(name);
  if (!contains(name)) note_default(name, fallback ? "true" : "false");
  if (!contains(name) || json_[name].is_null()) return contains(name) ? false : fallback;
  if (!json_[name].is_boolean()) refuse(name, "must be true or false");
  return json_[name].get<bool>();
}

std::string ConfigReader::text(const std::string& name, const std::string& fallback) const {
  use(name);
  if (!contains(name)) {
    note_default(name, fallback);
    return fallback;
  }
  if (!json_[name].is_string()) refuse(name, "must be a text");
  return json_[name].get<std::string>();
}

std::vector<double> ConfigReader::numbers(const std::string& name, double lo, double hi) const {
  const Json& list = (*this)[name];
  if (!list.is_array()) refuse(name, "must be a list of numbers");
  std::vector<double> numbers;
  for (const Json& item : list) {
    if (!item.is_number() || !(item.get<double>() >= lo && item.get<double>() <= hi))
      throw Error(ErrorCode::invalid_argument,
                  autotune::one_line(fmt::format("{}: field {}[{}] is {}, must be a number of {} to {}", where_, name,
                                                 numbers.size(), autotune::excerpt(item), lo, hi)));
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

ConfigReader ConfigReader::object(const std::string& name) const {
  if (!(*this)[name].is_object()) refuse(name, "must be an object or null");
  return ConfigReader(json_[name], where_ + ": " + name, notes_, prefix_ + name + ".");
}

}  // namespace seqtile::models
