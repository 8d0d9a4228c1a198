// jit/sim/decode.cpp -- from the parsed text to a Program over virtual registers; then slots are given out.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/decode.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "jit/error.h"
#include "jit/sim/address.h"

namespace seqtile::sim {
namespace {

constexpr std::array<std::string_view, 39> kSpecialNames = {"%tid.x",
                                                            "%tid.y",
                                                            "%tid.z",
                                                            "%ntid.x",
                                                            "%ntid.y",
                                                            "%ntid.z",
                                                            "%ctaid.x",
                                                            "%ctaid.y",
                                                            "%ctaid.z",
                                                            "%nctaid.x",
                                                            "%nctaid.y",
                                                            "%nctaid.z",
                                                            "%laneid",
                                                            "%warpid",
                                                            "%nwarpid",
                                                            "%cluster_ctarank",
                                                            "%cluster_nctarank",
                                                            "%clusterid.x",
                                                            "%clusterid.y",
                                                            "%clusterid.z",
                                                            "%nclusterid.x",
                                                            "%nclusterid.y",
                                                            "%nclusterid.z",
                                                            "%cluster_ctaid.x",
                                                            "%cluster_ctaid.y",
                                                            "%cluster_ctaid.z",
                                                            "%cluster_nctaid.x",
                                                            "%cluster_nctaid.y",
                                                            "%cluster_nctaid.z",
                                                            "%lanemask_eq",
                                                            "%lanemask_lt",
                                                            "%lanemask_le",
                                                            "%lanemask_gt",
                                                            "%lanemask_ge",
                                                            "%smid",
                                                            "%nsmid",
                                                            "%gridid",
                                                            "%dynamic_smem_size",
                                                            "%total_smem_size"};

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
  Decoder(const PtxModule& module, const PtxKernel& kernel) : module_(module), kernel_(kernel) {}

  Program run() {
    program_.kernel = kernel_.name;
    program_.module = std::make_shared<PtxModule>(module_);
    program_.params = kernel_.params;
    program_.param_bytes = kernel_.param_bytes;
    program_.required_threads = kernel_.required_threads;
    place_variables();
    virtual_.num_registers = static_cast<uint32_t>(kernel_.registers.size());
    for (const PtxRegister& reg : kernel_.registers) virtual_.is_wide.push_back(ptx_type_bytes(reg.type) == 8);
    for (const PtxInstruction& instruction : kernel_.instructions) decode_one(instruction);
    finish_sinks();
    // a label may stand behind the last instruction; running off the end leaves the kernel
    Instruction end;
    end.op = Op::leave, end.kind = InstructionClass::control;
    end.line = kernel_.instructions.empty() ? 0 : kernel_.instructions.back().line;
    program_.code.push_back(end);
    allocate_slots(program_, virtual_);
    return std::move(program_);
  }

 private:
  // variables

  static int64_t place(int64_t& total, const PtxVariable& variable) {
    const int64_t offset = (total + variable.align - 1) / variable.align * variable.align;
    total = offset + variable.bytes;
    return offset;
  }

  void place_variables() {
    for (const auto* list : {&module_.variables, &kernel_.variables})
      for (const PtxVariable& variable : *list)
        if (!variable.is_extern) place_variable(variable);
    for (const PtxVariable& variable : module_.variables)
      if (variable.is_extern) symbols_[variable.name] = {kSharedBase + dynamic_start(variable.align), false};
    for (const PtxVariable& param : kernel_.params)
      symbols_[param.name] = {kParamWindow + static_cast<uint64_t>(param.offset), true};
  }

  /// Dynamic shared memory lies behind all static variables.
  uint64_t dynamic_start(int64_t align) {
    program_.static_shared_bytes = (program_.static_shared_bytes + align - 1) / align * align;
    return static_cast<uint64_t>(program_.static_shared_bytes);
  }

