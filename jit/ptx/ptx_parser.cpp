// jit/ptx/ptx_parser.cpp -- reads PTX text into a PtxModule; see ptx_module.h.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <unordered_set>
#include <utility>

#include "jit/ptx/ptx_declarations.h"
#include "jit/ptx/ptx_lexer.h"
#include "jit/ptx/ptx_module.h"
#include "jit/ptx/ptx_scopes.h"
#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

constexpr size_t kMaxRegisters = 1'000'000;  ///< of a kernel
constexpr int kMaxDepth = 4;                 ///< of braces and brackets in an operand
constexpr int64_t kMaxParamBytes = 32764;
constexpr std::string_view kHeader = "begin the text with .version 8.0, .target sm_80 and .address_size 64";

class Parser {
 public:
  explicit Parser(std::shared_ptr<const std::string> text) : lexer_(*text) { module_.text = std::move(text); }

  PtxModule parse() {
    while (!lexer_.at_end()) module_directive();
    return std::move(module_);
  }

 private:
  void module_directive() {
    if (lexer_.accept('@')) return static_cast<void>(lexer_.rest_of_line());  // "@@DWARF .byte ..."
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
    } else if (word == ".alias") {
      alias();
    } else {
      linked_directive(word);
    }
  }

  /// Any version is read: the forms in the text decide.
  void version() {
    const int line = lexer_.line();
    module_.version = lexer_.dotted_identifier("a version");
    int major = 0, minor = 0;
    if (std::sscanf(std::string(module_.version).c_str(), "%4d.%4d", &major, &minor) != 2)
      PtxLexer::fail_at(line, fmt::format("expected a version, found '{}'", module_.version));
  }

  void target() {
    if (module_.target_line != 0) PtxLexer::fail_at(lexer_.line(), ".target stands twice");
    module_.target_line = lexer_.line();
    module_.target_name = lexer_.identifier("a target");
    const auto target = parse_ptx_target(module_.target_name);
    if (!target)
      PtxLexer::fail_at(module_.target_line,
                        fmt::format(".target {} is no architecture that is known here, such as sm_80 or sm_90a",
                                    module_.target_name));
    module_.target = *target;
    while (lexer_.accept(',')) lexer_.identifier("a target");
  }

  void alias() {
    const std::string_view name = lexer_.identifier("a function's name");
    lexer_.expect(',');
    module_.aliases.emplace_back(name, lexer_.identifier("a function's name"));
    lexer_.expect(';');
  }

  void linked_directive(std::string_view word) {
    bool is_extern = false;
    while (is_one_of(word, {".extern", ".visible", ".weak", ".common"})) {
      is_extern |= word == ".extern";
      word = lexer_.directive();
    }
    if (word == ".entry" || word == ".func") return kernel(word == ".func");
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
    else if (word == ".param" && names_.is_inside()) parsed.space = PtxSpace::param;
    else return false;
    read_declarator(lexer_, parsed);
    if (lexer_.accept('=')) read_initializer(lexer_, parsed);
    lexer_.expect(';');
    if (names_.is_inside()) names_.add_variable(parsed.name, static_cast<int>(into.size()), lexer_.line());
    else if (!is_redeclared(parsed)) names_of_module_.insert(parsed.name);
    else return true;
    into.push_back(std::move(parsed));
    return true;
  }

  /// An `.extern` declaration and the definition of one variable are one; true where `variable` adds nothing to it.
  bool is_redeclared(const PtxVariable& variable) {
    if (!names_of_module_.contains(variable.name)) return false;
    auto& known = module_.variables;
    const auto other = std::find_if(known.begin(), known.end(), [&](const auto& v) { return v.name == variable.name; });
    if (other == known.end() || (!other->is_extern && !variable.is_extern))
      PtxLexer::fail_at(lexer_.line(), fmt::format("'{}' is declared twice", variable.name));
    if (!variable.is_extern) *other = variable;
    return true;
  }

  /// Reads a kernel or function. An error in it is kept with it, until it is executed: other kernels may run.
  void kernel(bool is_function) {
    if (module_.target_line == 0 || module_.version.empty())
      PtxLexer::fail_at(lexer_.line(), fmt::format("a kernel stands before {}; {}",
                                                   module_.version.empty() ? ".version" : ".target", kHeader));
    kernel_ = PtxKernel();
    kernel_.is_function = is_function;
    kernel_.line = lexer_.line();
    const PtxLexer::Position start = lexer_.position();
    try {
      header();
      body();
    } catch (const Error& error) {
      if (kernel_.name.empty()) throw;
      kernel_.problem = error.what();
      skip_definition(start);
    }
    names_ = PtxScopes();
    if (!is_function && module_.find(kernel_.name) != nullptr)
      PtxLexer::fail_at(kernel_.line, fmt::format("kernel '{}' stands twice", kernel_.name));
    if (is_function) names_of_module_.insert(kernel_.name);
    (is_function ? module_.functions : module_.kernels).push_back(std::move(kernel_));
  }

  /// A text whose braces do not close has the problem that was found first, as a whole.
  void skip_definition(PtxLexer::Position start) {
    try {
      lexer_.go_back(start);
      lexer_.skip_definition();
    } catch (const Error&) {
      throw Error(ErrorCode::compile_failed, kernel_.problem);
    }
  }

  void header() {
    const std::string problem = kernel_.is_function && lexer_.at('(') ? results() : "";
    kernel_.name = lexer_.identifier(kernel_.is_function ? "the function's name" : "the kernel's name");
    if (!problem.empty()) throw Error(ErrorCode::compile_failed, problem);
    if (lexer_.at('(')) parameters(kernel_.params);
    while (!lexer_.at('{') && !lexer_.at(';')) performance_directive();
  }

  void body() {
    kernel_.has_body = !lexer_.accept(';');
    if (!kernel_.has_body) return;
    lexer_.expect('{');
    names_.open();
    while (names_.is_inside()) statement();
    names_.resolve_labels(kernel_.instructions);
  }

  /// The problem of a function's results, which stand before its name: the function may never be called.
  std::string results() {
    const PtxLexer::Position start = lexer_.position();
    try {
      parameters(kernel_.results);
      return "";
    } catch (const Error& error) {
      lexer_.go_back(start);
      lexer_.skip_parentheses();
      return error.what();
    }
  }

  void parameters(std::vector<PtxVariable>& into) {
    lexer_.expect('(');
    if (lexer_.accept(')')) return;
    do parameter(into);
    while (lexer_.accept(','));
    lexer_.expect(')');
  }

  void parameter(std::vector<PtxVariable>& into) {
    const int line = lexer_.line();
    const std::string_view word = lexer_.directive();
    if (word == ".reg")
      PtxLexer::fail_at(line, "parameters in registers are not executed; have the function take them in .param");
    if (word != ".param") lexer_.fail(".param");
    PtxVariable param;
    param.space = PtxSpace::param;
    read_declarator(lexer_, param);
    for (const PtxVariable& other : into)
      if (other.name == param.name && param.name != "_")
        PtxLexer::fail_at(line, fmt::format("'{}' is declared twice", param.name));
    if (!kernel_.is_function) {
      param.offset = (kernel_.param_bytes + param.align - 1) / param.align * param.align;
      kernel_.param_bytes = param.offset + param.bytes;
    }
    if (kernel_.param_bytes > kMaxParamBytes)
      PtxLexer::fail_at(lexer_.line(), fmt::format("the parameters need {} bytes, at most {} are possible",
                                                   kernel_.param_bytes, kMaxParamBytes));
    into.push_back(param);
  }

  void performance_directive() {
    const int line = lexer_.line();
    const std::string_view word = lexer_.directive();
    if (word.empty()) lexer_.fail("'{'");
    if (!is_one_of(word, {".reqntid", ".maxntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".pragma",
                          ".reqnctapercluster", ".explicitcluster", ".maxclusterrank", ".blocksareclusters",
                          ".attribute", ".abi_preserve", ".abi_preserve_control", ".language"}))
      PtxLexer::fail_at(line, fmt::format("directive {} of a kernel is not known", word));
    if (word == ".pragma" || word == ".language") return static_cast<void>(lexer_.rest_of_line());
    if (word == ".attribute") return lexer_.skip_parentheses();
    if (is_one_of(word, {".reqnctapercluster", ".explicitcluster", ".maxclusterrank", ".blocksareclusters"}) &&
        module_.target < PtxTarget::sm_90)
      PtxLexer::fail_at(line, describe_lack(word, PtxTarget::sm_90, module_.target_name));
    std::array<int, 3> factors = {1, 1, 1};
    int64_t product = 1;
    for (size_t axis = 0; lexer_.at_digit(); ++axis) {
      const int64_t factor = lexer_.integer("a number");
      if (factor < 1 || factor * product > 1 << 20)
        PtxLexer::fail_at(line, fmt::format("{} {}: a number from 1 to {} is needed", word, factor, 1 << 20));
      product *= factor;
      if (axis < factors.size()) factors[axis] = static_cast<int>(factor);
      if (!lexer_.accept(',')) break;
    }
    if (word == ".reqntid") kernel_.required_block = factors;
    if (word == ".maxntid") kernel_.max_threads = static_cast<int>(product);
    if (word == ".maxnreg") kernel_.max_registers = static_cast<int>(product);
    if (word == ".reqnctapercluster") kernel_.required_cluster = factors;
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
    if (word == ".reg") return registers(lexer_.directive());
    if (word.substr(0, 5) == ".reg.") return registers(word.substr(4));  // "{.reg.b16 c;" of the CUDA headers
    if (word == ".loc" || word == ".file" || word == ".pragma") {
      lexer_.rest_of_line();
    } else if (word == ".branchtargets") {
      do names_.add_to_table(table_, lexer_.identifier("a label"));
      while (lexer_.accept(','));
      lexer_.expect(';');
    } else if (word == ".callprototype" || word == ".calltargets") {
      while (!lexer_.accept(';')) lexer_.skip_token();
    } else if (!variable(word, false, kernel_.variables)) {
      PtxLexer::fail_at(lexer_.line(), "directive " + std::string(word) + " is not supported");
    }
  }

  void registers(std::string_view word) {
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
    if (lexer_.accept(':')) return add_label(word);
    parsed.opcode = word;
    if (word == "call" || word == "call.uni") {
      call(parsed);
    } else if (!lexer_.at(';') && !lexer_.at('}')) {
      do {
        parsed.operands.push_back(operand(parsed.operands.size(), 0));
      } while (lexer_.accept(',') || lexer_.accept('|'));
    }
    lexer_.expect(';');
    kernel_.instructions.push_back(std::move(parsed));
  }

  /// `call (results), function, (arguments), prototype;` where all but the function may be missing.
  void call(PtxInstruction& parsed) {
    if (lexer_.at('(')) {
      call_operands(parsed);
      lexer_.expect(',');
    }
    parsed.num_results = parsed.operands.size();
    parsed.callee = lexer_.identifier("a function");
    if (!lexer_.accept(',')) return;
    if (lexer_.at('(')) call_operands(parsed);
    else lexer_.identifier("a prototype");
    if (lexer_.accept(',')) lexer_.identifier("a prototype");
  }

  void call_operands(PtxInstruction& parsed) {
    lexer_.expect('(');
    if (lexer_.accept(')')) return;
    do parsed.operands.push_back(operand(parsed.operands.size(), 0));
    while (lexer_.accept(','));
    lexer_.expect(')');
  }

  void add_label(std::string_view label) {
    table_ = label;
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
    } else if (parsed.variable = names_.find_variable(name); parsed.variable >= 0 || is_variable(name)) {
      parsed.kind = PtxOperand::Kind::symbol;
    } else {
      if (name.find('.') != std::string_view::npos) PtxLexer::fail_at(line, "unknown name '" + std::string(name) + "'");
      parsed.kind = PtxOperand::Kind::label;
      names_.note_use(name, kernel_.instructions.size(), position);
    }
  }

  /// A parameter, or a variable or function of the module.
  bool is_variable(std::string_view name) const {
    for (const auto* list : {&kernel_.params, &kernel_.results})
      for (const PtxVariable& variable : *list)
        if (variable.name == name) return true;
    return names_of_module_.contains(name);
  }

  PtxLexer lexer_;
  PtxModule module_;
  PtxKernel kernel_;
  PtxScopes names_;
  std::unordered_set<std::string_view> names_of_module_;  ///< variables and functions
  std::string_view table_;                                ///< the newest label: .branchtargets belongs to it
};

}  // namespace

PtxModule parse_ptx(std::string_view text) { return Parser(std::make_shared<const std::string>(text)).parse(); }

}  // namespace seqtile::sim
