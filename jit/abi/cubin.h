// jit/abi/cubin.h -- reads the header of a cubin, an ELF file of GPU code, without loading the code.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace seqtile {

/// The number of the architecture that the code is for: 90 for sm_90 and sm_90a. Nothing for other files, and for a
/// file that ends within its header.
std::optional<int> cubin_sm(std::span<const std::byte> code);

/// 90 of "sm_90a"; 0 for other text.
int sm_number(std::string_view arch);

}  // namespace seqtile
