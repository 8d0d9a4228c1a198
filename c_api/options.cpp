// c_api/options.cpp -- see options.h.
// SPDX-License-Identifier: Apache-2.0
#include "c_api/options.h"

#include <algorithm>
#include <array>
#include <climits>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include <fmt/format.h>

#include "autotune/text/json_text.h"
#include "jit/base/nearest_word.h"
#include "seqtile/error.h"

namespace seqtile::c_api {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// The members of an object. A name that stands twice would hide one of two values.
Json read_object(const char* text, const char* what) {
  if (!text) return Json::object();
  const autotune::JsonText read = autotune::read_json(text, what, false);
  if (!read.value.is_object())
    refuse(fmt::format("{} is {}; give an object of names and values", what, autotune::excerpt(read.value)));
  if (!read.repeated.empty()) refuse(fmt::format("{}: {}", what, read.repeated.front()));
  return read.value;
}

[[noreturn]] void refuse_type(const std::string& name, const Json& value, const char* wanted) {
  refuse(fmt::format("option \"{}\" is {}; give {}", name, autotune::excerpt(value), wanted));
}

std::string text_of(const std::string& name, const Json& value) {
  if (!value.is_string()) refuse_type(name, value, "a text");
  if (value.get_ref<const std::string&>().find('\0') != std::string::npos)
    refuse(fmt::format("option \"{}\" has a zero byte in its text; give a text without", name));
  return value.get<std::string>();
}

int64_t number_of(const std::string& name, const Json& value) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
    refuse_type(name, value, "a whole number of 64 bits");
  return value.get<int64_t>();
}

std::vector<std::string> texts_of(const std::string& name, const Json& value) {
  if (!value.is_array()) refuse_type(name, value, "an array of paths");
  std::vector<std::string> texts;
  for (const Json& one : value) texts.push_back(text_of(name, one));
  return texts;
}

Pool pool_named(const std::string& name) {
  constexpr std::array<std::string_view, 3> kNames = {"own", "openmp", "auto"};
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end())
    refuse(fmt::format("unknown pool \"{}\"; there are: own, openmp, auto{}", autotune::shortened(name),
                       did_you_mean(name, kNames)));
  return static_cast<Pool>(found - kNames.begin());
}

using Reader = std::function<void(Options&, const std::string& name, const Json&)>;

std::map<std::string, Reader> readers(bool has_device) {
  std::map<std::string, Reader> all{
      {"threads",
       [](Options& o, const std::string& name, const Json& v) {
         const int64_t threads = number_of(name, v);
         if (threads < 0 || threads > INT_MAX) refuse(fmt::format("threads is {}; give 1 or more, or 0", threads));
         o.engine.threads = static_cast<int>(threads);
       }},
      {"cache", [](Options& o, const std::string& name, const Json& v) { o.engine.cache = text_of(name, v); }},
      {"artifacts", [](Options& o, const std::string& name, const Json& v) { o.engine.artifacts = text_of(name, v); }},
      {"system_caches",
       [](Options& o, const std::string& name, const Json& v) { o.engine.system_caches = texts_of(name, v); }},
      {"pinned", [](Options& o, const std::string& name, const Json& v) { o.engine.pinned = text_of(name, v); }},
      {"policy", [](Options& o, const std::string& name,
                    const Json& v) { o.engine.policy = parse_miss_policy(text_of(name, v)); }},
      {"max_length",
       [](Options& o, const std::string& name, const Json& v) { o.engine.max_length = number_of(name, v); }}};
  if (has_device)
    all["pool"] = [](Options& o, const std::string& name, const Json& v) { o.pool = pool_named(text_of(name, v)); };
  if (has_device)
    all["device"] = [](Options& o, const std::string& name, const Json& v) { o.engine.device = text_of(name, v); };
  return all;
}

DType dtype_named(const Json& value) {
  const auto dtype = value.is_string() ? parse_dtype(value.get<std::string>()) : std::nullopt;
  if (!dtype) refuse(fmt::format("dtype is {}; there are: f32, bf16, f16", autotune::excerpt(value)));
  return *dtype;
}

}  // namespace

Options read_options(const char* json, bool has_device) {
  Options options;
  const auto known = readers(has_device);
  const Json given = read_object(json, "options");
  for (const auto& [name, value] : given.items()) {
    const auto reader = known.find(name);
    if (reader == known.end()) {
      std::vector<std::string_view> names;
      for (const auto& [each, read] : known) names.push_back(each);
      refuse(fmt::format("unknown option \"{}\"; there are: {}{}", autotune::shortened(name), fmt::join(names, ", "),
                         did_you_mean(name, names)));
    }
    reader->second(options, name, value);
  }
  return options;
}

autotune::Workload read_workload(const std::string& operation, const char* fields_json) {
  Json fields = read_object(fields_json, "fields");
  autotune::Workload workload{.operation = operation, .fields = {}};
  if (const auto dtype = fields.find("dtype"); dtype != fields.end()) {
    workload.dtype = dtype_named(*dtype);
    fields.erase(dtype);
  }
  for (Json& value : fields)
    if (value.is_boolean()) value = int64_t{value.get<bool>()};
  workload.fields = autotune::Fields::parse(fields.dump());
  return workload;
}

}  // namespace seqtile::c_api
