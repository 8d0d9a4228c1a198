// jit/sim/decode/decode.cpp -- from the parsed text to a Program over virtual registers; then slots are given out.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/decode/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jit/sim/decode/decode_operands.h"
#include "jit/sim/values/fragments.h"
#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

struct Flat {
  const PtxOperand* operand;
  bool is_address = false;
};

/// "4w>a" as {"wwww", "a"}; an 'o' stands before operands that may be missing.
struct Letters {
  std::string destinations, sources;
  bool is_open = false;  ///< ends in '*'
};

Letters expand(std::string_view pattern) {
  Letters result;
  std::string* into = &result.destinations;
  size_t count = 0;
  for (const char c : pattern) {
    if (c >= '0' && c <= '9') {
      count = count * 10 + static_cast<size_t>(c - '0');
      continue;
    }
    if (c == '>') into = &result.sources;
    else if (c == '*') result.is_open = true;
    else into->append(std::max<size_t>(count, 1), c == '?' ? 'o' : c);
    count = 0;
  }
  return result;
}

class Decoder {
 public:
  Decoder(const PtxModule& module, const PtxKernel& kernel)
      : module_(module),
        kernel_(kernel),
        reached_(reached_functions(module, kernel)),
        operands_(module, reached_, program_) {}

  Program run() {
    program_.kernel = kernel_.name;
    program_.module = std::make_shared<PtxModule>(module_);
    program_.params = kernel_.params;
    program_.param_bytes = kernel_.param_bytes;
    program_.required_block = kernel_.required_block;
    program_.required_cluster = kernel_.required_cluster;
    program_.max_threads = kernel_.max_threads;
    program_.max_registers = kernel_.max_registers;
    for (size_t f = 0; f < reached_.size(); ++f) decode_function(f);
    find_endless_loops(program_);
    allocate_slots(program_, operands_.finish());
    return std::move(program_);
  }

 private:
  void flatten(const PtxOperand& operand, std::vector<Flat>& into, Instruction& decoded, int& num_memory) {
    if (operand.kind == PtxOperand::Kind::memory) {
      (num_memory == 0 ? decoded.offset : num_memory == 1 ? decoded.offset2 : decoded.offset3) = operand.offset;
      ++num_memory;
      for (size_t i = 0; i < operand.elements.size(); ++i) into.push_back({&operand.elements[i], i == 0});
    } else if (operand.kind == PtxOperand::Kind::vector) {
      for (const PtxOperand& element : operand.elements) into.push_back({&element});
    } else {
      into.push_back({&operand});
    }
  }

  void decode_function(size_t index) {
    text_ = reached_[index].text;
    operands_.begin_function(index);
    Function& function = program_.functions[index];
    function.entry = static_cast<uint32_t>(program_.code.size());
    for (const PtxInstruction& instruction : text_->instructions) decode_one(instruction);
    // a label may stand behind the last instruction; running off the end leaves the kernel or the function
    Instruction end;
    end.op = text_->is_function ? Op::return_ : Op::leave, end.kind = InstructionClass::control;
    end.line = text_->instructions.empty() ? text_->line : text_->instructions.back().line;
    program_.code.push_back(end);
    index_ = index + 1;
  }

  void decode_one(const PtxInstruction& text) {
    current_ = &text;
    operands_.begin(text);
    Instruction decoded;
    decoded.line = text.line;
    decoded.guard =
        text.guard < 0 ? -1 : static_cast<int32_t>(operands_.register_id(static_cast<uint32_t>(text.guard)));
    decoded.is_guard_negated = text.is_guard_negated;
    decoded.pool = static_cast<uint32_t>(program_.pool.size());
    std::vector<Flat> flat;
    int num_memory = 0;
    for (const PtxOperand& operand : text.operands) flatten(operand, flat, decoded, num_memory);
    const Opcode opcode(text.opcode);
    require(least_target(opcode));
    if (is_clock_read(text)) {
      decoded.op = Op::read_clock;
      decoded.num_destinations = 1;
      decoded.is_wide = operands_.register_bytes(text.operands[0]) == 8;
      operands_.add(decoded, text.operands[0], 'v', false);
    } else if (const PtxForm* form = find_form(opcode)) {
      require(form->target);
      decode_form(opcode, *form, flat, decoded);
    } else {
      decode_scalar(opcode, flat, decoded);
    }
    decoded.num_operands = static_cast<uint16_t>(program_.pool.size() - decoded.pool);
    program_.code.push_back(decoded);
  }

