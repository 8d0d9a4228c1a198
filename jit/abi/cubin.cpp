// jit/abi/cubin.cpp -- see cubin.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/abi/cubin.h"

#include <elf.h>

#include <cstring>

namespace seqtile {

std::optional<int> cubin_sm(std::span<const std::byte> code) {
  constexpr int kCudaMachine = 190, kFirstAbiWithMovedNumber = 8;
  Elf64_Ehdr header;
  if (code.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, code.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kCudaMachine) return std::nullopt;
  const uint64_t tables_end = header.e_shoff + uint64_t{header.e_shentsize} * header.e_shnum;
  if (header.e_shoff > code.size() || tables_end > code.size()) return std::nullopt;
  const bool is_moved = header.e_ident[EI_ABIVERSION] >= kFirstAbiWithMovedNumber;
  return static_cast<int>(is_moved ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
}

int sm_number(std::string_view arch) {
  if (!arch.starts_with("sm_")) return 0;
  int number = 0;
  for (const char c : arch.substr(3)) {
    if (c < '0' || c > '9') break;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace seqtile
