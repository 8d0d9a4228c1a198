// autotune/fields.cpp -- see seqtile/op.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/op.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "jit/base/hash.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

const char* type_name(const FieldValue& value) {
  constexpr const char* kNames[] = {"an integer", "a number", "a text"};
  return kNames[value.index()];
}

[[noreturn]] void fail_type(std::string_view name, const FieldValue& value, const char* wanted) {
  fail("field " + std::string(name) + " is " + type_name(value) + ", must be " + wanted);
}

[[noreturn]] void fail_missing(std::string_view name) { fail("field " + std::string(name) + " is missing"); }

std::string dump(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    fail("a field holds text that is not UTF-8");
  }
}

/// Writes common texts without the JSON library, because spaces have thousands of configurations to hash.
void append_text(std::string& out, const std::string& text) {
  for (const char c : text)
    if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {  // a byte that is not ASCII is negative
      out += dump(text);
      return;
    }
  (out += '"') += text;
  out += '"';
}

void append_value(std::string& out, const std::string& name, const FieldValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    out += std::to_string(*integer);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    append_text(out, *text);
  } else {
    const double number = std::get<double>(value);
    if (!std::isfinite(number)) fail("field " + name + " is not a finite number");
    out += dump(number);
  }
}

}  // namespace

int64_t Fields::get_int(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) fail_missing(name);
  if (const auto* value = std::get_if<int64_t>(&it->second)) return *value;
  fail_type(name, it->second, "an integer");
}

int64_t Fields::get_int(std::string_view name, int64_t fallback) const {
  return contains(name) ? get_int(name) : fallback;
}

double Fields::get_double(std::string_view name, double fallback) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return fallback;
  if (const auto* value = std::get_if<double>(&it->second)) return *value;
  if (const auto* value = std::get_if<int64_t>(&it->second)) return static_cast<double>(*value);
  fail_type(name, it->second, "a number");
}

std::string Fields::get_string(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) fail_missing(name);
  if (const auto* value = std::get_if<std::string>(&it->second)) return *value;
  fail_type(name, it->second, "a text");
}

std::string Fields::get_string(std::string_view name, std::string_view fallback) const {
  return contains(name) ? get_string(name) : std::string(fallback);
}

std::string Fields::json() const {
  std::string out = "{";
  for (const auto& [name, value] : values_) {  // the map is sorted by name
    if (out.size() > 1) out += ',';
    append_text(out, name);
    out += ':';
    append_value(out, name, value);
  }
  return out += '}';
}

Fields Fields::parse(std::string_view text) {
  std::set<std::string> names;
  const auto refuse_twins = [&](int, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second)
      fail("field " + parsed.get<std::string>() + " is given twice");
    return true;
  };
  const Json json = Json::parse(text, refuse_twins, false);
  if (!json.is_object()) fail("not a JSON object: " + std::string(text.substr(0, 80)));
  Fields fields;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_integer()) {
      if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        fail("field " + name + " does not fit into 64 bits");
      fields.set(name, value.get<int64_t>());
    } else if (value.is_number_float()) {
      fields.set(name, value.get<double>());
    } else if (value.is_string()) {
      fields.set(name, value.get<std::string>());
    } else {
      fail("field " + name + " is neither a number nor a text");
    }
  }
  return fields;
}

std::string Fields::hash() const { return sha256_hex(json()); }

std::string Workload::json() const {
  Fields all = fields;
  all.set("dtype", std::string(dtype_name(dtype)));
  all.set("threads", int64_t{threads});
  return all.json();
}

}  // namespace seqtile::autotune
