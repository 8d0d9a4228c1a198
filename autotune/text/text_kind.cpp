// autotune/text/text_kind.cpp -- see text_kind.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/text/text_kind.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace seqtile::autotune {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMark = "\xEF\xBB\xBF";

struct Magic {
  std::string_view bytes, kind;
};

constexpr Magic kMagics[] = {
    {"\x1F\x8B", "compressed with gzip; unpack it with `gunzip`"},
    {"\x28\xB5\x2F\xFD", "compressed with zstd; unpack it with `unzstd`"},
    {"\xFD"
     "7zXZ",
     "compressed with xz; unpack it with `unxz`"},
    {"BZh", "compressed with bzip2; unpack it with `bunzip2`"},
    {"\x04\x22\x4D\x18", "compressed with lz4; unpack it with `unlz4`"},
    {"x\x9C", "compressed with zlib; unpack it"},
    {"x\xDA", "compressed with zlib; unpack it"},
    {"7z\xBC\xAF\x27\x1C", "a 7z archive; unpack it with `7z x`"},
    {"PAR1", "a Parquet file; give a file of text"},
    {"---\n", "YAML; give a file of JSON"},
    {"---\r\n", "YAML; give a file of JSON"},
    {"PK\x03\x04", "a zip archive, such as weights of PyTorch; give a file of text"},
    {"GGUF", "a GGUF file of weights; give the config.json of the model that it was made of"},
    {"\x80\x02", "a pickle of Python, such as weights of PyTorch; give a file of text"},
    {"\x80\x03", "a pickle of Python; give a file of text"},
    {"\x80\x04", "a pickle of Python; give a file of text"},
    {"\x80\x05", "a pickle of Python; give a file of text"},
    {"\x89HDF", "an HDF5 file; give a file of text"},
    {"\x89PNG", "a picture; give a file of text"},
    {"\x93NUMPY", "an array of NumPy; give a file of text"},
    {"\x7F"
     "ELF",
     "a program; give a file of text"},
    {"SQLite format 3\0"sv, "an SQLite database; give a file of text"},
    {"%PDF-", "a PDF; give a file of text"},
    {"version https://git-lfs.github.com/spec/",
     "a pointer of git-lfs, not the file itself; run `git lfs pull` where it was cloned"},
    {"../", "a link that was copied as text; give the file that it names"},
    {"/annex/objects/", "a pointer of git-annex, not the file itself; run `git annex get` where it was cloned"},
};

std::string utf_kind(std::string_view encoding) {
  return fmt::format("text in {}; convert it: iconv -f {} -t UTF-8 OLD > NEW", encoding, encoding);
}

/// By the mark, or by the zero bytes that the first characters have if they are ASCII.
std::string wide_encoding(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xFE\0\0"sv)) return "UTF-32LE";
  if (bytes.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32BE";
  if (bytes.starts_with("\xFF\xFE")) return "UTF-16LE";
  if (bytes.starts_with("\xFE\xFF")) return "UTF-16BE";
  if (bytes.size() < 4) return {};
  const auto is_ascii = [&](size_t i) { return bytes[i] > 0; };
  const auto is_zero = [&](size_t i) { return bytes[i] == 0; };
  if (is_ascii(0) && is_zero(1) && is_zero(2) && is_zero(3)) return "UTF-32LE";
  if (is_zero(0) && is_zero(1) && is_zero(2) && is_ascii(3)) return "UTF-32BE";
  if (is_ascii(0) && is_zero(1) && is_zero(3)) return "UTF-16LE";
  if (is_zero(0) && is_ascii(1) && is_zero(2)) return "UTF-16BE";
  return {};
}

/// Eight bytes of a length, and the object of that length.
bool is_safetensors(std::string_view bytes) {
  return bytes.size() > 9 && bytes[8] == '{' && bytes[6] == 0 && bytes[7] == 0;
}

/// Whether the first bytes are no object or array, and have more control characters than a damaged text has.
bool is_binary(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, 512);
  if (head.starts_with('{') || head.starts_with('[')) return false;
  const auto is_control = [](unsigned char c) { return c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f'; };
  const auto count = static_cast<size_t>(std::ranges::count_if(head, is_control));
  return count > 3 && 16 * count > head.size();
}

}  // namespace

std::string_view without_mark(std::string_view text) {
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::string foreign_kind(std::string_view bytes) {
  for (const Magic& magic : kMagics)
    if (bytes.starts_with(magic.bytes)) return std::string(magic.kind);
  if (is_safetensors(bytes)) return "a safetensors file of weights; give the config.json beside it";
  if (const std::string encoding = wide_encoding(bytes); !encoding.empty()) return utf_kind(encoding);
  if (!bytes.empty() && bytes.substr(0, 512).find_first_not_of('\0') == std::string_view::npos)
    return "zero bytes, as a copy that was interrupted leaves them; get the file again";
  if (is_binary(bytes)) return "no text but binary data; give a file of text";
  std::string_view text = without_mark(bytes);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.empty()) return "empty; get the file again";
  if (text.front() != '<' || text.starts_with("<<<")) return {};
  std::string head(text.substr(0, 512));
  std::ranges::transform(head, head.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (head.find("<html") != std::string::npos || head.starts_with("<!doctype html"))
    return "an HTML page, perhaps of an error or a log-in; get the file itself";
  return "XML; give the file itself";
}

}  // namespace seqtile::autotune
