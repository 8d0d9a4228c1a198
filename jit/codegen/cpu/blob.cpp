// jit/codegen/cpu/blob.cpp -- lays out an object's sections and resolves its relocations; see blob.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/blob.h"

#include "seqtile/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <optional>

namespace seqtile::cpu {
namespace {

uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

class Linker {
 public:
  Linker(std::span<const char> object, std::string_view entry) : object_(object), entry_(entry) {
    header_ = read<Elf64_Ehdr>(0);
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_ident[EI_CLASS] != ELFCLASS64)
      fail("the object is not 64-bit ELF");
    for (unsigned i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(read<Elf64_Shdr>(header_.e_shoff + i * uint64_t{header_.e_shentsize}));
    placed_.resize(sections_.size());
  }

  Blob link() {
    // Text first: the entry then sits at the start, which is what profilers and dumps expect.
    place_sections(true);
    place_sections(false);
    blob_.code.resize(align_up(blob_.code.size(), 64));
    for (const Elf64_Shdr& section : sections_)
      if (section.sh_type == SHT_RELA && placed_[section.sh_info]) relocate_section(section);
    find_entry();
    return std::move(blob_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::compile_failed, fmt::format("kernel {}: {}", entry_, what));
  }

  template <class T>
  T read(uint64_t offset) const {
    if (offset > object_.size() || object_.size() - offset < sizeof(T)) fail("the object is truncated");
    T value;
    std::memcpy(&value, object_.data() + offset, sizeof(T));
    return value;
  }

  std::string_view text_at(const Elf64_Shdr& table, uint64_t offset) const {
    if (table.sh_offset + offset >= object_.size()) fail("the object is truncated");
    return object_.data() + table.sh_offset + offset;
  }
  std::string_view section_name(const Elf64_Shdr& section) const {
    return text_at(sections_[header_.e_shstrndx], section.sh_name);
  }
  std::string_view symbol_name(const Elf64_Shdr& table, const Elf64_Sym& symbol) const {
    const bool is_section = ELF64_ST_TYPE(symbol.st_info) == STT_SECTION && symbol.st_shndx < sections_.size();
    if (is_section) return section_name(sections_[symbol.st_shndx]);
    return text_at(sections_[table.sh_link], symbol.st_name);
  }

  void place_sections(bool text) {
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      const bool is_text = (section.sh_flags & SHF_EXECINSTR) != 0;
      // Unwind tables and notes are for tools that never see these pages.
      const bool is_needed = (section.sh_flags & SHF_ALLOC) && section.sh_size > 0 && section.sh_type != SHT_NOTE &&
                             section.sh_type != SHT_X86_64_UNWIND && section_name(section) != ".eh_frame";
      if (!is_needed || is_text != text) continue;
      if (section.sh_type != SHT_PROGBITS || (section.sh_flags & (SHF_WRITE | SHF_TLS)))
        fail(fmt::format("writable data in section {}; a kernel may only have constants", section_name(section)));
      if (section.sh_offset + section.sh_size > object_.size()) fail("the object is truncated");
      const uint64_t start = align_up(blob_.code.size(), std::max<uint64_t>(section.sh_addralign, is_text ? 64 : 1));
      blob_.code.resize(start + section.sh_size);
      std::memcpy(blob_.code.data() + start, object_.data() + section.sh_offset, section.sh_size);
      placed_[i] = start;
    }
  }

  void relocate_section(const Elf64_Shdr& relocations) {
    const Elf64_Shdr& symbols = sections_[relocations.sh_link];
    for (uint64_t at = 0; at < relocations.sh_size; at += sizeof(Elf64_Rela)) {
      const auto relocation = read<Elf64_Rela>(relocations.sh_offset + at);
      const auto symbol = read<Elf64_Sym>(symbols.sh_offset + ELF64_R_SYM(relocation.r_info) * sizeof(Elf64_Sym));
      const std::string_view name = symbol_name(symbols, symbol);
      if (symbol.st_shndx == SHN_UNDEF)
        fail(fmt::format("the code needs the external symbol {}; lower that operation to instructions", name));
      if (symbol.st_shndx >= sections_.size() || !placed_[symbol.st_shndx])
        fail(fmt::format("{} lies outside of text and constants", name));
      const int64_t value = static_cast<int64_t>(*placed_[symbol.st_shndx] + symbol.st_value) + relocation.r_addend;
      const uint64_t place = *placed_[relocations.sh_info] + relocation.r_offset;
      apply(ELF64_R_TYPE(relocation.r_info), place, value, name);
    }
  }

