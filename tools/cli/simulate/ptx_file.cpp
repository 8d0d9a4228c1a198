// tools/cli/simulate/ptx_file.cpp -- see ptx_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate/ptx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tools/cli/errors.h"
#include "tools/cli/options.h"

namespace seqtile::cli {
namespace {

using std::string_view_literals::operator""sv;

struct Mark {
  std::string_view bytes, what;
};

constexpr std::string_view kHaveText = "`cuobjdump -ptx FILE` prints the PTX that it may hold";

constexpr Mark kMagics[] = {
    {"\x50\xed\x55\xba"sv, "a fatbinary"},
    {"!<arch>\n"sv, "a library of object files"},
    {"BC\xc0\xde"sv, "LLVM bitcode"},
    {"\x1f\x8b"sv, "compressed with gzip; unpack it"},
    {"PK\x03\x04"sv, "a zip archive; unpack it"},
    {"\xff\xfe"sv, "UTF-16 text; save it as UTF-8"},
    {"\xfe\xff"sv, "UTF-16 text; save it as UTF-8"},
    {"version https://git-lfs"sv, "a git-lfs pointer; `git lfs pull` gets the file"},
};

constexpr Mark kWords[] = {
    {"<html", "an HTML page"},
    {"<!doctype", "an HTML page"},
    {"/*0000*/", "SASS, the disassembly of a cubin; the PTX that it was made of is needed"},
    {".headerflags", "SASS, the disassembly of a cubin; the PTX that it was made of is needed"},
    {"code for sm_", "SASS, the disassembly of a cubin; the PTX that it was made of is needed"},
    {"target triple", "LLVM IR; `llc -march=nvptx64` makes PTX of it"},
    {"source_filename", "LLVM IR; `llc -march=nvptx64` makes PTX of it"},
    {"tt.func", "Triton IR; the compiled kernel's asm[\"ptx\"] is needed"},
    {"llvm.func", "MLIR; PTX is needed"},
    {"__global__", "CUDA C++; `nvcc -ptx` makes PTX of it"},
    {"#include", "C++; `nvcc -ptx` makes PTX of CUDA C++"},
    {"triton.jit", "Python; the compiled kernel's asm[\"ptx\"] is needed"},
};

/// Names the kind of an ELF file by its machine, at byte 18: 190 is a GPU of NVIDIA.
std::string describe_elf(std::string_view bytes) {
  const bool is_cubin = bytes.size() > 19 && static_cast<unsigned char>(bytes[18]) == 190 && bytes[19] == 0;
  return fmt::format("{}; {}", is_cubin ? "a cubin, machine code of a GPU" : "an ELF file", kHaveText);
}

bool has_directive(std::string_view text) {
  const size_t at = text.find(".version");
  return at != std::string_view::npos && text.find(".target", at) != std::string_view::npos;
}

}  // namespace

std::string describe_no_ptx(std::string_view bytes) {
  constexpr size_t kLooked = 1 << 16;
  if (bytes.empty()) return "empty";
  if (bytes.starts_with("\x7f"
                        "ELF"))
    return describe_elf(bytes);
  for (const Mark& magic : kMagics)
    if (bytes.starts_with(magic.bytes)) return std::string(magic.what);
  if (bytes.find('\0') != std::string_view::npos) return "binary";
  if (has_directive(bytes)) return "";
  std::string start(bytes.substr(0, kLooked));
  std::ranges::transform(start, start.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Mark& word : kWords)
    if (start.find(word.bytes) != std::string::npos) return std::string(word.what);
  return "text without .version and .target";
}

std::string read_ptx_file(const std::string& flag, const std::string& path, const std::string& advice) {
  check_is_file(flag, path, advice);
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string bytes = text.str();
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.erase(0, 3);
  if (const std::string what = describe_no_ptx(bytes); !what.empty())
    bad_input(fmt::format("{} {}: is not PTX but {}{}", flag, path, what,
                          what.find(';') == std::string::npos ? "; " + advice : ""));
  return bytes;
}

}  // namespace seqtile::cli
