// kernels/op/op_fields.cpp -- see op_fields.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/op_fields.h"

#include <algorithm>

#include "kernels/op/workload_reader.h"

namespace seqtile::kernels {

void FieldWriter::integer(std::string_view name, int64_t& value, int64_t, int64_t) {
  fields_.set(std::string(name), value);
}
void FieldWriter::number(std::string_view name, double& value, double, double) {
  fields_.set(std::string(name), value);
}
void FieldWriter::late_number(std::string_view name, double& value, double fallback, double, double) {
  if (value != fallback) fields_.set(std::string(name), value);
}
void FieldWriter::choose(std::string_view name, size_t& index, std::span<const std::string_view> names) {
  fields_.set(std::string(name), std::string(names[index]));
}

void FieldLoader::integer(std::string_view name, int64_t& value, int64_t, int64_t) { value = fields_.get_int(name); }
void FieldLoader::number(std::string_view name, double& value, double, double) {
  value = fields_.get_double(name, value);
}
void FieldLoader::late_number(std::string_view name, double& value, double fallback, double, double) {
  value = fields_.get_double(name, fallback);
}
void FieldLoader::choose(std::string_view name, size_t& index, std::span<const std::string_view> names) {
  index = static_cast<size_t>(std::ranges::find(names, fields_.get_string(name)) - names.begin());
}

void FieldReader::integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) {
  const bool has_default = value >= lo && value <= hi;
  value = has_default ? reader_.integer(name, value, lo, hi) : reader_.required(name, lo, hi);
}
void FieldReader::number(std::string_view name, double& value, double lo, double hi) {
  value = reader_.number(name, value, lo, hi);
}
void FieldReader::late_number(std::string_view name, double& value, double fallback, double lo, double hi) {
  value = reader_.late_number(name, fallback, lo, hi);
}
void FieldReader::refuse(std::string_view name, const std::string& reason) { reader_.refuse(name, reason); }
void FieldReader::absent(std::string_view name, const std::string& reason) { reader_.absent(name, reason); }
void FieldReader::choose(std::string_view name, size_t& index, std::span<const std::string_view> names) {
  index = static_cast<size_t>(std::ranges::find(names, reader_.choice(name, names, index)) - names.begin());
}

}  // namespace seqtile::kernels
