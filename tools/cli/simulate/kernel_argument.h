// tools/cli/simulate/kernel_argument.h -- parses the arguments of a foreign kernel: buffers with first values, and
// scalars.
// SPDX-License-Identifier: Apache-2.0
//
//   f32[1024]            a buffer that nothing has written; a read before a write is reported
//   f32[1024]=zeros      =random[:SEED]: floats in [-1, 1), integers from 0 to 127
//                        =iota[:FIRST], =VALUE, =@FILE: the bytes of the file
//   i32=1000 f32=1e-5    a scalar
//   null                 a null pointer
//   same=0               the pointer of argument 0
//   raw=3f800000         bytes in hexadecimal, for a parameter of any type
// Types are i8 to i64, u8 to u64, f16, bf16, f32 and f64.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile::cli {

enum class ScalarKind : uint8_t { signed_integer, unsigned_integer, floating, bfloat };

struct ScalarType {
  std::string name;  ///< "f32"
  ScalarKind kind = ScalarKind::floating;
  int bytes = 4;
};

struct KernelArgument {
  enum class Form : uint8_t { buffer, scalar, null, same, raw };
  Form form = Form::scalar;
  std::string text;  ///< as given
  ScalarType type;
  int64_t elements = 0;          ///< number of elements of a buffer
  bool is_initialised = false;   ///< a buffer with first values
  size_t same_as = 0;            ///< index of an earlier argument
  std::vector<std::byte> bytes;  ///< bytes of a buffer, a scalar or raw bytes
};

/// `most_bytes`: limit of a buffer; a larger one is refused before it is made.
/// Errors: invalid_argument with `flag`, the text and the expected forms.
KernelArgument parse_kernel_argument(const std::string& flag, const std::string& text, int64_t most_bytes);

/// An element of a buffer as text and as a number.
std::string format_element(const ScalarType& type, const std::byte* at);
double element_value(const ScalarType& type, const std::byte* at);

/// The bytes of the file at `path`. Errors: invalid_argument unless the file has exactly `bytes` bytes.
std::vector<std::byte> read_bytes(const std::string& flag, const std::string& path, size_t bytes);

}  // namespace seqtile::cli