  /// Refuses the instruction where the text's own target does not have it.
  void require(PtxTarget target) const {
    if (module_.target < target) fail(describe_lack(current_->opcode, target, module_.target_name));
  }

  bool is_clock_read(const PtxInstruction& text) const {
    if (text.operands.size() != 2 || text.operands[1].kind != PtxOperand::Kind::special) return false;
    const std::string_view name = text.operands[1].text;
    return name.substr(0, 6) == "%clock" || name.substr(0, 12) == "%globaltimer";
  }

  void decode_scalar(const Opcode& opcode, const std::vector<Flat>& flat, Instruction& decoded) {
    std::vector<OperandShape> shapes;
    for (const PtxOperand& operand : current_->operands)
      shapes.push_back(
          {operands_.register_bytes(operand), static_cast<int>(operand.elements.size()), operand.is_negated});
    const auto form = resolve_scalar(opcode, shapes);
    if (!form)
      fail(fmt::format("the machine does not know the form {}; write it in one that docs/ptx_machine.md names",
                       current_->opcode));
    const auto hidden = static_cast<size_t>(std::count(form->operands.begin(), form->operands.end(), 'c'));
    if (form->operands.size() - hidden != flat.size())
      fail(fmt::format("{} operands, {} are expected", flat.size(), form->operands.size() - hidden));
    const bool is_extreme = opcode.base() == "min" || opcode.base() == "max";
    if (is_extreme && flat.size() == 4) require(PtxTarget::sm_100);
    decoded.scalar = form->run;
    decoded.aux = form->aux;
    decoded.num_destinations = static_cast<uint16_t>(form->num_destinations);
    decoded.kind = scalar_class(opcode);
    for (const Flat& one : flat)
      if (one.is_address) fail("an address in brackets stands where a value is expected");
    size_t next = 0;
    for (const char letter : form->operands) {
      if (letter == 'c') operands_.add_carry();
      else operands_.add(decoded, *flat[next++].operand, letter, false);
    }
  }

  static InstructionClass scalar_class(const Opcode& opcode) {
    if (opcode.base() == "mov" || opcode.base() == "cvta" || opcode.base() == "selp") return InstructionClass::move;
    const PtxType type = opcode.type();
    const bool is_float = type == PtxType::f32 || type == PtxType::f64 || type == PtxType::f16 ||
                          type == PtxType::f16x2 || type == PtxType::bf16 || type == PtxType::bf16x2;
    return is_float ? InstructionClass::floating : InstructionClass::integer;
  }

  void decode_form(const Opcode& opcode, const PtxForm& form, const std::vector<Flat>& flat, Instruction& decoded) {
    decoded.op = form.op;
    decoded.kind = form.kind;
    if (const std::string problem = decode_modifiers(opcode, decoded); !problem.empty())
      fail(fmt::format("{}: {} is not supported or wrong", current_->opcode, problem));
    if (form.op == Op::branch) return decode_branch(flat, decoded);
    if (form.op == Op::branch_indexed) return decode_indexed(flat, decoded);
    if (form.op == Op::call) return decode_call(decoded);
    if (form.op == Op::leave && opcode.base() == "ret" && text_->is_function) decoded.op = Op::return_;
    set_address_width(decoded, flat);
    const Letters letters = expand(form.operands);
    if (!letters.is_open) return decode_closed(letters, flat, decoded);
    switch (form.op) {
      case Op::load:
      case Op::store:
      case Op::atomic: return decode_access(flat, decoded);
      case Op::wgmma: return decode_wgmma(flat, decoded);
      case Op::wmma_load:
      case Op::wmma_store:
      case Op::wmma: return decode_fragments(flat, decoded);
      case Op::shuffle: return decode_closed(shuffle_letters(flat.size()), flat, decoded);
      case Op::match_all: return decode_closed(match_letters(opcode, flat.size()), flat, decoded);
      case Op::bar_reduce: return decode_reduction(flat, decoded);
      case Op::tensor_load:
      case Op::tensor_store:
      case Op::bulk_load:
      case Op::bulk_store: return decode_closed({"", bulk_letters(decoded)}, flat, decoded);
      default: return decode_free(letters, flat, decoded);
    }
  }

