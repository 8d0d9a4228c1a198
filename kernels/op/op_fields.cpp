// kernels/op/op_fields.cpp -- see seqtile/operation.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/operation.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "seqtile/kernel.h"

namespace seqtile::kernels {

std::string FieldVisitor::name_of(std::string_view field, size_t value, std::span<const std::string_view> names) {
  if (value < names.size()) return std::string(names[value]);
  throw Error(ErrorCode::invalid_argument, fmt::format("field {} is enumerator {}, must be one of {}", field,
                                                       static_cast<int64_t>(value), fmt::join(names, ", ")));
}

void FieldVisitor::storage_type(std::string_view name, DType& value) {
  static constexpr std::array<std::string_view, 3> kNames = {"f32", "bf16", "f16"};
  std::string chosen(dtype_name(value));
  choose(name, chosen, kNames);
  value = parse_dtype(chosen).value();
}

void FieldWriter::integer(std::string_view name, int64_t& value, int64_t, int64_t) {
  fields_.set(std::string(name), value);
}
void FieldWriter::number(std::string_view name, double& value, double, double) {
  fields_.set(std::string(name), value);
}
void FieldWriter::late_number(std::string_view name, double& value, double fallback, double, double) {
  if (value != fallback) fields_.set(std::string(name), value);
}
void FieldWriter::choose(std::string_view name, std::string& value, std::span<const std::string_view>) {
  fields_.set(std::string(name), value);
}

void FieldLoader::integer(std::string_view name, int64_t& value, int64_t, int64_t) { value = fields_.get_int(name); }
void FieldLoader::number(std::string_view name, double& value, double, double) {
  value = fields_.get_double(name, value);
}
void FieldLoader::late_number(std::string_view name, double& value, double fallback, double, double) {
  value = fields_.get_double(name, fallback);
}
void FieldLoader::choose(std::string_view name, std::string& value, std::span<const std::string_view>) {
  value = fields_.get_string(name);
}

namespace {

/// Limits that leave one value do so beside the defaults of the other fields.
template <class T>
std::string limits_text(T lo, T hi) {
  return lo == hi ? fmt::format("{}; more with other fields", lo) : fmt::format("{}..{}", lo, hi);
}

}  // namespace

void FieldLister::integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) {
  const bool has_default = value >= lo && value <= hi;
  list.push_back({std::string(name), limits_text(lo, hi), has_default ? fmt::format("{}", value) : "", !has_default});
  if (!has_default) value = largest_ ? hi : lo;
}
void FieldLister::number(std::string_view name, double& value, double lo, double hi) {
  list.push_back({std::string(name), limits_text(lo, hi), fmt::format("{}", value), false});
}
void FieldLister::late_number(std::string_view name, double& value, double fallback, double lo, double hi) {
  value = fallback;
  number(name, value, lo, hi);
}
void FieldLister::choose(std::string_view name, std::string& value, std::span<const std::string_view> names) {
  list.push_back({std::string(name), fmt::format("{}", fmt::join(names, ", ")), value, false});
}

}  // namespace seqtile::kernels
