// jit/codegen/cpu/blob.h -- a relocatable ELF object -> one relocation-free block of text and constants.
// SPDX-License-Identifier: Apache-2.0
//
// All sections that code needs are laid out behind each other, text first, and every PC-relative relocation between
// them is resolved. The resulting block runs wherever it is mapped at a page boundary. Nothing else is linked: an
// external symbol, an absolute address or writable data is an error here, at compile time, and not when loading.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace seqtile::cpu {

struct Blob {
  std::vector<std::byte> code;
  uint64_t entry_offset = 0;
};

/// Links `object` (ELF64, little-endian, x86-64 or AArch64) around its function `entry`.
/// Errors: compile_failed naming the entry and the external symbol, relocation or section.
Blob link_blob(std::span<const char> object, std::string_view entry);

}  // namespace seqtile::cpu
