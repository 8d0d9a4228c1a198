// kernels/op/workload_reader.cpp -- see seqtile/kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "seqtile/error.h"
#include "jit/base/nearest_word.h"

namespace seqtile::kernels {
namespace {

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

void WorkloadReader::refuse(std::string_view name, const std::string& reason) const {
  if (!missing_.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: field {} is missing, {}", given_.operation, missing_, missing_reason_));
  const auto it = given_.fields.values().find(name);
  const std::string value = it == given_.fields.values().end() ? "missing" : text_of(it->second);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: field {} is {}, {}", given_.operation, name, value, reason));
}

void WorkloadReader::absent(std::string_view name, const std::string& reason) const {
  if (given_.fields.contains(name)) refuse(name, reason);
}

int64_t WorkloadReader::required(std::string_view name, int64_t lo, int64_t hi) {
  if (!given_.fields.contains(name) && missing_.empty()) {
    missing_ = name;
    missing_reason_ = fmt::format("give a number of {}..{}, as in --set {}={}", lo, hi, name, lo);
  }
  return integer(name, lo, lo, hi);
}

int64_t WorkloadReader::integer(std::string_view name, int64_t fallback, int64_t lo, int64_t hi) {
  const auto it = given_.fields.values().find(name);
  int64_t value = fallback;
  if (it != given_.fields.values().end()) {
    const int64_t* given = std::get_if<int64_t>(&it->second);
    if (!given || *given < lo || *given > hi) refuse(name, fmt::format("must be a whole number of {}..{}", lo, hi));
    value = *given;
  }
  result_.fields.set(std::string(name), value);
  return value;
}

double WorkloadReader::number(std::string_view name, double fallback, double lo, double hi) {
  const auto it = given_.fields.values().find(name);
  double value = fallback;
  if (it != given_.fields.values().end()) {
    if (std::holds_alternative<std::string>(it->second))
      refuse(name, fmt::format("must be a number of {}..{}", lo, hi));
    value = given_.fields.get_double(name, fallback);
    if (!(value >= lo && value <= hi)) refuse(name, fmt::format("must be a number of {}..{}", lo, hi));
  }
  result_.fields.set(std::string(name), value);
  return value;
}

double WorkloadReader::late_number(std::string_view name, double fallback, double lo, double hi) {
  const auto it = given_.fields.values().find(name);
  const bool is_text = it != given_.fields.values().end() && std::holds_alternative<std::string>(it->second);
  if (is_text || given_.fields.get_double(name, fallback) != fallback) return number(name, fallback, lo, hi);
  left_out_.emplace_back(name);
  return fallback;
}

std::string WorkloadReader::choice(std::string_view name, std::span<const std::string_view> choices, size_t fallback) {
  std::string_view value = choices[fallback];
  const auto it = given_.fields.values().find(name);
  if (it != given_.fields.values().end()) {
    const std::string* given = std::get_if<std::string>(&it->second);
    bool known = false;
    for (const std::string_view choice : choices) known |= given && *given == choice;
    if (!known)
      refuse(name,
             fmt::format("must be one of {}{}", fmt::join(choices, ", "), did_you_mean(given ? *given : "", choices)));
    value = *given;
  }
  result_.fields.set(std::string(name), std::string(value));
  return std::string(value);
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
  if (!missing_.empty()) refuse(missing_, missing_reason_);
  return result_;
}

}  // namespace seqtile::kernels
