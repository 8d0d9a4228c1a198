// jit/sim/ptx_parser.cpp -- reads PTX text into a PtxModule; see ptx_module.h.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "jit/sim/ptx_declarations.h"
#include "jit/sim/ptx_lexer.h"
#include "jit/sim/ptx_module.h"
#include "jit/sim/ptx_scopes.h"

namespace seqtile::sim {
namespace {

// ptx_ops.def has forms up to this version: bulk loads into shared::cta came with it.
constexpr int kNewestMajor = 8, kNewestMinor = 6;
constexpr std::string_view kTargets = "sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a";
constexpr size_t kMaxRegisters = 1'000'000;  ///< of a kernel
constexpr int kMaxDepth = 4;                 ///< of braces and brackets in an operand
constexpr int64_t kMaxParamBytes = 32764;
constexpr std::string_view kHeader = "begin the text with .version 8.0, .target sm_80 and .address_size 64";

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr const char* kNoCalls = "functions and calls are not supported; inline them";

class Parser {
 public:
  explicit Parser(std::shared_ptr<const std::string> text) : lexer_(*text) { module_.text = std::move(text); }

  PtxModule parse() {
    while (!lexer_.at_end()) module_directive();
    return std::move(module_);
  }

 private:
  void module_directive() {
    const std::string_view word = lexer_.directive();
    if (word == ".version") {
      version();
    } else if (word == ".target") {
      target();
    } else if (word == ".address_size") {
      const int line = lexer_.line();
      if (const int64_t size = lexer_.integer("an address size"); size != 64)
        PtxLexer::fail_at(line, fmt::format(".address_size {} is not executed here; have the text made for 64", size));
    } else if (word == ".file" || word == ".pragma") {
      lexer_.rest_of_line();
    } else if (word == ".section") {
      lexer_.directive();
      lexer_.expect('{');
      lexer_.skip_braces();
    } else {
      linked_directive(word);
    }
  }

  void version() {
    const int line = lexer_.line();
    module_.version = lexer_.dotted_identifier("a version");
    int major = 0, minor = 0;
    if (std::sscanf(std::string(module_.version).c_str(), "%4d.%4d", &major, &minor) != 2)
      PtxLexer::fail_at(line, fmt::format("expected a version, found '{}'", module_.version));
    if (std::pair(major, minor) > std::pair(kNewestMajor, kNewestMinor))
      PtxLexer::fail_at(line, fmt::format(".version {} is newer than {}.{}, the newest that is executed here; have the "
                                          "text made for an older one",
                                          module_.version, kNewestMajor, kNewestMinor));
  }

  void target() {
    if (module_.target_line != 0) PtxLexer::fail_at(lexer_.line(), ".target stands twice");
    module_.target_line = lexer_.line();
    const std::string_view name = lexer_.identifier("a target");
    const auto target = parse_ptx_target(name);
    if (!target)
      PtxLexer::fail_at(
          module_.target_line,
          fmt::format(".target {} is not executed here; have the text made for one of {}", name, kTargets));
    module_.target = *target;
    while (lexer_.accept(',')) lexer_.identifier("a target");
  }

  void linked_directive(std::string_view word) {
    bool is_extern = false;
    while (word == ".extern" || word == ".visible" || word == ".weak" || word == ".common") {
      is_extern |= word == ".extern";
      word = lexer_.directive();
    }
    if (word == ".entry") return kernel();
    if (word == ".func") PtxLexer::fail_at(lexer_.line(), kNoCalls);
    if (!variable(word, is_extern, module_.variables)) lexer_.fail("a directive");
  }

  /// Parses a variable of a memory space; false where `word` is no memory space.
  bool variable(std::string_view word, bool is_extern, std::vector<PtxVariable>& into) {
    PtxVariable parsed;
    parsed.is_extern = is_extern;
    if (word == ".shared") parsed.space = PtxSpace::shared;
    else if (word == ".local") parsed.space = PtxSpace::local;
    else if (word == ".global") parsed.space = PtxSpace::global;
    else if (word == ".const") parsed.space = PtxSpace::constant;
    else return false;
    read_declarator(lexer_, parsed);
    if (&into == &module_.variables) check_new(parsed, into);
    if (lexer_.accept('=')) read_initializer(lexer_, parsed);
    lexer_.expect(';');
    into.push_back(std::move(parsed));
    return true;
  }

  void check_new(const PtxVariable& variable, const std::vector<PtxVariable>& others) {
    for (const PtxVariable& other : others)
      if (other.name == variable.name)
        PtxLexer::fail_at(lexer_.line(), fmt::format("'{}' is declared twice", variable.name));
  }

