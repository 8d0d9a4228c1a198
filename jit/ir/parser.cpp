// jit/ir/parser.cpp -- reads the text form of a function (printer.cpp shows it); `//` starts a comment.
// SPDX-License-Identifier: Apache-2.0
//
// Recursive descent over the characters, no separate token list. The parser builds any structure that the grammar
// allows and leaves the rules to the verifier, so that tests and tools can hold IR that breaks them.
#include <cctype>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "jit/ir/verifier.h"
#include "seqtile/error.h"
#include "seqtile/ir.h"

namespace seqtile::ir {
namespace {

constexpr int kMaxDepth = 64;  // nested blocks; keeps the recursion far from the end of the stack
constexpr int64_t kMaxId = 1'000'000'000;

bool is_word_char(char c) { return is_word({&c, 1}); }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::unique_ptr<Function> parse() {
    expect_word("kernel");
    expect('@');
    function_ = std::make_unique<Function>(std::string(word("the kernel's name")));
    expect('(');
    if (!accept(')')) {
      do {
        const int id = value_id();
        std::string name(word("a parameter's name"));
        expect(':');
        bind(id, function_->add_param(std::move(name), type()));
      } while (accept(','));
      expect(')');
    }
    if (at_attributes()) function_->attributes = attributes();
    block(&function_->body(), 0);
    skip_space();
    if (pos_ != text_.size()) fail("expected the end of the text");
    return std::move(function_);
  }

 private:
  // characters and words

  [[noreturn]] void fail(const std::string& message) {
    skip_space();
    fail_at(pos_, message);
  }

  [[noreturn]] void fail_at(size_t pos, const std::string& message) {
    int line = 1, column = 1;
    for (size_t i = 0; i < pos; ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n';
    }
    std::string found = "the end of the text";
    if (pos < text_.size()) {
      size_t end = pos + 1;
      while (end < text_.size() && end < pos + 20 && is_word_char(text_[pos]) && is_word_char(text_[end])) ++end;
      found = "'" + std::string(text_.substr(pos, end - pos)) + "'";
    }
    throw Error(ErrorCode::compile_failed, "tile IR text, line " + std::to_string(line) + ":" + std::to_string(column) +
                                               ": " + message + ", found " + found);
  }

