// jit/sim/decode/decode_forms.cpp -- matches opcodes against ptx_ops.def and reads the modifiers of what matched.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>

#include "jit/sim/decode/decode.h"
#include "jit/sim/values/fragments.h"

namespace seqtile::sim {
namespace {

constexpr PtxForm kForms[] = {
#define SEQTILE_PTX_OP(operation, target, pattern, operands, kind) \
  {Op::operation, PtxTarget::target, pattern, operands, InstructionClass::kind},
#include "jit/sim/decode/ptx_ops.def"
#undef SEQTILE_PTX_OP
};

/// "m64n#k16" against "m64n128k16".
bool matches_number(std::string_view pattern, std::string_view part) {
  const size_t at = pattern.find('#');
  if (at == std::string_view::npos) return pattern == part;
  const std::string_view tail = pattern.substr(at + 1);
  if (part.size() <= at + tail.size() || part.substr(0, at) != pattern.substr(0, at)) return false;
  if (part.substr(part.size() - tail.size()) != tail) return false;
  const std::string_view digits = part.substr(at, part.size() - at - tail.size());
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool matches_alternative(std::string_view pattern, std::string_view part) {
  if (pattern.front() != '{') return matches_number(pattern, part);
  pattern = pattern.substr(1, pattern.size() - 2);
  while (true) {
    const size_t bar = std::min(pattern.find('|'), pattern.size());
    if (matches_number(pattern.substr(0, bar), part)) return true;
    if (bar == pattern.size()) return false;
    pattern.remove_prefix(bar + 1);
  }
}

bool matches(std::string_view pattern, std::span<const std::string_view> parts) {
  if (pattern.empty()) return parts.empty();
  if (pattern == "*") return true;
  // a '.' inside braces or brackets does not occur: alternatives are single parts
  const size_t dot = std::min(pattern.find('.'), pattern.size());
  std::string_view first = pattern.substr(0, dot);
  const std::string_view rest = dot == pattern.size() ? std::string_view() : pattern.substr(dot + 1);
  const bool is_optional = first.front() == '[';
  if (is_optional) first = first.substr(1, first.size() - 2);
  if (!parts.empty() && matches_alternative(first, parts.front()) && matches(rest, parts.subspan(1))) return true;
  return is_optional && matches(rest, parts);
}

bool read_space(std::string_view part, Instruction& into) {
  if (part == "global") into.space = PtxSpace::global;
  else if (part == "shared" || part == "shared::cta" || part == "shared::cluster") into.space = PtxSpace::shared;
  else if (part == "local") into.space = PtxSpace::local;
  else if (part == "const") into.space = PtxSpace::constant;
  else if (part == "param") into.space = PtxSpace::param;
  else return false;
  return true;
}

bool read_order(std::string_view part, Instruction& into) {
  if (part == "relaxed" || part == "volatile") into.order = Order::relaxed;
  else if (part == "acquire") into.order = Order::acquire;
  else if (part == "release") into.order = Order::release;
  else if (part == "acq_rel") into.order = Order::acq_rel;
  else if (part == "sc") into.order = Order::sc;
  else if (part == "weak") into.order = Order::weak;
  else return false;
  return true;
}

bool read_scope(std::string_view part, Instruction& into) {
  if (part == "cta") into.scope = Scope::cta;
  else if (part == "cluster") into.scope = Scope::cluster;
  else if (part == "gpu" || part == "gl") into.scope = Scope::gpu;
  else if (part == "sys") into.scope = Scope::sys;
  else return false;
  return true;
}

bool is_cache_hint(std::string_view part) {
  return part.substr(0, 4) == "L1::" || part.substr(0, 4) == "L2::" || part == "ca" || part == "cg" || part == "cs" ||
         part == "lu" || part == "cv" || part == "wb" || part == "wt" || part == "nc";
}

bool read_atomic(std::string_view part, Instruction& into) {
  static constexpr std::array<std::string_view, 10> kNames = {"add", "inc", "dec", "min",  "max",
                                                              "and", "or",  "xor", "exch", "cas"};
  const auto found = std::find(kNames.begin(), kNames.end(), part);
  if (found == kNames.end()) return false;
  into.atomic = static_cast<AtomicOp>(found - kNames.begin());
  return true;
}

/// ld, st, atom, red: any order of modifiers, the type last.
std::string decode_access(const Opcode& op, Instruction& into) {
  into.type = op.type();
  into.width = static_cast<uint8_t>(ptx_type_bytes(into.type));
  if (into.width == 0 || into.type == PtxType::pred || into.width > 8) return "type ." + std::string(op.parts.back());
  const bool is_atomic = into.op == Op::atomic;
  bool has_operation = false;
  if (is_atomic) into.order = Order::relaxed, into.scope = Scope::gpu;  // PTX's defaults
  for (size_t i = 1; i + 1 < op.parts.size(); ++i) {
    const std::string_view part = op.parts[i];
    if (part == "v2" || part == "v4" || part == "v8") into.vector = static_cast<uint8_t>(part[1] - '0');
    else if (is_atomic && read_atomic(part, into)) has_operation = true;
    else if (part == "noftz" && is_atomic) continue;
    else if (part == "mmio") into.order = Order::relaxed;
    else if (!read_space(part, into) && !read_order(part, into) && !read_scope(part, into) && !is_cache_hint(part))
      return "modifier ." + std::string(part);
    if (part == "nc") into.flag = true;
  }
  if (is_atomic && !has_operation) return "the operation";
  if (!is_atomic && into.width * into.vector > 16) return "a vector of more than 16 bytes";
  if (is_atomic && into.width == 1) return "type ." + std::string(op.parts.back());
  if (is_atomic) into.flag2 = op.base() == "red";
  if (into.width * into.vector > 32) return "a vector of more than 32 bytes";
  return "";
}

uint32_t index_of(std::string_view part, std::initializer_list<std::string_view> names) {
  return static_cast<uint32_t>(std::find(names.begin(), names.end(), part) - names.begin());
}

void decode_mbarrier(const Opcode& op, Instruction& into) {
  into.order = into.op == Op::mbarrier_wait ? Order::acquire : Order::release;
  into.scope = Scope::cta;
  for (size_t i = 2; i + 1 < op.parts.size(); ++i) read_order(op.parts[i], into), read_scope(op.parts[i], into);
  into.flag = op.has("parity");
  into.flag2 = op.has("expect_tx");
}

/// Shapes like "m16n8k16": k goes to `vector`, the types of A and B to `type` and `type2`.
void decode_mma(const Opcode& op, Instruction& into) {
  const std::string_view shape = op.parts[3];
  into.vector = static_cast<uint8_t>(std::atoi(std::string(shape.substr(shape.find('k') + 1)).c_str()));
  into.type = parse_ptx_type(op.parts[op.parts.size() - 3]);
  into.type2 = parse_ptx_type(op.parts[op.parts.size() - 2]);
  into.width = op.parts.back() == "f16" ? 2 : 4;
  into.flag2 = op.has("satfinite");
}

std::string decode_wgmma(const Opcode& op, Instruction& into) {
  const std::string_view shape = op.parts[4];
  const int n = std::atoi(std::string(shape.substr(4)).c_str());
  if (n < 8 || n > 256 || n % 8 != 0) return "n of 8 to 256 in steps of 8";
  into.vector = static_cast<uint8_t>(n / 8);
  into.aux = op.has("satfinite");
  into.width = op.parts[5] == "f16" ? 2 : 4;
  into.type = parse_ptx_type(op.parts[op.parts.size() - 2]);
  into.type2 = op.type();
  if ((into.type == PtxType::bf16 || into.type == PtxType::f16) && into.type != into.type2)
    return "operands of one type";
  if (into.width == 2 && into.type == PtxType::bf16) return "sums in f16";
  const bool is_integer = into.type == PtxType::s8 || into.type == PtxType::u8;
  if (is_integer && n > 24 && n % 16 != 0) return "n of 8, 16, 24 and multiples of 16";
  return "";
}

void decode_bulk(const Opcode& op, Instruction& into) {
  for (const std::string_view part : op.parts) {
    if (part.size() == 2 && part[1] == 'd' && part[0] >= '1' && part[0] <= '5')
      into.vector = static_cast<uint8_t>(part[0] - '0');
    read_atomic(part, into);
  }
  into.flag = op.has("multicast::cluster") || op.parts[1] == "reduce";
  into.flag2 = op.parts.size() > 4 && op.parts[3] == "shared::cluster" && op.parts[4] == "shared::cta";
  into.type = op.type();
}

}  // namespace

const PtxForm* find_form(const Opcode& opcode) {
  const std::span<const std::string_view> parts(opcode.parts);
  for (const PtxForm& form : kForms)
    if (matches(form.pattern, parts)) return &form;
  return nullptr;
}

std::string decode_modifiers(const Opcode& op, Instruction& into) {
  switch (into.op) {
    case Op::load:
    case Op::store:
    case Op::atomic: return decode_access(op, into);
    case Op::shuffle: into.aux = index_of(op.parts[2], {"up", "down", "bfly", "idx"}); break;
    case Op::vote: into.aux = index_of(op.parts[2], {"all", "any", "uni"}); break;
    case Op::reduce_warp:
      read_atomic(op.parts[2], into);
      into.type = op.type();
      into.aux = (op.has("abs") ? 1u : 0u) | (op.has("NaN") ? 2u : 0u);
      break;
    case Op::bar_reduce:
      into.atomic = op.has("and") ? AtomicOp::bit_and : op.has("or") ? AtomicOp::bit_or : AtomicOp::add;
      break;
    case Op::set_registers: into.flag = op.has("inc"); break;
    case Op::match_all:
    case Op::match_any: into.is_wide = op.type() == PtxType::b64; break;
    case Op::fence:
      into.scope = Scope::sys;
      for (const std::string_view part : op.parts) read_scope(part, into);
      break;
    case Op::cluster_arrive: into.flag = op.has("relaxed"); break;
    case Op::mbarrier_arrive: into.flag = op.has("arrive_drop"); [[fallthrough]];
    case Op::mbarrier_expect:
    case Op::mbarrier_complete:
    case Op::mbarrier_wait: decode_mbarrier(op, into); break;
    case Op::map_rank:
    case Op::rank_of: into.is_wide = op.type() == PtxType::u64; break;
    case Op::copy_arrive: into.flag = op.has("noinc"); break;
    case Op::bulk_wait: into.flag2 = op.has("read"); break;
    case Op::tensor_load:
    case Op::tensor_store:
    case Op::bulk_load:
    case Op::bulk_store: decode_bulk(op, into); break;
    case Op::load_matrix:
    case Op::store_matrix:
      into.vector = static_cast<uint8_t>(op.parts[4][1] - '0');
      into.flag = op.has("trans");
      break;
    case Op::mma: decode_mma(op, into); break;
    case Op::wmma_load:
    case Op::wmma_store:
    case Op::wmma: return decode_fragments(op, into);
    case Op::wgmma: return decode_wgmma(op, into);
    default: break;
  }
  return "";
}

}  // namespace seqtile::sim
