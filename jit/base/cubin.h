// jit/base/cubin.h -- what the header of a cubin, an ELF file of GPU code, says without loading it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace seqtile {

/// The number of the architecture that the code is for: 90 for sm_90 and sm_90a. Nothing for other files, and for one
/// that ends before its header says.
std::optional<int> cubin_sm(std::span<const std::byte> code);

/// 90 of "sm_90a"; 0 for other text.
int sm_number(std::string_view arch);

}  // namespace seqtile
