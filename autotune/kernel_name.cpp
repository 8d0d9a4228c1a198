// autotune/kernel_name.cpp -- see kernel_name.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/kernel_name.h"

#include <cctype>

namespace seqtile::autotune {
namespace {

/// Appends '_' and `word`, reduced to characters of a symbol.
void append_word(std::string& name, std::string_view word) {
  name += '_';
  for (const char c : word)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') name += c;
    else if (c == '-') name += 'm';
    else if (c == '.') name += 'p';
}

}  // namespace

std::string kernel_name(const OpDef& op, const Workload& workload, const Config& config, const Target& target) {
  std::string name = op.name;
  append_word(name, dtype_name(workload.dtype));
  for (const auto& [key, value] : config.values()) {
    if (const auto* text = std::get_if<std::string>(&value)) append_word(name, *text);
    else if (const auto* integer = std::get_if<int64_t>(&value)) append_word(name, std::to_string(*integer));
    else append_word(name, std::to_string(std::get<double>(value)));
  }
  append_word(name, target.name.substr(target.name.find(':') + 1));
  return name;
}

}  // namespace seqtile::autotune