  static Letters shuffle_letters(size_t operands) {
    return operands == 6 ? Letters{"wp", "wwww"} : Letters{"w", "wwww"};
  }
  static Letters match_letters(const Opcode& opcode, size_t operands) {
    const char value = opcode.type() == PtxType::b64 ? 'x' : 'w';
    return {operands == 4 ? "wp" : "w", std::string(1, value) + "w"};
  }
  /// An 'X' is an address of 64 bits: a tensor map or global memory.
  static std::string bulk_letters(const Instruction& decoded) {
    const std::string coordinates(decoded.vector, 'w'), mask(decoded.flag ? "w" : "");
    switch (decoded.op) {
      case Op::tensor_load: return "aX" + coordinates + "a" + mask + "ox";
      case Op::tensor_store: return "X" + coordinates + "aox";
      case Op::bulk_load: return "aXwa" + mask + "ox";
      default: return "Xawox";
    }
  }

  void decode_branch(const std::vector<Flat>& flat, Instruction& decoded) {
    if (flat.size() != 1 || flat[0].operand->kind != PtxOperand::Kind::label) fail("a label is expected");
    decoded.target = entry() + flat[0].operand->target;
  }

  /// The first instruction of the function.
  uint32_t entry() const { return program_.functions[index_].entry; }

  void decode_indexed(const std::vector<Flat>& flat, Instruction& decoded) {
    if (flat.size() != 2 || flat[1].operand->kind != PtxOperand::Kind::label || current_->targets.empty())
      fail("an index and the label of a .branchtargets are expected");
    operands_.add(decoded, *flat[0].operand, 'w', false);
    decoded.aux = static_cast<uint32_t>(program_.targets.size());
    decoded.target = static_cast<uint32_t>(current_->targets.size());
    for (const uint32_t target : current_->targets) program_.targets.push_back(entry() + target);
  }

  void decode_call(Instruction& decoded) {
    Call call;
    call.caller = static_cast<uint32_t>(index_);
    const bool is_system = is_system_call(current_->callee);
    const PtxKernel* callee = is_system ? nullptr : module_.find_function(current_->callee);
    if (is_system) {
      decoded.op = current_->callee == "vprintf" ? Op::print : Op::assert_fail;
    } else {
      const auto found =
          std::find_if(reached_.begin(), reached_.end(), [&](const auto& f) { return f.text == callee; });
      call.callee = static_cast<uint32_t>(found - reached_.begin());
    }
    const size_t results = current_->num_results, arguments = current_->operands.size() - results;
    if (callee != nullptr && (results != callee->results.size() || arguments != callee->params.size()))
      fail(fmt::format("{} arguments and {} results, '{}' has {} and {}", arguments, results, current_->callee,
                       callee->params.size(), callee->results.size()));
    for (size_t i = 0; i < results; ++i)
      call.results.push_back(move_of(decoded, i, callee != nullptr ? &callee->results[i] : nullptr, call.callee));
    decoded.num_destinations = static_cast<uint16_t>(program_.pool.size() - decoded.pool);
    for (size_t i = 0; i < arguments; ++i)
      call.arguments.push_back(
          move_of(decoded, results + i, callee != nullptr ? &callee->params[i] : nullptr, call.callee));
    decoded.aux = static_cast<uint32_t>(program_.calls.size());
    program_.calls.push_back(std::move(call));
  }

