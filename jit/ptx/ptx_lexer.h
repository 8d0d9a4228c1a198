// jit/ptx/ptx_lexer.h -- characters of PTX text as words, numbers and punctuation, with line numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace seqtile::sim {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words);

class PtxLexer {
 public:
  explicit PtxLexer(std::string_view text) : text_(text) {}

  /// Line of the next character that is neither space nor comment.
  int line() { return skip_space(), line_; }
  bool at_end() { return skip_space(), pos_ >= text_.size(); }
  bool at(char c) { return skip_space(), pos_ < text_.size() && text_[pos_] == c; }
  /// The next character without skipping space; 0 at the end.
  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  bool at_digit();
  bool accept(char c);
  void expect(char c);
  /// Letters, digits, '_', '$', '%'.
  std::string_view identifier(const char* what);
  /// A directive with its dot (".reg"), empty where the next character is no dot.
  std::string_view directive();
  /// An opcode with all modifiers, "::" included.
  std::string_view opcode();
  /// A special register with its suffix: "%tid.x".
  std::string_view dotted_identifier(const char* what);
  int64_t integer(const char* what);
  /// Sign, digits and base prefix as they stand: "0f3F800000", "-12", "0x1F".
  std::string_view number_text();
  /// The rest of the line, comment included.
  std::string_view rest_of_line();
  /// Everything up to and including the brace that closes the one just read.
  void skip_braces();
  /// One character, whatever it is.
  void skip_token();
  /// Skips from the next parenthesis to the one that closes it.
  void skip_parentheses();
  /// Skips to behind the `;` that ends a declaration, or behind the braces of a body: the one that comes first.
  void skip_definition();
  /// A place in the text, from position(), for go_back().
  struct Position {
    size_t at;
    int line;
  };
  Position position() const { return {pos_, line_}; }
  void go_back(Position position) { pos_ = position.at, line_ = position.line; }
  [[noreturn]] void fail(const std::string& expected);
  [[noreturn]] static void fail_at(int line, const std::string& message);

 private:
  void skip_space();
  void skip_nested(char open, char close);
  std::string_view take_while(bool (*belongs)(char), const char* what);

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
};

}  // namespace seqtile::sim
