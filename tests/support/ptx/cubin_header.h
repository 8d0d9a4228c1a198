// tests/support/ptx/cubin_header.h -- the first bytes of a cubin, which name its GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <elf.h>

#include <algorithm>
#include <string>

namespace seqtile::test {

/// A header that names sm_`sm` in the old or the new place, with nothing behind it.
inline std::string cubin_header(int sm, bool is_new = true) {
  Elf64_Ehdr header = {};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_ABIVERSION] = is_new ? 8 : 7;
  header.e_machine = 190;
  header.e_flags = static_cast<uint32_t>(is_new ? sm << 8 | 4 : sm << 16 | sm);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

}  // namespace seqtile::test