  void kernel() {
    if (module_.target_line == 0 || module_.version.empty())
      PtxLexer::fail_at(lexer_.line(), fmt::format("a kernel stands before {}; {}",
                                                   module_.version.empty() ? ".version" : ".target", kHeader));
    kernel_ = PtxKernel();
    names_ = PtxScopes();
    const int line = lexer_.line();
    kernel_.name = lexer_.identifier("the kernel's name");
    if (module_.find(kernel_.name) != nullptr)
      PtxLexer::fail_at(line, fmt::format("kernel '{}' stands twice", kernel_.name));
    if (lexer_.accept('(') && !lexer_.accept(')')) {
      do parameter();
      while (lexer_.accept(','));
      lexer_.expect(')');
    }
    while (!lexer_.at('{')) performance_directive();
    lexer_.expect('{');
    names_.open();
    while (names_.is_inside()) statement();
    names_.resolve_labels(kernel_.instructions);
    module_.kernels.push_back(std::move(kernel_));
  }

  void parameter() {
    if (lexer_.directive() != ".param") lexer_.fail(".param");
    PtxVariable param;
    param.space = PtxSpace::param;
    read_declarator(lexer_, param);
    check_new(param, kernel_.params);
    param.offset = (kernel_.param_bytes + param.align - 1) / param.align * param.align;
    kernel_.param_bytes = param.offset + param.bytes;
    if (kernel_.param_bytes > kMaxParamBytes)
      PtxLexer::fail_at(lexer_.line(), fmt::format("the parameters need {} bytes, at most {} are possible",
                                                   kernel_.param_bytes, kMaxParamBytes));
    kernel_.params.push_back(param);
  }

  void performance_directive() {
    const int line = lexer_.line();
    const std::string_view word = lexer_.directive();
    if (word.empty()) lexer_.fail("'{'");
    if (!is_one_of(word, {".reqntid", ".maxntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".pragma",
                          ".reqnctapercluster", ".explicitcluster", ".maxclusterrank"}))
      PtxLexer::fail_at(line, fmt::format("directive {} of a kernel is not known", word));
    if (word == ".pragma") return static_cast<void>(lexer_.rest_of_line());
    if (is_one_of(word, {".reqnctapercluster", ".explicitcluster", ".maxclusterrank"}) &&
        module_.target < PtxTarget::sm_90)
      PtxLexer::fail_at(line, describe_lack(word, PtxTarget::sm_90, module_.target));
    int product = 1;
    if (lexer_.at_digit()) {
      do {
        const int64_t factor = lexer_.integer("a number");
        if (factor < 1 || factor * product > 1 << 20)
          PtxLexer::fail_at(line, fmt::format("{} {}: a number from 1 to {} is needed", word, factor, 1 << 20));
        product *= static_cast<int>(factor);
      } while (lexer_.accept(','));
    }
    if (word == ".reqntid") kernel_.required_threads = product;
    if (word == ".maxntid") kernel_.max_threads = product;
    if (word == ".maxnreg") kernel_.max_registers = product;
    if (word == ".reqnctapercluster") kernel_.required_cluster = product;
  }

  void statement() {
    if (lexer_.at_end()) lexer_.fail("'}'");
    if (lexer_.accept('{')) {
      names_.open();
    } else if (lexer_.accept('}')) {
      names_.close();
    } else if (lexer_.at('.')) {
      body_directive(lexer_.directive());
    } else if (!lexer_.accept(';')) {
      labelled_or_instruction();
    }
  }

  void body_directive(std::string_view word) {
    if (word == ".reg") return registers();
    if (word == ".loc" || word == ".file") {
      lexer_.rest_of_line();
    } else if (word == ".pragma") {
      lexer_.rest_of_line();
    } else if (word == ".branchtargets" || !variable(word, false, kernel_.variables)) {
      PtxLexer::fail_at(lexer_.line(), "directive " + std::string(word) + " is not supported");
    }
  }

  void registers() {
    const std::string_view word = lexer_.directive();
    const PtxType type = read_type(lexer_, word, "a register type");
    do {
      const int line = lexer_.line();
      const std::string_view name = lexer_.identifier("a register's name");
      const auto first = static_cast<uint32_t>(kernel_.registers.size());
      int count = -1;
      if (lexer_.accept('<')) {
        count = static_cast<int>(lexer_.integer("a number of registers"));
        if (count < 0 || static_cast<size_t>(count) > kMaxRegisters)
          PtxLexer::fail_at(line, fmt::format("{}<{}>: 0 to {} registers", name, count, kMaxRegisters));
        lexer_.expect('>');
        for (int i = 0; i < count; ++i) kernel_.registers.push_back({name, i, type});
      } else {
        kernel_.registers.push_back({name, -1, type});
      }
      names_.add_registers(name, first, count, line);
      if (kernel_.registers.size() > kMaxRegisters)
        PtxLexer::fail_at(line,
                          fmt::format("kernel '{}' declares more than {} registers", kernel_.name, kMaxRegisters));
    } while (lexer_.accept(','));
    lexer_.expect(';');
  }

