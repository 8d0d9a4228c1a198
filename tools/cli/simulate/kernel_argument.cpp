// tools/cli/simulate/kernel_argument.cpp -- see kernel_argument.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate/kernel_argument.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <random>

#include "autotune/call/call_values.h"
#include "jit/base/counted.h"
#include "seqtile/tensor.h"
#include "tools/cli/errors.h"
#include "tools/cli/options.h"

namespace seqtile::cli {
namespace {

constexpr std::string_view kExpected =
    "a buffer such as f32[1024], f32[1024]=zeros, =random:7, =iota, =1.5 or =@FILE, a scalar such as i32=1000, null, "
    "same=0 or raw=HEX";

struct NamedType {
  std::string_view name;
  ScalarKind kind;
  int bytes;
};
constexpr std::array<NamedType, 12> kTypes = {{{"i8", ScalarKind::signed_integer, 1},
                                               {"i16", ScalarKind::signed_integer, 2},
                                               {"i32", ScalarKind::signed_integer, 4},
                                               {"i64", ScalarKind::signed_integer, 8},
                                               {"u8", ScalarKind::unsigned_integer, 1},
                                               {"u16", ScalarKind::unsigned_integer, 2},
                                               {"u32", ScalarKind::unsigned_integer, 4},
                                               {"u64", ScalarKind::unsigned_integer, 8},
                                               {"f16", ScalarKind::floating, 2},
                                               {"bf16", ScalarKind::bfloat, 2},
                                               {"f32", ScalarKind::floating, 4},
                                               {"f64", ScalarKind::floating, 8}}};

/// Reads the text of one argument.
class Reader {
 public:
  Reader(const std::string& flag, const std::string& text, int64_t most_bytes)
      : flag_(flag), text_(text), most_bytes_(most_bytes) {
    result_.text = text;
  }

  KernelArgument read() {
    const size_t equal = std::min(text_.find('='), text_.size());
    const std::string name = text_.substr(0, equal);
    const std::string value = equal < text_.size() ? text_.substr(equal + 1) : "";
    const bool has_value = equal < text_.size();
    if (text_ == "null") result_.form = KernelArgument::Form::null, result_.bytes.resize(8);
    else if (name == "same" && has_value) same(value);
    else if (name == "raw" && has_value) raw(value);
    else if (const size_t bracket = name.find('['); bracket != std::string::npos)
      buffer(name, bracket, value, has_value);
    else if (has_value) scalar(name, value);
    else fail("");
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    bad_input(fmt::format("{} {}: {}{}{} is expected", flag_, text_, what, what.empty() ? "" : "; ", kExpected));
  }

  template <class T>
  T number(const std::string& text, const std::string& what) const {
    T value{};
    const char *begin = text.data(), *end = begin + text.size();
    const auto [rest, error] = std::from_chars(begin + (text.starts_with('+') ? 1 : 0), end, value);
    if (text.empty() || error != std::errc() || rest != end) fail(fmt::format("'{}' is no {}", text, what));
    return value;
  }

  void same(const std::string& value) {
    result_.form = KernelArgument::Form::same;
    result_.same_as = number<uint32_t>(value, "number of an argument");
  }

  void raw(const std::string& value) {
    result_.form = KernelArgument::Form::raw;
    if (value.empty() || value.size() % 2 != 0) fail("an even number of hexadecimal digits is needed");
    for (size_t i = 0; i < value.size(); i += 2) {
      unsigned byte = 0;
      const auto [rest, error] = std::from_chars(value.data() + i, value.data() + i + 2, byte, 16);
      if (error != std::errc() || rest != value.data() + i + 2) fail("a digit is not hexadecimal");
      result_.bytes.push_back(static_cast<std::byte>(byte));
    }
  }

  void type_named(const std::string& name) {
    const auto* const found =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& type) { return type.name == name; });
    if (found == kTypes.end()) fail(fmt::format("there is no type '{}'", name));
    result_.type = {name, found->kind, found->bytes};
  }

  void scalar(const std::string& name, const std::string& value) {
    type_named(name);
    result_.form = KernelArgument::Form::scalar;
    result_.bytes.resize(static_cast<size_t>(result_.type.bytes));
    write(0, value);
  }

  /// Writes the number `value` as an element.
  void write(size_t element, const std::string& value) {
    std::byte* to = result_.bytes.data() + element * static_cast<size_t>(result_.type.bytes);
    if (result_.type.kind == ScalarKind::floating || result_.type.kind == ScalarKind::bfloat)
      return write_float(to, number<double>(value, "number"));
    const bool is_negative = value.starts_with('-'), is_hex = value.starts_with("0x");
    const bool is_signed = result_.type.kind == ScalarKind::signed_integer;
    uint64_t bits = 0;
    if (is_hex) {
      const auto [rest, error] = std::from_chars(value.data() + 2, value.data() + value.size(), bits, 16);
      if (error != std::errc() || rest != value.data() + value.size()) fail(fmt::format("'{}' is no number", value));
    } else {
      bits = is_negative ? static_cast<uint64_t>(number<int64_t>(value, "whole number"))
                         : number<uint64_t>(value, "whole number");
    }
    const int unused = 64 - 8 * result_.type.bytes;
    const uint64_t most = (~uint64_t{0} >> unused) >> (is_signed && !is_hex ? 1 : 0);
    const auto value_signed = static_cast<int64_t>(bits);
    if (is_negative ? !is_signed || value_signed < -static_cast<int64_t>(most) - 1 : bits > most)
      fail(fmt::format("{} does not fit {}", value, result_.type.name));
    std::memcpy(to, &bits, static_cast<size_t>(result_.type.bytes));
  }

