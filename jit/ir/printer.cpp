// jit/ir/printer.cpp -- the text form of a function.
// SPDX-License-Identifier: Apache-2.0
//
//   kernel @scale(%0 x: view<[?, 64], f32, contiguous, align 4>, %1 factor: f32) {
//     %2 = program_id {axis = 0} : i64
//     %3 = load %0, %2, %4 {fill = 0.0} : tile<[1, 64], f32>
//     ...
//   }
// Results, mnemonic, operands, attributes, result types, then one (arguments) { ... } for each nested block.
#include <charconv>
#include <cmath>

#include "seqtile/ir.h"

namespace seqtile::ir {
namespace {

/// The shortest text that reads back as the same double; always with a point, an exponent or letters.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string quoted(const std::string& value) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte < 0x20 || byte >= 0x7f) {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      text += c;
    }
  }
  return text + '"';
}

std::string list_text(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

std::string attribute_text(const Attribute& attribute) {
  switch (attribute.index()) {
    case 0: return std::to_string(std::get<int64_t>(attribute));
    case 1: return float_text(std::get<double>(attribute));
    case 2: return quoted(std::get<std::string>(attribute));
    default: return list_text(std::get<std::vector<int64_t>>(attribute));
  }
}

class Printer {
 public:
  std::string print(const Function& function) {
    text_ = "kernel @" + function.name() + "(";
    for (size_t i = 0; i < function.body().arguments.size(); ++i) {
      const Value* param = function.body().arguments[i];
      text_ += (i ? ", " : "") + id(param) + " " + function.param_names()[i] + ": " + to_string(param->type);
    }
    text_ += ")";
    print_attributes(function.attributes);
    print_block(function.body());
    return text_ + "\n";
  }

 private:
  static std::string id(const Value* value) { return "%" + std::to_string(value->id); }

  void print_ids(const std::vector<Value*>& values) {
    for (size_t i = 0; i < values.size(); ++i) text_ += (i ? ", " : "") + id(values[i]);
  }

  void print_op(const Op& op) {
    text_.append(static_cast<size_t>(2 * depth_), ' ');
    print_ids(op.results);
    text_ += (op.results.empty() ? "" : " = ") + std::string(op.info().name);
    if (!op.operands.empty()) text_ += ' ';
    print_ids(op.operands);
    print_attributes(op.attributes);
    for (size_t i = 0; i < op.results.size(); ++i) text_ += (i ? ", " : " : ") + to_string(op.results[i]->type);
    for (const Block* region : op.regions) {
      print_arguments(*region);
      print_block(*region);
    }
    text_ += '\n';
  }

  void print_attributes(const Attributes& attributes) {
    const char* separator = " {";
    for (const auto& [name, value] : attributes) {
      text_ += separator + name + " = " + attribute_text(value);
      separator = ", ";
    }
    if (!attributes.empty()) text_ += '}';
  }

  void print_arguments(const Block& block) {
    if (block.arguments.empty()) return;
    const char* separator = " (";
    for (const Value* argument : block.arguments) {
      text_ += separator + id(argument) + ": " + to_string(argument->type);
      separator = ", ";
    }
    text_ += ')';
  }

  void print_block(const Block& block) {
    text_ += " {\n";
    ++depth_;
    for (const Op* op : block.ops) print_op(*op);
    --depth_;
    text_.append(static_cast<size_t>(2 * depth_), ' ');
    text_ += '}';
  }

  std::string text_;
  int depth_ = 0;
};

}  // namespace

std::string print(const Function& function) { return Printer().print(function); }

}  // namespace seqtile::ir
