// autotune/fields.h -- named values in canonical order: an operation's static fields, or a configuration.
// SPDX-License-Identifier: Apache-2.0
//
// A value is found by its name, never by its position. json() is canonical (keys sorted, no spaces), so that equal
// fields have equal text and equal hashes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "jit/base/dtype.h"

namespace seqtile::autotune {

using FieldValue = std::variant<int64_t, double, std::string>;

class Fields {
 public:
  Fields() = default;
  Fields(std::initializer_list<std::pair<const std::string, FieldValue>> values) : values_(values) {}

  bool operator==(const Fields&) const = default;
  bool contains(std::string_view name) const { return values_.find(name) != values_.end(); }
  void set(const std::string& name, FieldValue value) { values_[name] = std::move(value); }
  /// The value of a field; `fallback` if the field is absent.
  /// Errors: invalid_argument naming the field, if it is absent and has no fallback, or has another type.
  int64_t get_int(std::string_view name) const;
  int64_t get_int(std::string_view name, int64_t fallback) const;
  double get_double(std::string_view name, double fallback) const;  ///< integers convert
  std::string get_string(std::string_view name) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  const std::map<std::string, FieldValue, std::less<>>& values() const { return values_; }

  /// Errors: invalid_argument on a number that is not finite, or text that is not UTF-8.
  std::string json() const;
  /// Errors: invalid_argument on text that is not one flat JSON object of numbers and strings with distinct names.
  static Fields parse(std::string_view json);
  std::string hash() const;  ///< hex SHA-256 of json()

 private:
  std::map<std::string, FieldValue, std::less<>> values_;
};

/// A configuration: the named parameters that a config space enumerates.
using Config = Fields;

/// An operation with its dtype, threads and static fields: everything but the length.
struct Workload {
  std::string operation;
  DType dtype = DType::f32;
  int threads = 1;
  Fields fields;

  bool operator==(const Workload&) const = default;
  /// Canonical JSON of dtype, threads and all fields; the operation is left out. Errors: as Fields::json().
  std::string json() const;
};

}  // namespace seqtile::autotune