  /// One operand of a call, and the parameter or result that it meets; a system call has none.
  CallMove move_of(Instruction& decoded, size_t position, const PtxVariable* formal, size_t callee) {
    const PtxOperand& operand = current_->operands[position];
    CallMove move;
    if (formal != nullptr) move.of_callee = operands_.frame_offset(callee, formal->name), move.bytes = formal->bytes;
    if (operand.kind == PtxOperand::Kind::symbol) {
      const auto [offset, bytes] = operands_.frame_place(operand);
      if (formal != nullptr && bytes != formal->bytes)
        fail(fmt::format("'{}' has {} bytes, '{}' of '{}' has {}", operand.text, bytes, formal->name, current_->callee,
                         formal->bytes));
      move.of_caller = offset, move.bytes = bytes;
      return move;
    }
    if (formal == nullptr || formal->bytes > 8) fail("a .param variable is expected");
    move.operand = static_cast<int>(program_.pool.size() - decoded.pool);
    if (position < current_->num_results) ++decoded.num_destinations;
    operands_.add(decoded, operand, move.bytes == 8 ? 'x' : 'w', false);
    return move;
  }

  void decode_closed(const Letters& letters, const std::vector<Flat>& flat, Instruction& decoded) {
    std::string expected = letters.destinations + letters.sources;
    // mbarrier.arrive and expect_tx forms may leave out the state
    size_t first = 0;
    const bool lacks_state = decoded.op == Op::mbarrier_arrive && !flat.empty() && flat[0].is_address;
    if (decoded.op == Op::mbarrier_arrive && flat.size() + lacks_state > 2 && module_.target < PtxTarget::sm_90)
      fail(describe_lack(fmt::format("{} with a count", current_->opcode), PtxTarget::sm_90, module_.target_name));
    if (lacks_state) first = 1;
    decoded.num_destinations = static_cast<uint16_t>(letters.destinations.size() - first);
    size_t at = first;
    bool is_optional = false;
    for (const Flat& one : flat) {
      while (at < expected.size() && expected[at] == 'o') is_optional = true, ++at;
      if (at == expected.size()) fail(fmt::format("{} operands, at most {} are expected", flat.size(), at - first));
      if (one.is_address != (expected[at] == 'a' || expected[at] == 'X'))
        fail("an address in brackets stands where a value is expected, or the reverse");
      const char letter = expected[at++];
      operands_.add(decoded, *one.operand, letter == 'X' ? 'x' : letter, false);
    }
    is_optional |= at < expected.size() && expected[at] == 'o';
    if (at < expected.size() && !is_optional) fail(fmt::format("only {} operands", flat.size()));
    if (decoded.op == Op::bar_sync && flat.size() == 1) {
      decoded.flag = true;
      operands_.add_special(Special::threads_of_warps);
    }
    if (lacks_state) operands_.insert_sink(decoded);
  }

  /// bar.red: result, barrier[, threads], predicate.
  void decode_reduction(const std::vector<Flat>& flat, Instruction& decoded) {
    if (flat.size() != 3 && flat.size() != 4) fail(fmt::format("{} operands, 3 or 4 are expected", flat.size()));
    decoded.num_destinations = 1;
    operands_.add(decoded, *flat[0].operand, decoded.atomic == AtomicOp::add ? 'w' : 'p', false);
    operands_.add(decoded, *flat[1].operand, 'w', false);
    decoded.flag = flat.size() == 3;
    if (decoded.flag) operands_.add_special(Special::threads_of_warps);
    else operands_.add(decoded, *flat[2].operand, 'w', false);
    decoded.flag2 = flat.back().operand->is_negated;
    operands_.add(decoded, *flat.back().operand, 'n', false);
  }

  void set_address_width(Instruction& decoded, const std::vector<Flat>& flat) {
    const auto first = std::find_if(flat.begin(), flat.end(), [](const Flat& one) { return one.is_address; });
    if (first != flat.end()) decoded.is_address_wide = operands_.is_wide_address(*first->operand);
  }