  void place_variable(const PtxVariable& variable) {
    if (variable.space == PtxSpace::shared) {
      symbols_[variable.name] = {kSharedBase + static_cast<uint64_t>(place(program_.static_shared_bytes, variable)),
                                 false};
    } else if (variable.space == PtxSpace::local) {
      symbols_[variable.name] = {kLocalBase + static_cast<uint64_t>(place(program_.local_bytes, variable)), false};
    } else {
      auto storage = std::make_shared<std::vector<uint64_t>>((variable.bytes + 15) / 8);
      std::memcpy(storage->data(), variable.initial.data(), variable.initial.size());
      symbols_[variable.name] = {reinterpret_cast<uint64_t>(storage->data()), true};
      program_.globals.push_back(
          {std::string(variable.name), storage, variable.bytes, variable.space == PtxSpace::constant});
    }
  }

  // operands

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::compile_failed,
                fmt::format("PTX line {}: {}: `{}`", current_->line, message, module_.line(current_->line)));
  }

  uint32_t constant(uint64_t value, bool is_wide) {
    if (!is_wide) value = static_cast<uint32_t>(value);
    const auto [found, is_new] =
        constants_.try_emplace({value, is_wide}, static_cast<uint32_t>(virtual_.is_wide.size()));
    if (is_new) {
      virtual_.is_wide.push_back(is_wide);
      program_.constants.push_back({found->second, is_wide, value});
    }
    return found->second;
  }

  uint32_t special(Special what, bool is_wide) {
    const auto [found, is_new] =
        specials_.try_emplace({static_cast<int>(what), is_wide}, static_cast<uint32_t>(virtual_.is_wide.size()));
    if (is_new) {
      virtual_.is_wide.push_back(is_wide);
      program_.specials.push_back({found->second, what, is_wide});
    }
    return found->second;
  }

  uint32_t special(std::string_view name, bool is_wide) {
    if (name == "%clusterid") name = "%clusterid.x";
    for (size_t i = 0; i < kSpecialNames.size(); ++i)
      if (kSpecialNames[i] == name) return special(static_cast<Special>(i), is_wide);
    fail("register '" + std::string(name) + "' is not known");
  }

  uint64_t immediate_bits(const PtxOperand& operand, bool is_wide) const {
    if (operand.is_double && !is_wide)
      return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits)));
    if (operand.is_float && is_wide)
      return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.bits))));
    return operand.bits;
  }

  int register_bytes(const PtxOperand& operand) const {
    return operand.kind == PtxOperand::Kind::reg ? ptx_type_bytes(kernel_.registers[operand.reg].type) : 0;
  }

  void check_register(const PtxOperand& operand, char letter) const {
    const PtxRegister& reg = kernel_.registers[operand.reg];
    const int bytes = ptx_type_bytes(reg.type);
    const bool is_predicate = reg.type == PtxType::pred;
    const bool fits = letter == 'p'   ? is_predicate
                      : letter == 'x' ? bytes == 8
                      : letter == 'w' ? bytes <= 4 && !is_predicate
                                      : !is_predicate;
    if (!fits)
      fail(fmt::format("register {} of type .{} does not fit {}", reg.full_name(), ptx_type_name(reg.type),
                       current_->opcode));
  }

  /// The virtual id of an operand. A letter v takes the width of `is_wide_value` for immediates.
  uint32_t id_of(const PtxOperand& operand, char letter, bool is_wide_value) {
    if (operand.is_negated) fail("a negated operand is not supported");
    const bool is_wide = letter == 'x' || ((letter == 'v' || letter == 'a') && is_wide_value);
    switch (operand.kind) {
      case PtxOperand::Kind::reg: check_register(operand, letter); return operand.reg;
      case PtxOperand::Kind::immediate:
        return constant(letter == 'p' ? (operand.bits != 0 ? ~0u : 0u) : immediate_bits(operand, is_wide), is_wide);
      case PtxOperand::Kind::special: return special(operand.text, is_wide);
      case PtxOperand::Kind::symbol: {
        const auto [address, needs_wide] = symbols_.at(operand.text);
        return constant(address + static_cast<uint64_t>(operand.offset), letter == 'a' ? needs_wide : is_wide);
      }
      case PtxOperand::Kind::sink: return kNoRegister;
      default: fail("an operand of another kind is expected");
    }
  }

  void flatten(const PtxOperand& operand, std::vector<Flat>& into, Instruction& decoded, int& num_memory) {
    if (operand.kind == PtxOperand::Kind::memory) {
      (num_memory++ == 0 ? decoded.offset : decoded.offset2) = operand.offset;
      for (size_t i = 0; i < operand.elements.size(); ++i) into.push_back({&operand.elements[i], i == 0});
    } else if (operand.kind == PtxOperand::Kind::vector) {
      for (const PtxOperand& element : operand.elements) into.push_back({&element});
    } else {
      into.push_back({&operand});
    }
  }

  // instructions

  void decode_one(const PtxInstruction& text) {
    current_ = &text;
    Instruction decoded;
    decoded.line = text.line;
    decoded.guard = text.guard;
    decoded.is_guard_negated = text.is_guard_negated;
    decoded.pool = static_cast<uint32_t>(program_.pool.size());
    std::vector<Flat> flat;
    int num_memory = 0;
    for (const PtxOperand& operand : text.operands) flatten(operand, flat, decoded, num_memory);
    const Opcode opcode(text.opcode);
    if (is_clock_read(text)) {
      decoded.op = Op::read_clock;
      decoded.num_destinations = 1;
      decoded.is_wide = register_bytes(text.operands[0]) == 8;
      add(decoded, text.operands[0], 'v', false);
    } else if (const PtxForm* form = find_form(opcode)) {
      decode_form(opcode, *form, flat, decoded);
    } else {
      decode_scalar(opcode, flat, decoded);
    }
    decoded.num_operands = static_cast<uint16_t>(program_.pool.size() - decoded.pool);
    program_.code.push_back(decoded);
  }

  bool is_clock_read(const PtxInstruction& text) const {
    if (text.operands.size() != 2 || text.operands[1].kind != PtxOperand::Kind::special) return false;
    const std::string_view name = text.operands[1].text;
    return name.substr(0, 6) == "%clock" || name.substr(0, 12) == "%globaltimer";
  }

  void add(const Instruction& decoded, const PtxOperand& operand, char letter, bool is_wide_value) {
    const uint32_t id = id_of(operand, letter, is_wide_value);
    const size_t position = program_.pool.size() - decoded.pool;
    if (id == kNoRegister) {
      if (position >= decoded.num_destinations) fail("'_' cannot be read");
      sinks_.push_back(program_.pool.size());
    } else if (position < decoded.num_destinations && id >= virtual_.num_registers) {
      fail("a register is expected as destination");
    }
    program_.pool.push_back(id);
  }

  void decode_scalar(const Opcode& opcode, const std::vector<Flat>& flat, Instruction& decoded) {
    std::vector<OperandShape> shapes;
    for (const PtxOperand& operand : current_->operands)
      shapes.push_back({register_bytes(operand), static_cast<int>(operand.elements.size())});
    const auto form = resolve_scalar(opcode, shapes);
    if (!form) fail("the machine does not know the form " + std::string(current_->opcode));
    if (form->operands.size() != flat.size())
      fail(fmt::format("{} operands, {} are expected", flat.size(), form->operands.size()));
    decoded.scalar = form->run;
    decoded.aux = form->aux;
    decoded.num_destinations = static_cast<uint16_t>(form->num_destinations);
    decoded.kind = scalar_class(opcode);
    for (size_t i = 0; i < flat.size(); ++i) add(decoded, *flat[i].operand, form->operands[i], false);
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
    const Letters letters = expand(form.operands);
    if (letters.is_open) decode_open(letters, flat, decoded);
    else decode_closed(letters, flat, decoded);
  }

  void decode_branch(const std::vector<Flat>& flat, Instruction& decoded) {
    if (flat.size() != 1 || flat[0].operand->kind != PtxOperand::Kind::label) fail("a label is expected");
    decoded.target = flat[0].operand->target;
  }

  void decode_closed(const Letters& letters, const std::vector<Flat>& flat, Instruction& decoded) {
    std::string expected = letters.destinations + letters.sources;
    // mbarrier.arrive and expect_tx forms may leave out the state
    size_t first = 0;
    const bool lacks_state = decoded.op == Op::mbarrier_arrive && !flat.empty() && flat[0].is_address;
    if (lacks_state) first = 1;
    decoded.num_destinations = static_cast<uint16_t>(letters.destinations.size() - first);
    size_t at = first;
    bool is_optional = false;
    for (const Flat& one : flat) {
      while (at < expected.size() && expected[at] == 'o') is_optional = true, ++at;
      if (at == expected.size()) fail(fmt::format("{} operands, at most {} are expected", flat.size(), at - first));
      if (one.is_address != (expected[at] == 'a'))
        fail("an address in brackets stands where a value is expected, or the reverse");
      add(decoded, *one.operand, expected[at++], false);
    }
    is_optional |= at < expected.size() && expected[at] == 'o';
    if (at < expected.size() && !is_optional) fail(fmt::format("only {} operands", flat.size()));
    if (decoded.op == Op::bar_sync && flat.size() == 1) {
      decoded.flag = true;
      program_.pool.push_back(special(Special::ntid_x, false));
    }
    if (decoded.op == Op::mbarrier_arrive && lacks_state) insert_sink(decoded);
    set_address_width(decoded, flat);
  }

  /// Puts a sink in front, so that the operands stand where they do in the form with a state.
  void insert_sink(Instruction& decoded) {
    for (size_t& position : sinks_)
      if (position >= decoded.pool) ++position;
    sinks_.push_back(decoded.pool);
    program_.pool.insert(program_.pool.begin() + decoded.pool, kNoRegister);
    decoded.num_destinations = 1;
  }

  void set_address_width(Instruction& decoded, const std::vector<Flat>& flat) {
    bool is_first = true;
    for (const Flat& one : flat) {
      if (!one.is_address) continue;
      bool is_wide = register_bytes(*one.operand) == 8;
      if (one.operand->kind == PtxOperand::Kind::symbol) is_wide = symbols_.at(one.operand->text).second;
      if (is_first) decoded.is_address_wide = is_wide;
      is_first = false;
    }
  }

  void decode_open(const Letters& letters, const std::vector<Flat>& flat, Instruction& decoded) {
    set_address_width(decoded, flat);
    if (decoded.op == Op::wgmma) return decode_wgmma(flat, decoded);
    decoded.num_destinations = static_cast<uint16_t>(open_destinations(letters, flat, decoded));
    const bool is_access =
        decoded.op == Op::load || decoded.op == Op::store || decoded.op == Op::atomic || decoded.op == Op::load_param;
    if (is_access) decoded.is_wide = decoded.width == 8;
    for (size_t i = 0; i < flat.size(); ++i) {
      const PtxOperand& operand = *flat[i].operand;
      if (is_access && !flat[i].is_address && register_bytes(operand) == 8) decoded.is_wide = true;
      const bool is_shuffle_predicate = decoded.op == Op::shuffle && i == 1 && decoded.num_destinations == 2;
      const char letter = flat[i].is_address ? 'a' : is_shuffle_predicate ? 'p' : 'v';
      add(decoded, operand, letter, is_access && decoded.is_wide);
    }
    check_open_count(flat, decoded);
  }

  size_t open_destinations(const Letters& letters, const std::vector<Flat>& flat, Instruction& decoded) {
    if (decoded.op == Op::load || decoded.op == Op::load_param) return decoded.vector;
    if (decoded.op == Op::atomic) return decoded.flag2 ? 0 : decoded.vector;
    if (decoded.op == Op::shuffle) decoded.flag2 = flat.size() == 6;
    if (decoded.op == Op::shuffle) return flat.size() - 4;
    return letters.destinations.size();
  }

  void check_open_count(const std::vector<Flat>& flat, const Instruction& decoded) {
    const size_t v = decoded.vector;
    size_t least = 0, most = 16;
    switch (decoded.op) {
      case Op::load:
      case Op::load_param:
      case Op::store: least = v + 1, most = v + 2; break;
      case Op::atomic:
        least = decoded.num_destinations + 1 + v + (decoded.atomic == AtomicOp::cas ? 1 : 0), most = least + 1;
        break;
      case Op::shuffle: least = 5, most = 6; break;
      case Op::tensor_load: least = v + 3 + (decoded.flag ? 1 : 0), most = least + 1; break;
      case Op::tensor_store: least = v + 2, most = least + 1; break;
      case Op::bulk_load: least = 4 + (decoded.flag ? 1 : 0), most = least + 1; break;
      case Op::bulk_store: least = 3, most = 4; break;
      default: break;
    }
    if (flat.size() < least || flat.size() > most)
      fail(fmt::format("{} operands, {} to {} are expected", flat.size(), least, most));
  }

  /// SS: accumulators, A, B, scale-d, scale-a, scale-b[, trans-a, trans-b]; RS: four registers of A and only trans-b.
  void decode_wgmma(const std::vector<Flat>& flat, Instruction& decoded) {
    const size_t accumulators = size_t{decoded.vector} * 4;
    const bool is_16bit = decoded.type == PtxType::bf16 || decoded.type == PtxType::f16;
    decoded.flag = current_->operands.size() > 1 && current_->operands[1].kind == PtxOperand::Kind::vector;
    const size_t expected = accumulators + (decoded.flag ? 4 + 4 + (is_16bit ? 1 : 0) : 2 + 3 + (is_16bit ? 2 : 0));
    if (flat.size() != expected) fail(fmt::format("{} operands, {} are expected", flat.size(), expected));
    decoded.num_destinations = static_cast<uint16_t>(accumulators);
    decoded.flag2 = is_scale_zero(*flat[accumulators + (decoded.flag ? 5 : 2)].operand);
    for (size_t i = 0; i < flat.size(); ++i) {
      const size_t b = accumulators + (decoded.flag ? 4 : 1);
      const char letter = i < accumulators || (decoded.flag && i < b) ? 'w' : i <= b ? 'x' : i == b + 1 ? 'p' : 'w';
      add(decoded, *flat[i].operand, letter, false);
    }
    program_.has_wgmma = true;
  }

  /// `setp.ne.b32 p, 0, 0` in front, as inline assembly writes a constant scale-d: the accumulators are not read.
  bool is_scale_zero(const PtxOperand& scale) const {
    if (scale.kind == PtxOperand::Kind::immediate) return scale.bits == 0;
    if (current_ == kernel_.instructions.data()) return false;
    const PtxInstruction& before = current_[-1];
    if (before.opcode != "setp.ne.b32" || before.guard >= 0 || before.operands.size() != 3) return false;
    const auto is_zero = [](const PtxOperand& o) { return o.kind == PtxOperand::Kind::immediate && o.bits == 0; };
    return before.operands[0].reg == scale.reg && is_zero(before.operands[1]) && is_zero(before.operands[2]);
  }

  /// Every '_' gets a register of its own that nothing reads.
  void finish_sinks() {
    if (sinks_.empty()) return;
    const auto id = static_cast<uint32_t>(virtual_.is_wide.size());
    virtual_.is_wide.push_back(true);
    for (const size_t position : sinks_) program_.pool[position] = id;
  }

  const PtxModule& module_;
  const PtxKernel& kernel_;
  const PtxInstruction* current_ = nullptr;
  Program program_;
  VirtualProgram virtual_;
  std::map<std::string_view, std::pair<uint64_t, bool>> symbols_;
  std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
  std::map<std::pair<int, bool>, uint32_t> specials_;
  std::vector<size_t> sinks_;
};

}  // namespace

Program decode(const PtxModule& module, std::string_view kernel) {
  const PtxKernel* found = module.find(kernel);
  if (found == nullptr)
    throw Error(ErrorCode::invalid_argument, fmt::format("the PTX text has no kernel '{}'", kernel));
  return Decoder(module, *found).run();
}

Program decode_text(std::string_view ptx, std::string_view kernel) { return decode(parse_ptx(ptx), kernel); }

}  // namespace seqtile::sim
