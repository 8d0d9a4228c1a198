// jit/sim/ptx_declarations.cpp -- see ptx_declarations.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/ptx_declarations.h"

#include <bit>
#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

namespace seqtile::sim {
namespace {

constexpr int64_t kMaxVariableBytes = int64_t{1} << 32;  ///< beyond what any space of a device holds

int64_t alignment(PtxLexer& lexer) {
  const int line = lexer.line();
  const int64_t align = lexer.integer("an alignment");
  if (align < 1 || align > 1 << 20 || (align & (align - 1)) != 0)
    PtxLexer::fail_at(line, fmt::format(".align {}: a power of two, at most {}, is needed", align, 1 << 20));
  return align;
}

}  // namespace

PtxType read_type(PtxLexer& lexer, std::string_view word, const char* expected) {
  const PtxType type = word.empty() ? PtxType::none : parse_ptx_type(word.substr(1));
  if (type != PtxType::none) return type;
  if (word.empty()) lexer.fail(expected);
  PtxLexer::fail_at(lexer.line(), fmt::format("expected {}, found '{}'", expected, word));
}

PtxOperand read_immediate(PtxLexer& lexer) {
  PtxOperand parsed;
  parsed.kind = PtxOperand::Kind::immediate;
  const int line = lexer.line();
  std::string text(lexer.number_text());
  const bool is_decimal = lexer.peek() == '.';
  if (is_decimal && lexer.accept('.')) text += "." + std::string(lexer.number_text());
  const char form = text.size() > 1 && text[0] == '0' ? text[1] : '\0';
  char* end = nullptr;
  errno = 0;
  if (is_decimal) {
    parsed.bits = std::bit_cast<uint64_t>(std::strtod(text.c_str(), &end));
    parsed.is_double = true;
  } else if ((form == 'f' || form == 'F') && text.size() == 10) {
    parsed.bits = std::strtoull(text.c_str() + 2, &end, 16);
    parsed.is_float = true;
  } else if ((form == 'd' || form == 'D') && text.size() == 18) {
    parsed.bits = std::strtoull(text.c_str() + 2, &end, 16);
    parsed.is_double = true;
  } else if (text[0] == '-') {
    parsed.bits = static_cast<uint64_t>(std::strtoll(text.c_str(), &end, 0));
  } else {
    parsed.bits = std::strtoull(text.c_str(), &end, 0);
  }
  if (*end == 'U') ++end;
  if (*end != '\0') PtxLexer::fail_at(line, "expected a number, found '" + text + "'");
  if (errno == ERANGE) PtxLexer::fail_at(line, text + " does not fit 64 bits");
  return parsed;
}

void read_declarator(PtxLexer& lexer, PtxVariable& variable) {
  std::string_view word = lexer.directive();
  variable.align = 0;
  while (word == ".align" || word == ".ptr" || word == ".global" || word == ".shared") {
    if (word == ".align") variable.align = alignment(lexer);
    word = lexer.directive();
  }
  variable.type = read_type(lexer, word, "a type");
  // `.param .u64 .ptr .global .align 16 name`: facts about the pointer, not about the parameter
  for (word = lexer.directive(); !word.empty(); word = lexer.directive())
    if (word == ".align") alignment(lexer);
  if (variable.align == 0) variable.align = ptx_type_bytes(variable.type);
  variable.name = lexer.identifier("a name");
  variable.bytes = ptx_type_bytes(variable.type);
  while (lexer.accept('[')) {
    const int line = lexer.line();
    const int64_t count = lexer.at(']') ? 0 : lexer.integer("a size");
    if (count < 0 || (variable.bytes > 0 && count > kMaxVariableBytes / variable.bytes))
      PtxLexer::fail_at(line, fmt::format("'{}' has {} elements of {} bytes; at most {} bytes are possible",
                                          variable.name, count, variable.bytes, kMaxVariableBytes));
    variable.bytes *= count;
    lexer.expect(']');
  }
}

void read_initializer(PtxLexer& lexer, PtxVariable& variable) {
  const int element_bytes = ptx_type_bytes(variable.type);
  const auto append = [&] {
    if (static_cast<int64_t>(variable.initial.size()) + element_bytes > variable.bytes)
      PtxLexer::fail_at(lexer.line(),
                        fmt::format("more values than the {} bytes of '{}' hold", variable.bytes, variable.name));
    const uint64_t bits = read_immediate(lexer).bits;
    for (int i = 0; i < element_bytes; ++i) variable.initial.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  };
  if (lexer.accept('{')) {
    do append();
    while (lexer.accept(','));
    lexer.expect('}');
  } else {
    append();
  }
}

}  // namespace seqtile::sim