  /// `place` and `value` are offsets in the blob, whose base is page-aligned at run time: so differences are final,
  /// differences of pages too, and so are the low 12 bits of an address.
  void apply(uint32_t type, uint64_t place, int64_t value, std::string_view name) {
    const bool done = header_.e_machine == EM_X86_64    ? apply_x86(type, place, value)
                      : header_.e_machine == EM_AARCH64 ? apply_aarch64(type, place, value)
                                                        : false;
    if (!done)
      fail(fmt::format("relocation {} of machine {} to {} cannot be resolved before loading", type, header_.e_machine,
                       name));
  }

  bool apply_x86(uint32_t type, uint64_t place, int64_t value) {
    const int64_t delta = value - static_cast<int64_t>(place);
    switch (type) {
      case R_X86_64_PC32:
      case R_X86_64_PLT32: patch(place, static_cast<int32_t>(delta)); return true;
      case R_X86_64_PC64: patch(place, delta); return true;
      default: return false;
    }
  }

  bool apply_aarch64(uint32_t type, uint64_t place, int64_t value) {
    const int64_t delta = value - static_cast<int64_t>(place);
    const int64_t pages = (value >> 12) - static_cast<int64_t>(place >> 12);
    const auto low12 = static_cast<uint32_t>(value & 0xfff);
    switch (type) {
      case R_AARCH64_PREL32: patch(place, static_cast<int32_t>(delta)); return true;
      case R_AARCH64_PREL64: patch(place, delta); return true;
      case R_AARCH64_CALL26:
      case R_AARCH64_JUMP26: set_bits(place, static_cast<uint32_t>(delta >> 2) & 0x3ffffff, 0); return true;
      case R_AARCH64_ADR_PREL_PG_HI21:
        set_bits(place, static_cast<uint32_t>(pages) & 3, 29);
        set_bits(place, static_cast<uint32_t>(pages >> 2) & 0x7ffff, 5);
        return true;
      case R_AARCH64_ADD_ABS_LO12_NC:
      case R_AARCH64_LDST8_ABS_LO12_NC: set_bits(place, low12, 10); return true;
      case R_AARCH64_LDST16_ABS_LO12_NC: set_bits(place, low12 >> 1, 10); return true;
      case R_AARCH64_LDST32_ABS_LO12_NC: set_bits(place, low12 >> 2, 10); return true;
      case R_AARCH64_LDST64_ABS_LO12_NC: set_bits(place, low12 >> 3, 10); return true;
      case R_AARCH64_LDST128_ABS_LO12_NC: set_bits(place, low12 >> 4, 10); return true;
      default: return false;
    }
  }

  template <class T>
  void patch(uint64_t place, T value) {
    if (place + sizeof(T) > blob_.code.size()) fail("a relocation lies outside of its section");
    std::memcpy(blob_.code.data() + place, &value, sizeof(T));
  }
  /// Ors a field, which the assembler leaves zero, into the instruction word at `place`.
  void set_bits(uint64_t place, uint32_t field, int shift) {
    if (place + 4 > blob_.code.size()) fail("a relocation lies outside of its section");
    uint32_t word;
    std::memcpy(&word, blob_.code.data() + place, 4);
    patch(place, word | field << shift);
  }

  void find_entry() {
    for (const Elf64_Shdr& table : sections_) {
      if (table.sh_type != SHT_SYMTAB) continue;
      for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
        const auto symbol = read<Elf64_Sym>(table.sh_offset + at);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol_name(table, symbol) != entry_) continue;
        if (symbol.st_shndx >= sections_.size() || !placed_[symbol.st_shndx]) continue;
        blob_.entry_offset = *placed_[symbol.st_shndx] + symbol.st_value;
        return;
      }
    }
    fail("the object does not define it");
  }

  std::span<const char> object_;
  std::string_view entry_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::vector<std::optional<uint64_t>> placed_;  ///< a section's offset in the blob
  Blob blob_;
};

}  // namespace

Blob link_blob(std::span<const char> object, std::string_view entry) { return Linker(object, entry).link(); }

}  // namespace seqtile::cpu