  /// ld, st, atom and red: values as wide as their registers, and an address.
  void decode_access(const std::vector<Flat>& flat, Instruction& decoded) {
    const size_t v = decoded.vector;
    const bool has_results = decoded.op == Op::load || (decoded.op == Op::atomic && !decoded.flag2);
    decoded.num_destinations = static_cast<uint16_t>(has_results ? v : 0);
    size_t expected = v + 1;
    if (decoded.op == Op::atomic) expected += decoded.num_destinations + (decoded.atomic == AtomicOp::cas ? 1 : 0);
    // a cache policy may follow
    if (flat.size() < expected || flat.size() > expected + 1)
      fail(fmt::format("{} operands, {} or {} are expected", flat.size(), expected, expected + 1));
    const size_t address = decoded.op == Op::store ? 0 : decoded.num_destinations;
    for (size_t i = 0; i < flat.size(); ++i)
      if (flat[i].is_address != (i == address)) fail("the address, and nothing else, is expected in brackets");
    decoded.is_wide = decoded.width == 8;
    for (size_t i = 0; i < expected; ++i)
      decoded.is_wide |= !flat[i].is_address && operands_.register_bytes(*flat[i].operand) == 8;
    for (size_t i = 0; i < flat.size(); ++i) {
      const int bytes = operands_.register_bytes(*flat[i].operand);
      if (i < expected && i != address && bytes != 0 && (bytes < decoded.width || (bytes == 8) != decoded.is_wide))
        fail(fmt::format("a register of {} bytes does not fit .{}", bytes, ptx_type_name(decoded.type)));
      operands_.add(decoded, *flat[i].operand, i == address ? 'a' : 'v', decoded.is_wide);
    }
  }

  /// Forms whose operands the machine does not look at.
  void decode_free(const Letters& letters, const std::vector<Flat>& flat, Instruction& decoded) {
    decoded.num_destinations = static_cast<uint16_t>(letters.destinations.size());
    for (const Flat& one : flat) operands_.add(decoded, *one.operand, one.is_address ? 'a' : 'v', false);
  }

  /// wmma: the registers of fragments, an address and perhaps a stride.
  void decode_fragments(const std::vector<Flat>& flat, Instruction& decoded) {
    const FragmentShape shape = FragmentShape::unpack(decoded.aux);
    const auto count = [&](Fragment which, PtxType type) { return static_cast<size_t>(shape.registers(which, type)); };
    const size_t d = count(Fragment::c, decoded.type2);
    size_t expected = count(static_cast<Fragment>(decoded.vector), decoded.type) + 1;
    if (decoded.op == Op::wmma)
      expected = d + count(Fragment::a, decoded.type) + count(Fragment::b, decoded.type) +
                 count(Fragment::c, decoded.flag2                   ? PtxType::f16
                                    : decoded.type2 == PtxType::f16 ? PtxType::f32
                                                                    : decoded.type2);
    const bool has_stride = decoded.op != Op::wmma && flat.size() == expected + 1;
    if (flat.size() != expected && !has_stride)
      fail(fmt::format("{} operands, {} are expected", flat.size(), expected));
    const size_t address = decoded.op == Op::wmma_load ? expected - 1 : decoded.op == Op::wmma_store ? 0 : flat.size();
    decoded.num_destinations = static_cast<uint16_t>(decoded.op == Op::wmma ? d : address);
    decoded.flag = has_stride;
    const PtxType type = decoded.op == Op::wmma ? decoded.type2 : decoded.type;
    for (size_t i = 0; i < flat.size(); ++i) {
      if (flat[i].is_address != (i == address)) fail("the address, and nothing else, is expected in brackets");
      const bool is_stride = has_stride && i + 1 == flat.size();
      const char letter = i == address ? 'a' : is_stride || type != PtxType::f64 ? 'w' : 'x';
      operands_.add(decoded, *flat[i].operand, letter, i == address && decoded.is_address_wide);
    }
  }

  /// SS: accumulators, A, B, scale-d[, scale-a, scale-b[, trans-a, trans-b]]; RS: four registers of A and only trans-b.
  void decode_wgmma(const std::vector<Flat>& flat, Instruction& decoded) {
    const size_t accumulators = size_t{decoded.vector} * decoded.width;
    const bool is_16bit = decoded.type == PtxType::bf16 || decoded.type == PtxType::f16;
    const bool is_integer = decoded.type == PtxType::s8 || decoded.type == PtxType::u8;
    decoded.flag = current_->operands.size() > 1 && current_->operands[1].kind == PtxOperand::Kind::vector;
    const size_t b = accumulators + (decoded.flag ? 4 : 1);
    const size_t expected = b + 2 + (is_integer ? 0 : 2) + (is_16bit ? (decoded.flag ? 1 : 2) : 0);
    if (flat.size() != expected) fail(fmt::format("{} operands, {} are expected", flat.size(), expected));
    decoded.num_destinations = static_cast<uint16_t>(accumulators);
    decoded.flag2 = is_scale_zero(*flat[b + 1].operand);
    for (size_t i = 0; i < flat.size(); ++i) {
      const char letter = i < accumulators || (decoded.flag && i < b) ? 'w' : i <= b ? 'x' : i == b + 1 ? 'p' : 'w';
      operands_.add(decoded, *flat[i].operand, letter, false);
    }
    program_.has_wgmma = true;
  }