  void skip_space() {
    while (pos_ < text_.size()) {
      if (text_.substr(pos_, 2) == "//") {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  bool at(char c) {
    skip_space();
    return pos_ < text_.size() && text_[pos_] == c;
  }

  bool accept(char c) {
    if (!at(c)) return false;
    ++pos_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "'");
  }

  std::string_view peek_word() {
    skip_space();
    size_t end = pos_;
    while (end < text_.size() && is_word_char(text_[end])) ++end;
    return text_.substr(pos_, end - pos_);
  }

  std::string_view word(const char* what) {
    const std::string_view found = peek_word();
    if (found.empty()) fail(std::string("expected ") + what);
    pos_ += found.size();
    return found;
  }

  void expect_word(std::string_view expected) {
    if (peek_word() != expected) fail("expected '" + std::string(expected) + "'");
    pos_ += expected.size();
  }

  int64_t integer(const char* what, int64_t lo, int64_t hi) {
    skip_space();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < lo || value > hi)
      fail(std::string("expected ") + what + " in " + std::to_string(lo) + ".." + std::to_string(hi));
    pos_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  // types

  DType dtype() {
    const size_t start = (skip_space(), pos_);
    const auto found = parse_dtype(word("an element type"));
    if (!found || dtype_name(*found) != text_.substr(start, pos_ - start)) fail_at(start, "expected an element type");
    return *found;
  }

  Type type() {
    const std::string_view name = peek_word();
    if (name != "tile" && name != "view") return scalar_type(dtype());
    Type result{name == "tile" ? TypeKind::tile : TypeKind::view};
    pos_ += name.size();
    expect('<');
    expect('[');
    do {
      if (result.rank == (result.is_tile() ? kMaxTileRank : kMaxViewRank)) fail("expected fewer dimensions");
      const bool is_dynamic = result.is_view() && accept('?');
      result.shape[result.rank++] = is_dynamic ? kDynamic : integer("a size", 1, std::numeric_limits<int64_t>::max());
    } while (accept(','));
    expect(']');
    expect(',');
    result.dtype = dtype();
    while (result.is_view() && accept(',')) view_fact(result);
    expect('>');
    return result;
  }

  void view_fact(Type& view) {
    const size_t start = (skip_space(), pos_);
    const std::string_view fact = word("a fact");
    if (fact == "contiguous") {
      view.contiguous = true;
    } else if (fact == "noalias") {
      view.noalias = true;
    } else if (fact == "align") {
      view.alignment = static_cast<int>(integer("an alignment", 1, std::numeric_limits<int>::max()));
    } else {
      fail_at(start, "expected contiguous, noalias or align");
    }
  }

  // attributes

  std::string quoted_string() {
    expect('"');
    std::string value;
    while (pos_ < text_.size() && text_[pos_] != '"') {
      if (text_[pos_] != '\\') {
        value += text_[pos_++];
        continue;
      }
      ++pos_;
      if (pos_ < text_.size() && text_[pos_] == 'x') {
        unsigned byte = 0;
        const char* first = text_.data() + pos_ + 1;
        const char* last = text_.data() + std::min(pos_ + 3, text_.size());
        if (const auto result = std::from_chars(first, last, byte, 16);
            result.ec != std::errc() || result.ptr != first + 2)
          fail("expected two hexadecimal digits");
        value += static_cast<char>(byte);
        pos_ += 3;
      } else if (pos_ < text_.size() && (text_[pos_] == '"' || text_[pos_] == '\\')) {
        value += text_[pos_++];
      } else {
        fail("expected an escape");
      }
    }
    if (pos_ >= text_.size()) fail("expected '\"'");
    ++pos_;
    return value;
  }

  Attribute number() {
    skip_space();
    size_t end = pos_;
    while (end < text_.size() && (is_word_char(text_[end]) || text_[end] == '-' || text_[end] == '+')) ++end;
    const std::string_view token = text_.substr(pos_, end - pos_);
    const char *first = token.data(), *last = first + token.size();
    int64_t whole = 0;
    if (const auto result = std::from_chars(first, last, whole); result.ec == std::errc() && result.ptr == last) {
      pos_ = end;
      return whole;
    }
    double value = 0;
    const auto result = std::from_chars(first, last, value);
    const bool is_integer_form = token.find_first_of(".einf") == std::string_view::npos;
    if (result.ec != std::errc() || result.ptr != last || is_integer_form) fail("expected a number");
    pos_ = end;
    return value;
  }

  Attribute attribute() {
    if (at('"')) return quoted_string();
    if (!accept('[')) return number();
    std::vector<int64_t> values;
    if (accept(']')) return values;
    do {
      values.push_back(integer("an integer", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
    } while (accept(','));
    expect(']');
    return values;
  }

  /// `{name =` opens attributes, any other `{` a block.
  bool at_attributes() {
    const size_t start = pos_;
    const bool found = accept('{') && !word_or_empty().empty() && at('=');
    pos_ = start;
    return found;
  }

  std::string_view word_or_empty() {
    const std::string_view found = peek_word();
    pos_ += found.size();
    return found;
  }

  Attributes attributes() {
    Attributes result;
    expect('{');
    do {
      std::string name(word("an attribute's name"));
      expect('=');
      if (!result.emplace(name, attribute()).second)
        fail("the attribute '" + name + "' is given twice; expected another");
    } while (accept(','));
    expect('}');
    return result;
  }

  // values, operations, blocks

  int value_id() {
    expect('%');
    return static_cast<int>(integer("a value's number", 0, kMaxId));
  }

  void bind(int id, Value* value) {
    if (!values_.emplace(id, value).second) fail("%" + std::to_string(id) + " is defined twice; expected a new number");
    function_->set_id(value, id);
  }

  Value* operand() {
    const size_t start = (skip_space(), pos_);
    const auto it = values_.find(value_id());
    if (it == values_.end()) fail_at(start, "expected a value that is defined above");
    return it->second;
  }

  void op(Block* parent, int depth) {
    std::vector<int> ids;
    if (at('%')) {
      do ids.push_back(value_id());
      while (accept(','));
      expect('=');
    }
    const size_t start = (skip_space(), pos_);
    const auto kind = parse_op_kind(word("an operation"));
    if (!kind) fail_at(start, "expected an operation");
    std::vector<Value*> operands;
    if (at('%')) {
      do operands.push_back(operand());
      while (accept(','));
    }
    Attributes attrs = at_attributes() ? attributes() : Attributes{};
    std::vector<Type> types;
    if (!ids.empty()) {
      expect(':');
      do types.push_back(type());
      while (accept(','));
      if (types.size() != ids.size())
        fail("expected " + std::to_string(ids.size()) + " result types, not " + std::to_string(types.size()));
    }
    Op* op = function_->append(parent, *kind, std::move(operands), std::move(types), std::move(attrs));
    for (size_t i = 0; i < ids.size(); ++i) bind(ids[i], op->results[i]);
    while (at('(') || at('{')) region(op, depth);
  }

  void region(Op* op, int depth) {
    Block* nested = function_->add_block(op);
    if (accept('(')) {
      do {
        const int id = value_id();
        expect(':');
        bind(id, function_->add_block_argument(nested, type()));
      } while (accept(','));
      expect(')');
    }
    block(nested, depth + 1);
  }

  void block(Block* block, int depth) {
    if (depth > kMaxDepth) fail("expected at most " + std::to_string(kMaxDepth) + " nested blocks");
    expect('{');
    while (!accept('}')) op(block, depth);
  }

  std::string_view text_;
  size_t pos_ = 0;
  std::unique_ptr<Function> function_;
  std::unordered_map<int, Value*> values_;
};

}  // namespace

std::unique_ptr<Function> parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace seqtile::ir
