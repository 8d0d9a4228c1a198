// jit/ptx/ptx_lexer.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx/ptx_lexer.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_identifier(char c) { return is_alnum(c) || c == '_' || c == '$' || c == '%'; }
bool is_dotted(char c) { return is_identifier(c) || c == '.'; }
bool is_opcode(char c) { return is_alnum(c) || c == '_' || c == '.' || c == ':'; }
bool is_number(char c) { return is_alnum(c) || c == '-' || c == '+'; }
bool is_directive(char c) { return is_alnum(c) || c == '_' || c == '.'; }

}  // namespace

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void PtxLexer::fail_at(int line, const std::string& message) {
  throw Error(ErrorCode::compile_failed, "PTX line " + std::to_string(line) + ": " + message);
}

void PtxLexer::fail(const std::string& expected) {
  skip_space();
  std::string found = "the end of the text";
  if (pos_ < text_.size()) {
    size_t end = pos_;
    while (end < text_.size() && end < pos_ + 24 && is_dotted(text_[end])) ++end;
    const auto byte = static_cast<unsigned char>(text_[pos_]);
    found = byte < ' ' || byte > '~' ? "byte " + std::to_string(byte)
                                     : "'" + std::string(text_.substr(pos_, std::max<size_t>(end - pos_, 1))) + "'";
  }
  fail_at(line_, "expected " + expected + ", found " + found);
}

void PtxLexer::skip_space() {
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c == '\n') {
      ++line_, ++pos_;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++pos_;
    } else if (c == '/' && text_.substr(pos_, 2) == "//") {
      while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
    } else if (c == '/' && text_.substr(pos_, 2) == "/*") {
      const size_t end = text_.find("*/", pos_ + 2);
      if (end == std::string_view::npos) fail_at(line_, "expected '*/', found the end of the text");
      for (; pos_ < end + 2; ++pos_) line_ += text_[pos_] == '\n';
    } else {
      return;
    }
  }
}

bool PtxLexer::at_digit() {
  skip_space();
  const char c = peek();
  if (std::isdigit(static_cast<unsigned char>(c))) return true;
  return c == '-' && pos_ + 1 < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_ + 1]));
}

bool PtxLexer::accept(char c) {
  if (!at(c)) return false;
  ++pos_;
  return true;
}

void PtxLexer::expect(char c) {
  if (!accept(c)) fail(std::string("'") + c + "'");
}

std::string_view PtxLexer::take_while(bool (*belongs)(char), const char* what) {
  skip_space();
  const size_t start = pos_;
  while (pos_ < text_.size() && belongs(text_[pos_])) ++pos_;
  if (pos_ == start) fail(what);
  return text_.substr(start, pos_ - start);
}

std::string_view PtxLexer::identifier(const char* what) { return take_while(is_identifier, what); }
std::string_view PtxLexer::dotted_identifier(const char* what) { return take_while(is_dotted, what); }
std::string_view PtxLexer::opcode() { return take_while(is_opcode, "an opcode"); }
std::string_view PtxLexer::number_text() { return take_while(is_number, "a number"); }

std::string_view PtxLexer::directive() {
  return at('.') ? take_while(is_directive, "a directive") : std::string_view();
}

int64_t PtxLexer::integer(const char* what) {
  if (!at_digit()) fail(what);
  const std::string digits(number_text());
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(digits.c_str(), &end, 0);
  // "32U" as in .maxntid of some producers
  if (*end != '\0' && !((*end == 'U' || *end == 'u') && end[1] == '\0'))
    fail_at(line_, "expected " + std::string(what) + ", found '" + digits + "'");
  if (errno == ERANGE) fail_at(line_, std::string(what) + " of " + digits + " does not fit 64 bits");
  return value;
}

std::string_view PtxLexer::rest_of_line() {
  const size_t start = pos_;
  while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
  return text_.substr(start, pos_ - start);
}

void PtxLexer::skip_nested(char open, char close) {
  for (int depth = 1; depth > 0;) {
    if (at_end()) fail(std::string("'") + close + "'");
    const char c = text_[pos_++];
    depth += c == open ? 1 : c == close ? -1 : 0;
  }
}

void PtxLexer::skip_braces() { skip_nested('{', '}'); }

void PtxLexer::skip_token() {
  if (at_end()) fail("';'");
  ++pos_;
}

void PtxLexer::skip_parentheses() {
  expect('(');
  skip_nested('(', ')');
}

void PtxLexer::skip_definition() {
  while (!at_end() && !at('{') && !at(';')) ++pos_;
  if (accept('{')) skip_braces();
  else expect(';');
}

}  // namespace seqtile::sim