  /// `setp.ne.b32 p, 0, 0` in front, as inline assembly writes a constant scale-d: the accumulators are not read.
  bool is_scale_zero(const PtxOperand& scale) const {
    if (scale.kind == PtxOperand::Kind::immediate) return scale.bits == 0;
    if (current_ == text_->instructions.data()) return false;
    const PtxInstruction& before = current_[-1];
    if (before.opcode != "setp.ne.b32" || before.guard >= 0 || before.operands.size() != 3) return false;
    const auto is_zero = [](const PtxOperand& o) { return o.kind == PtxOperand::Kind::immediate && o.bits == 0; };
    return before.operands[0].reg == scale.reg && is_zero(before.operands[1]) && is_zero(before.operands[2]);
  }

  [[noreturn]] void fail(const std::string& message) const { operands_.fail(message); }

  const PtxModule& module_;
  const PtxKernel& kernel_;
  const PtxKernel* text_ = nullptr;  ///< the function, or the kernel, that is decoded
  size_t index_ = 0;                 ///< of that function
  const PtxInstruction* current_ = nullptr;
  const std::vector<ReachedFunction> reached_;
  Program program_;
  OperandTable operands_;
};

}  // namespace

std::span<const uint32_t> branch_targets(const Program& program, const Instruction& i) {
  if (i.op == Op::branch) return {&i.target, 1};
  if (i.op == Op::branch_indexed) return {program.targets.data() + i.aux, i.target};
  return {};
}

bool falls_through(const Instruction& i) {
  const bool goes_away =
      i.op == Op::leave || i.op == Op::return_ || i.op == Op::trap || i.op == Op::branch || i.op == Op::branch_indexed;
  return i.guard >= 0 || !goes_away;
}

void find_endless_loops(Program& program) {
  const std::vector<Instruction>& code = program.code;
  std::vector<std::vector<uint32_t>> before(code.size());
  std::vector<uint32_t> reached;
  for (uint32_t pc = 0; pc < code.size(); ++pc) {
    const Instruction& i = code[pc];
    const bool ends = i.op == Op::leave || i.op == Op::return_ || i.op == Op::trap || i.op == Op::assert_fail;
    if (ends) reached.push_back(pc);
    if (falls_through(i)) before[pc + 1].push_back(pc);
    for (const uint32_t target : branch_targets(program, i)) before[target].push_back(pc);
  }
  std::vector<bool> never_ends(code.size(), true);
  for (const uint32_t pc : reached) never_ends[pc] = false;
  for (; !reached.empty();) {
    const uint32_t pc = reached.back();
    reached.pop_back();
    for (const uint32_t from : before[pc])
      if (never_ends[from]) never_ends[from] = false, reached.push_back(from);
  }
  if (std::find(never_ends.begin(), never_ends.end(), true) != never_ends.end())
    program.never_ends = std::move(never_ends);
}

Program decode(const PtxModule& module, std::string_view kernel) {
  const PtxKernel* found = module.find(kernel);
  if (found == nullptr) {
    std::string others;
    for (const PtxKernel& other : module.kernels)
      others += fmt::format("{}'{}'", others.empty() ? "" : ", ", other.name);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the PTX text has no kernel '{}'; it has {}", kernel, others.empty() ? "none" : others));
  }
  return Decoder(module, *found).run();
}

Program decode_text(std::string_view ptx, std::string_view kernel) { return decode(parse_ptx(ptx), kernel); }

}  // namespace seqtile::sim
