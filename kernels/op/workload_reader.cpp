// kernels/op/workload_reader.cpp -- see seqtile/kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/base/nearest_word.h"
#include "seqtile/error.h"

namespace seqtile::kernels {
namespace {

constexpr int64_t kExample = 64;  // a usual value of most fields

std::string text_of(const autotune::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

}  // namespace

WorkloadReader::WorkloadReader(const autotune::Workload& given) : given_(given), result_(given) {
  result_.fields = {};
  if (given.dtype != DType::f32 && given.dtype != DType::bf16 && given.dtype != DType::f16)
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: dtype {} is not served; use f32, bf16 or f16",
                                                         given.operation, dtype_name(given.dtype)));
  if (given.threads < 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: threads is {}, must be at least 1", given.operation, given.threads));
}

const autotune::FieldValue* WorkloadReader::given(std::string_view name) const {
  const auto it = given_.fields.values().find(name);
  return it == given_.fields.values().end() ? nullptr : &it->second;
}

void WorkloadReader::fail(std::string_view name, const std::string& reason) const {
  if (!missing_.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: field {} is missing, {}", given_.operation, missing_, missing_reason_));
  const std::string value = given(name) ? text_of(*given(name)) : "missing";
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: field {} is {}, {}", given_.operation, name, value, reason));
}

void WorkloadReader::refuse(std::string_view name, const std::string& reason) {
  if (missing_.empty()) fail(name, reason);
}

void WorkloadReader::absent(std::string_view name, const std::string& reason) {
  if (given(name)) fail(name, reason);
}

void WorkloadReader::integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) {
  const bool has_default = value >= lo && value <= hi;
  if (const autotune::FieldValue* field = given(name)) {
    const int64_t* number = std::get_if<int64_t>(field);
    if (!number || *number < lo || *number > hi) fail(name, fmt::format("must be a whole number of {}..{}", lo, hi));
    value = *number;
  } else if (!has_default) {
    if (missing_.empty()) {
      missing_ = name;
      missing_reason_ =
          fmt::format("give a number of {}..{}, as in --set {}={}", lo, hi, name, std::clamp(kExample, lo, hi));
    }
    value = lo;
  }
  result_.fields.set(std::string(name), value);
}

void WorkloadReader::number(std::string_view name, double& value, double lo, double hi) {
  if (const autotune::FieldValue* field = given(name)) {
    const bool is_text = std::holds_alternative<std::string>(*field);
    if (!is_text) value = given_.fields.get_double(name, value);
    if (is_text || !(value >= lo && value <= hi)) fail(name, fmt::format("must be a number of {}..{}", lo, hi));
  }
  result_.fields.set(std::string(name), value);
}

void WorkloadReader::late_number(std::string_view name, double& value, double fallback, double lo, double hi) {
  value = fallback;
  const autotune::FieldValue* field = given(name);
  const bool is_text = field && std::holds_alternative<std::string>(*field);
  if (is_text || given_.fields.get_double(name, fallback) != fallback) number(name, value, lo, hi);
  else left_out_.emplace_back(name);
}

void WorkloadReader::choose(std::string_view name, std::string& value, std::span<const std::string_view> names) {
  if (const autotune::FieldValue* field = given(name)) {
    const std::string* chosen = std::get_if<std::string>(field);
    if (!chosen || std::ranges::find(names, *chosen) == names.end())
      fail(name,
           fmt::format("must be one of {}{}", fmt::join(names, ", "), did_you_mean(chosen ? *chosen : "", names)));
    value = *chosen;
  }
  result_.fields.set(std::string(name), value);
}

autotune::Workload WorkloadReader::finish() const {
  for (const auto& [name, value] : given_.fields.values()) {
    if (result_.fields.contains(name) || std::ranges::count(left_out_, name)) continue;
    std::vector<std::string_view> known;
    for (const auto& [field, unused] : result_.fields.values()) known.push_back(field);
    known.insert(known.end(), left_out_.begin(), left_out_.end());
    // A mistyped name is also why a required field is missing.
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: field {} is {}, but the operation has no such field; it has {}{}{}", given_.operation, name,
                    text_of(value), fmt::join(known, ", "),
                    missing_.empty() ? "" : fmt::format("; {} is missing", missing_), did_you_mean(name, known)));
  }
  if (!missing_.empty()) fail(missing_, missing_reason_);
  return result_;
}

}  // namespace seqtile::kernels
