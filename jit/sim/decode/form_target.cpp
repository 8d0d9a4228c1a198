// jit/sim/decode/form_target.cpp -- which target a modifier or a scalar form came with; whole forms: ptx_ops.def.
// SPDX-License-Identifier: Apache-2.0
//
// Agrees with ptxas, by which a test checks it where there is one (tests/jit/sim/targets_test.cpp).
#include "jit/ptx/ptx_lexer.h"
#include "jit/sim/decode/decode.h"

namespace seqtile::sim {
namespace {

bool is_bfloat(PtxType type) { return type == PtxType::bf16 || type == PtxType::bf16x2; }
bool is_fp8(PtxType type) { return type == PtxType::e4m3x2 || type == PtxType::e5m2x2; }

PtxTarget convert_target(const Opcode& op) {
  const PtxType to = op.parts.size() > 2 ? parse_ptx_type(op.parts[op.parts.size() - 2]) : PtxType::none;
  const PtxType from = op.type();
  if (is_fp8(to) || is_fp8(from)) return PtxTarget::sm_89;
  if (to == PtxType::tf32) return op.has("rna") ? PtxTarget::sm_80 : PtxTarget::sm_90;
  const bool is_narrowing = is_bfloat(to) && from == PtxType::f32;
  const bool is_widening = is_bfloat(from) && to == PtxType::f32 && !op.has("ftz");
  return (is_bfloat(to) || is_bfloat(from)) && !is_narrowing && !is_widening ? PtxTarget::sm_90 : PtxTarget::sm_80;
}

PtxTarget atomic_target(const Opcode& op) {
  const bool is_vector = op.has("v2") || op.has("v4") || op.has("v8");
  return is_vector || is_bfloat(op.type()) ? PtxTarget::sm_90 : PtxTarget::sm_80;
}

}  // namespace

PtxTarget least_target(const Opcode& op) {
  const std::string_view base = op.base();
  if (op.has("cluster") || op.has("shared::cluster")) return PtxTarget::sm_90;
  if (base == "mbarrier" && op.has("relaxed")) return PtxTarget::sm_90;
  if (base == "atom" || base == "red") return atomic_target(op);
  if (base == "cvt") return convert_target(op);
  const bool is_mixed =
      op.parts.size() > 2 && op.parts[op.parts.size() - 2] == "f32" && base != "cvt" && base != "slct";
  if (op.type() == PtxType::f32x2 || (is_mixed && is_one_of(base, {"add", "sub", "fma"}))) return PtxTarget::sm_100;
  if (base == "redux" && op.type() == PtxType::f32) return PtxTarget::sm_100;
  // fma, min, max, neg and abs of bf16 are older
  if (is_bfloat(op.type()) && is_one_of(base, {"add", "sub", "mul", "ex2", "tanh", "setp", "set"}))
    return PtxTarget::sm_90;
  return PtxTarget::sm_80;
}

}  // namespace seqtile::sim