  void write_float(std::byte* to, double value) const {
    const auto put = [&](auto bits) { std::memcpy(to, &bits, sizeof(bits)); };
    if (result_.type.kind == ScalarKind::bfloat) put(f32_to_bf16(static_cast<float>(value)));
    else if (result_.type.bytes == 2) put(f32_to_f16(static_cast<float>(value)));
    else if (result_.type.bytes == 4) put(static_cast<float>(value));
    else put(value);
  }

  void buffer(const std::string& name, size_t bracket, const std::string& value, bool has_value) {
    if (name.back() != ']') fail("a ']' is missing");
    type_named(name.substr(0, bracket));
    result_.form = KernelArgument::Form::buffer;
    result_.elements = number<int64_t>(name.substr(bracket + 1, name.size() - bracket - 2), "number of elements");
    if (result_.elements < 1) fail("a buffer has at least one element");
    if (result_.elements > most_bytes_ / result_.type.bytes)
      bad_input(fmt::format("{} {}: {} of {}, {} of the 4 GiB for all buffers are left; make them smaller", flag_,
                            text_, counted(result_.elements, "element"), counted(result_.type.bytes, "byte"),
                            counted(most_bytes_, "byte")));
    result_.bytes.assign(static_cast<size_t>(result_.elements * result_.type.bytes), autotune::kPoison);
    result_.is_initialised = has_value;
    if (has_value) fill(value);
  }

  void fill(const std::string& value) {
    const size_t colon = std::min(value.find(':'), value.size());
    const std::string how = value.substr(0, colon), with = colon < value.size() ? value.substr(colon + 1) : "";
    const auto count = static_cast<size_t>(result_.elements);
    if (value.starts_with('@')) {
      result_.bytes = read_bytes(flag_ + " " + text_, value.substr(1), result_.bytes.size());
    } else if (value == "zeros") {
      std::ranges::fill(result_.bytes, std::byte{0});
    } else if (how == "random") {
      random(colon < value.size() ? number<uint32_t>(with, "seed") : 0);
    } else if (how == "iota") {
      const auto first = colon < value.size() ? number<int64_t>(with, "first value") : 0;
      for (size_t i = 0; i < count; ++i) count_up(i, first + static_cast<int64_t>(i));
    } else {
      write(0, value);
      const auto width = static_cast<size_t>(result_.type.bytes);
      for (size_t i = 1; i < count; ++i) std::memcpy(&result_.bytes[i * width], result_.bytes.data(), width);
    }
  }

  /// Integers wrap around.
  void count_up(size_t element, int64_t value) {
    std::byte* to = result_.bytes.data() + element * static_cast<size_t>(result_.type.bytes);
    if (result_.type.kind == ScalarKind::floating || result_.type.kind == ScalarKind::bfloat)
      write_float(to, static_cast<double>(value));
    else std::memcpy(to, &value, static_cast<size_t>(result_.type.bytes));
  }

  /// Makes the same values on every machine: the standard fixes generators, but not distributions.
  void random(uint32_t seed) {
    std::mt19937 generator(seed);
    const bool is_integer =
        result_.type.kind == ScalarKind::signed_integer || result_.type.kind == ScalarKind::unsigned_integer;
    for (size_t i = 0; i < static_cast<size_t>(result_.elements); ++i) {
      const uint32_t bits = generator();
      if (is_integer) count_up(i, bits & 127);
      else write_float(&result_.bytes[i * static_cast<size_t>(result_.type.bytes)], bits * 0x1p-31 - 1.0);
    }
  }

  const std::string& flag_;
  const std::string& text_;
  int64_t most_bytes_;
  KernelArgument result_;
};

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

int64_t integer_value(const ScalarType& type, const std::byte* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(type.bytes));
  const int unused = 64 - 8 * type.bytes;
  return type.kind == ScalarKind::signed_integer ? static_cast<int64_t>(bits << unused) >> unused
                                                 : static_cast<int64_t>(bits);
}

}  // namespace

KernelArgument parse_kernel_argument(const std::string& flag, const std::string& text, int64_t most_bytes) {
  return Reader(flag, text, most_bytes).read();
}

double element_value(const ScalarType& type, const std::byte* at) {
  if (type.kind == ScalarKind::bfloat) return bf16_to_f32(read_as<uint16_t>(at));
  if (type.kind == ScalarKind::floating)
    return type.bytes == 2   ? f16_to_f32(read_as<uint16_t>(at))
           : type.bytes == 4 ? read_as<float>(at)
                             : read_as<double>(at);
  const int64_t value = integer_value(type, at);
  return type.kind == ScalarKind::unsigned_integer ? static_cast<double>(static_cast<uint64_t>(value))
                                                   : static_cast<double>(value);
}

std::string format_element(const ScalarType& type, const std::byte* at) {
  if (type.kind == ScalarKind::signed_integer) return fmt::format("{}", integer_value(type, at));
  if (type.kind == ScalarKind::unsigned_integer)
    return fmt::format("{}", static_cast<uint64_t>(integer_value(type, at)));
  return type.bytes == 8 ? fmt::format("{:.8g}", element_value(type, at))
                         : fmt::format("{:.5g}", element_value(type, at));
}

std::vector<std::byte> read_bytes(const std::string& flag, const std::string& path, size_t bytes) {
  check_is_file(flag, path, "give a file of raw bytes");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0));
  if (size != bytes) bad_input(fmt::format("{}: {} has {}, {} are needed", flag, path, counted(size, "byte"), bytes));
  std::vector<std::byte> result(bytes);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(result.data()), static_cast<std::streamsize>(bytes));
  if (!file) throw Error(ErrorCode::io, fmt::format("{}: {} could not be read", flag, path));
  return result;
}

}  // namespace seqtile::cli
