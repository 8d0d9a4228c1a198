// jit/base/hash.h -- SHA-256 as hex, for keys and checksums.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile {

/// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace seqtile