  void labelled_or_instruction() {
    PtxInstruction parsed;
    parsed.line = lexer_.line();
    if (lexer_.accept('@')) {
      parsed.is_guard_negated = lexer_.accept('!');
      const std::string_view name = lexer_.identifier("a predicate");
      parsed.guard = names_.find_register(name);
      if (parsed.guard < 0 || kernel_.registers[parsed.guard].type != PtxType::pred)
        PtxLexer::fail_at(parsed.line, "guard '" + std::string(name) + "' is not a predicate register");
    } else if (lexer_.at('$') || lexer_.at('_')) {
      const std::string_view label = lexer_.identifier("a label");
      lexer_.expect(':');
      return add_label(label);
    }
    std::string_view word = lexer_.opcode();
    if (word.size() > 1 && word.find_first_of(".:") == word.size() - 1 && word.back() == ':')
      return add_label(word.substr(0, word.size() - 1));
    if (word.substr(0, 4) == "call") PtxLexer::fail_at(parsed.line, kNoCalls);
    parsed.opcode = word;
    if (!lexer_.at(';') && !lexer_.at('}')) {
      do {
        parsed.operands.push_back(operand(parsed.operands.size(), 0));
      } while (lexer_.accept(',') || lexer_.accept('|'));
    }
    lexer_.expect(';');
    kernel_.instructions.push_back(std::move(parsed));
  }

  void add_label(std::string_view label) {
    names_.add_label(label, static_cast<uint32_t>(kernel_.instructions.size()), lexer_.line());
  }

  PtxOperand operand(size_t position, int depth) {
    PtxOperand parsed;
    if (depth > kMaxDepth) PtxLexer::fail_at(lexer_.line(), "braces stand too deep in an operand");
    if (lexer_.at_digit()) return read_immediate(lexer_);
    if (lexer_.accept('{')) {
      parsed.kind = PtxOperand::Kind::vector;
      do parsed.elements.push_back(operand(position, depth + 1));
      while (lexer_.accept(','));
      lexer_.expect('}');
      return parsed;
    }
    if (lexer_.accept('[')) return memory_operand(position, depth);
    parsed.is_negated = lexer_.accept('!');
    named_operand(parsed, position);
    if (parsed.kind == PtxOperand::Kind::symbol && lexer_.accept('+')) parsed.offset = lexer_.integer("an offset");
    return parsed;
  }

  PtxOperand memory_operand(size_t position, int depth) {
    PtxOperand parsed;
    parsed.kind = PtxOperand::Kind::memory;
    do {
      PtxOperand element = operand(position, depth + 1);
      if (lexer_.accept('+')) parsed.offset = lexer_.integer("an offset");
      else if (lexer_.at('-')) parsed.offset = lexer_.integer("an offset");
      if (element.kind == PtxOperand::Kind::symbol) parsed.offset += std::exchange(element.offset, 0);
      if (element.kind == PtxOperand::Kind::vector)
        for (PtxOperand& coordinate : element.elements) parsed.elements.push_back(std::move(coordinate));
      else parsed.elements.push_back(std::move(element));
    } while (lexer_.accept(','));
    lexer_.expect(']');
    return parsed;
  }

  void named_operand(PtxOperand& parsed, size_t position) {
    const int line = lexer_.line();
    const std::string_view name = lexer_.dotted_identifier("an operand");
    parsed.text = name;
    if (name == "_") return;
    if (const int reg = names_.find_register(name); reg >= 0) {
      parsed.kind = PtxOperand::Kind::reg;
      parsed.reg = static_cast<uint32_t>(reg);
    } else if (name[0] == '%') {
      parsed.kind = PtxOperand::Kind::special;
    } else if (is_variable(name)) {
      parsed.kind = PtxOperand::Kind::symbol;
    } else {
      if (name.find('.') != std::string_view::npos) PtxLexer::fail_at(line, "unknown name '" + std::string(name) + "'");
      parsed.kind = PtxOperand::Kind::label;
      names_.note_use(name, kernel_.instructions.size(), position);
    }
  }

  bool is_variable(std::string_view name) const {
    for (const auto* list : {&kernel_.params, &kernel_.variables, &module_.variables})
      for (const PtxVariable& variable : *list)
        if (variable.name == name) return true;
    return false;
  }

  PtxLexer lexer_;
  PtxModule module_;
  PtxKernel kernel_;
  PtxScopes names_;
};

}  // namespace

PtxModule parse_ptx(std::string_view text) { return Parser(std::make_shared<const std::string>(text)).parse(); }

}  // namespace seqtile::sim
