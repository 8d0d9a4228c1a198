// tools/cli/simulate/foreign_call.cpp -- see foreign_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate/foreign_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tools/cli/errors.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kMaxBytesOfAll = int64_t{4} << 30;  ///< limit for all buffers together

bool is_float_parameter(sim::PtxType type) { return type == sim::PtxType::f32 || type == sim::PtxType::f64; }
bool is_integer_parameter(sim::PtxType type) { return type >= sim::PtxType::u8 && type <= sim::PtxType::s64; }

double tolerance_of(const ScalarType& type) {
  if (type.kind == ScalarKind::bfloat) return 1e-2;
  if (type.kind != ScalarKind::floating) return 0;
  return type.bytes == 2 ? 1e-3 : type.bytes == 4 ? 1e-5 : 1e-12;
}

}  // namespace

ForeignCall::ForeignCall(const sim::Program& program, const sim::LaunchShape& shape, const ForeignOptions& options)
    : program_(program), shape_(shape), options_(options) {
  int64_t left = kMaxBytesOfAll;
  for (const std::string& text : options.arguments) {
    arguments_.push_back(parse_kernel_argument("--arg", text, left));
    const KernelArgument& argument = arguments_.back();
    if (argument.form == KernelArgument::Form::buffer) left -= static_cast<int64_t>(argument.bytes.size());
  }
  check_count();
  for (size_t i = 0; i < arguments_.size(); ++i) check_fit(i);
  for (const std::string& text : options.dumps) dumps_.push_back(parse_file_of("--dump", text));
  for (const std::string& text : options.expectations) expectations_.push_back(parse_file_of("--expect", text));
  for (const FileOf& file : dumps_) check_can_write("--dump", file.path);
  parameters_.resize(static_cast<size_t>(program.param_bytes));
  pointers_.resize(arguments_.size());
  for (size_t i = 0; i < arguments_.size(); ++i) place(i);
  for (const FileOf& file : expectations_)
    read_bytes(fmt::format("--expect {}={}", file.argument, file.path), file.path,
               arguments_[file.argument].bytes.size());
}

/// The parameters as text: ".u64 x (pointer), .u32 n, 24 bytes s".
std::string ForeignCall::parameter_list() const {
  std::string list;
  for (const sim::PtxVariable& param : program_.params) {
    const bool is_array = param.bytes != sim::ptx_type_bytes(param.type);
    const std::string type =
        is_array ? format_counted(param.bytes, "byte") : fmt::format(".{}", sim::ptx_type_name(param.type));
    list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", type, param.name, param.is_pointer ? " (pointer)" : "");
  }
  return list.empty() ? "none" : list;
}

void ForeignCall::check_count() const {
  if (arguments_.size() != program_.params.size())
    bad_input(fmt::format("{} given, '{}' has {}: {}", format_counted(static_cast<int64_t>(arguments_.size()), "--arg"),
                          program_.kernel, format_counted(static_cast<int64_t>(program_.params.size()), "parameter"),
                          parameter_list()));
}

void ForeignCall::check_fit(size_t index) const {
  using Form = KernelArgument::Form;
  const KernelArgument& argument = arguments_[index];
  const sim::PtxVariable& param = program_.params[index];
  const auto refuse = [&](const std::string& what) {
    bad_input(fmt::format("--arg {}: {}; argument {} of '{}' is {} of {}, its parameters are {}", argument.text, what,
                          index, program_.kernel, param.name, format_counted(param.bytes, "byte"), parameter_list()));
  };
  const bool is_pointer = argument.form == Form::buffer || argument.form == Form::null || argument.form == Form::same;
  const auto bytes = is_pointer ? int64_t{8} : static_cast<int64_t>(argument.bytes.size());
  if (bytes != param.bytes)
    refuse(fmt::format("{} of {}", is_pointer ? "a pointer" : "a value", format_counted(bytes, "byte")));
  if (is_pointer && is_float_parameter(param.type)) refuse("a pointer");
  if (argument.form == Form::same && (argument.same_as >= index || arguments_[argument.same_as].form != Form::buffer))
    refuse(fmt::format("argument {} is no buffer that stands before it", argument.same_as));
  if (argument.form != Form::scalar) return;
  const bool is_float = argument.type.kind == ScalarKind::floating || argument.type.kind == ScalarKind::bfloat;
  if (is_float ? is_integer_parameter(param.type) : is_float_parameter(param.type))
    refuse(fmt::format("a value of type {} where .{} is declared", argument.type.name, sim::ptx_type_name(param.type)));
}

