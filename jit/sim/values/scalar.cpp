// jit/sim/values/scalar.cpp -- asks the families in turn.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/values/scalar.h"

#include <algorithm>
#include <cmath>

namespace seqtile::sim {

VectorLevel vector_level() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const VectorLevel found = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return VectorLevel::avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VectorLevel::avx2 : VectorLevel::base;
  }();
  return found;
#else
  return VectorLevel::base;
#endif
}

uint32_t float_to_fp8(float value, int mantissa) {
  const uint32_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return mantissa == 3 ? 0x7f : 0x7e;
  const int bias = mantissa == 3 ? 7 : 15;
  const float largest = mantissa == 3 ? 448.0f : 57344.0f;
  const float magnitude = std::min(std::fabs(value), largest);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // in units of the last place; the default rounding mode is to nearest even
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  const uint32_t encoded = (static_cast<uint32_t>(exponent + bias - 1) << mantissa) + units;
  const uint32_t limit = mantissa == 3 ? 0x7e : 0x7b;
  return sign | std::min(encoded, limit);
}

Opcode::Opcode(std::string_view text) {
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('.', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
}

bool Opcode::has(std::string_view modifier) const {
  return std::find(parts.begin() + 1, parts.end(), modifier) != parts.end();
}

bool Opcode::only(std::initializer_list<std::string_view> allowed, size_t types) const {
  for (size_t i = 1; i + types < parts.size(); ++i)
    if (std::find(allowed.begin(), allowed.end(), parts[i]) == allowed.end()) return false;
  return parts.size() > types;
}

std::string operand_letters(PtxType type, int count) {
  const char letter = type == PtxType::pred ? 'p' : ptx_type_bytes(type) == 8 ? 'x' : 'w';
  return std::string(static_cast<size_t>(count), letter);
}

std::optional<ScalarForm> resolve_scalar(const Opcode& opcode, std::span<const OperandShape> shapes) {
  if (auto form = resolve_mixed(opcode, shapes.size())) return form;
  if (auto form = resolve_integer(opcode)) return form;
  if (auto form = resolve_carry(opcode)) return form;
  if (auto form = resolve_bits(opcode)) return form;
  if (auto form = resolve_float(opcode)) return form;
  if (auto form = resolve_rounded(opcode)) return form;
  if (auto form = resolve_half(opcode)) return form;
  if (auto form = resolve_compare(opcode, shapes)) return form;
  if (auto form = resolve_convert(opcode, shapes)) return form;
  return resolve_move(opcode, shapes);
}

}  // namespace seqtile::sim