/// Writes an argument into the parameter block, and makes its buffer.
void ForeignCall::place(size_t index) {
  KernelArgument& argument = arguments_[index];
  std::byte* to = parameters_.data() + program_.params[index].offset;
  if (argument.form == KernelArgument::Form::same) {
    std::memcpy(to, &pointers_[argument.same_as], 8);
  } else if (argument.form == KernelArgument::Form::buffer) {
    Buffer& buffer = buffers_.emplace_back(Buffer{index, argument.bytes, sim::LoneMemory(argument.bytes.size())});
    std::byte* data = buffer.now.bytes().data();
    std::ranges::copy(argument.bytes, data);
    machine_.register_memory(fmt::format("arg {}", index), data, argument.bytes.size());
    if (!argument.is_initialised) machine_.poison(data, argument.bytes.size());
    pointers_[index] = reinterpret_cast<uint64_t>(data);
    std::memcpy(to, &pointers_[index], 8);
  } else {
    std::copy(argument.bytes.begin(), argument.bytes.end(), to);
  }
}

ForeignCall::FileOf ForeignCall::parse_file_of(const std::string& flag, const std::string& text) const {
  const size_t equal = text.find('=');
  size_t number = 0;
  const char* end = text.data() + std::min(equal, text.size());
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (equal == std::string::npos || equal + 1 == text.size() || error != std::errc() || rest != end)
    bad_input(fmt::format("{} {}: N=FILE is expected, with the number of an argument from 0 on", flag, text));
  if (number >= arguments_.size() || arguments_[number].form != KernelArgument::Form::buffer)
    bad_input(fmt::format("{} {}: argument {} is no buffer", flag, text, number));
  return {number, text.substr(equal + 1)};
}

const ForeignCall::Buffer& ForeignCall::buffer_of(const FileOf& file) const {
  return *std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& b) { return b.argument == file.argument; });
}

void ForeignCall::compare(const FileOf& file) {
  const Buffer& buffer = buffer_of(file);
  const ScalarType& type = arguments_[file.argument].type;
  const std::vector<std::byte> expected = read_bytes("--expect", file.path, buffer.before.size());
  const double tolerance = options_.tolerance >= 0 ? options_.tolerance : tolerance_of(type);
  int64_t wrong = 0, first = 0;
  double largest = 0;
  const auto width = static_cast<size_t>(type.bytes);
  for (size_t at = 0; at < expected.size(); at += width) {
    const double is = element_value(type, buffer.data() + at), should = element_value(type, &expected[at]);
    if (std::isnan(is) && std::isnan(should)) continue;
    const double difference = std::fabs(is - should) / std::max(1.0, std::fabs(should));
    if (is == should || difference <= tolerance) continue;
    if (wrong++ == 0) first = static_cast<int64_t>(at / width);
    largest = std::isnan(difference) ? difference : std::max(largest, difference);
  }
  if (wrong == 0) return;
  const size_t at = static_cast<size_t>(first) * width;
  differences_.push_back(
      fmt::format("arg {}: {} differ from {} by more than {:.2g} (largest {:.2g}); element {} is {} "
                  "instead of {}",
                  file.argument, format_counted(wrong, "element"), file.path, tolerance, largest, first,
                  format_element(type, buffer.data() + at), format_element(type, &expected[at])));
}

void ForeignCall::finish() {
  for (const FileOf& file : dumps_) {
    const Buffer& buffer = buffer_of(file);
    write_file("--dump", file.path, {reinterpret_cast<const char*>(buffer.data()), buffer.before.size()});
  }
  for (const FileOf& file : expectations_) compare(file);
}

std::vector<std::string> ForeignCall::describe_buffers() const {
  constexpr int64_t kShown = 4;
  std::vector<std::string> lines;
  for (const Buffer& buffer : buffers_) {
    const KernelArgument& argument = arguments_[buffer.argument];
    const auto width = static_cast<size_t>(argument.type.bytes);
    int64_t changed = 0;
    for (size_t at = 0; at < buffer.before.size(); at += width)
      changed += std::memcmp(buffer.data() + at, &buffer.before[at], width) != 0;
    std::string values;
    for (int64_t i = 0; i < std::min(argument.elements, kShown); ++i)
      values += fmt::format("{}{}", values.empty() ? "" : " ",
                            format_element(argument.type, buffer.data() + static_cast<size_t>(i) * width));
    lines.push_back(fmt::format("arg {} {}: {} of {} changed; {}{}", buffer.argument, argument.text,
                                format_count(changed), format_counted(argument.elements, "element"), values,
                                argument.elements > kShown ? " ..." : ""));
  }
  return lines;
}

}  // namespace seqtile::cli
