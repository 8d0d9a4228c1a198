// jit/codegen/cpu/kernels/contraction_match.cpp -- which loops are contractions: contraction.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "jit/analysis/streams.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;

namespace {

bool is_defined_in(const ir::Value* value, const ir::Block* block) {
  for (const ir::Block* b = value->def ? value->def->parent : value->block; b;
       b = b->parent ? b->parent->parent : nullptr)
    if (b == block) return true;
  return false;
}

}  // namespace

// Packed weights: reshape(trans(load(w [n / nr, k, nr]), {1, 0, 2})).
bool Program::is_packed_weight(const Op& reshape) const {
  const Op* trans = reshape.operands[0]->def;
  if (!trans || trans->kind != OpKind::trans || reshape.results[0]->type.rank != 2) return false;
  if (std::get<std::vector<int64_t>>(trans->attributes.at("perm")) != std::vector<int64_t>{1, 0, 2}) return false;
  const Op* load = trans->operands[0]->def;
  if (!load || load->kind != OpKind::load || load->operands[0]->type.rank != 3) return false;
  const auto it = users_.find(reshape.results[0]);
  return it != users_.end() && it->second.size() == 1 && it->second[0]->kind == OpKind::dot;
}

bool Program::match_weight(const ir::Value* b, const Op& loop, Contraction& found) const {
  Weight weight;
  const Op* op = b->def;
  if (!op) return false;
  weight.packed = op->kind == OpKind::reshape && is_packed_weight(*op);
  if (weight.packed) op = op->operands[0]->def;
  weight.transposed = op->kind == OpKind::load;
  if (!weight.transposed && op->kind != OpKind::trans) return false;
  weight.load = weight.transposed ? op : op->operands[0]->def;
  if (!weight.load || weight.load->kind != OpKind::load || weight.load->float_attr("fill") != 0) return false;
  const ir::Value* view = weight.load->operands[0];
  const int k_axis = weight.transposed ? 0 : 1, rank = weight.packed ? 3 : 2;
  if (view->type.rank != rank || !view->type.contiguous || view->type.shape[k_axis] != found.k) return false;
  if ((found.a_is_transposed || found.k == ir::kDynamic) && !weight.transposed) return false;
  if (weight.load->operands[1 + k_axis] != loop.regions[0]->arguments[0]) return false;
  const ir::Block* body = loop.regions[0];
  if (is_defined_in(view, body) || is_defined_in(weight.load->operands[2 - k_axis], body)) return false;
  if (weight.packed && view->type.shape[2] != weight.load->results[0]->type.shape[2]) return false;
  if (weight.packed && view->type.shape[2] % e_.lanes != 0) return false;
  found.weights.push_back(weight);
  return true;
}

// Whether rows that are read of one weight without a check exist in the other weight too.
bool Program::has_same_rows(const Weight& a, const Weight& b) {
  if (a.transposed || a.load == b.load) return true;  // columns are checked
  const int64_t rows = a.load->operands[0]->type.shape[0];
  return rows == b.load->operands[0]->type.shape[0] && (rows != ir::kDynamic || !a.packed) &&
         is_same_scalar(a.load->operands[1], b.load->operands[1]);
}

bool Program::match(const Op& loop, Contraction& found) const {
  const ir::Block& body = *loop.regions[0];
  const auto lo = constant_int(loop.operands[0]), hi = constant_int(loop.operands[1]),
             step = constant_int(loop.operands[2]);
  if (!lo || *lo != 0 || !step || body.arguments.size() < 2) return false;
  found.loop = &loop, found.k = hi.value_or(ir::kDynamic);
  const auto& yielded = body.yielded();
  for (size_t i = 0; i < yielded.size(); ++i) {
    const Op* dot = yielded[i]->def;
    const ir::Value* carried = body.arguments[i + 1];
    if (!dot || dot->kind != OpKind::dot || dot->operands[2] != carried) return false;
    if (users_.at(carried).size() != 1 || users_.at(yielded[i]).size() != 1) return false;
    const bool is_transposed = codegen::is_transposed(dot->operands[0]);
    if (i > 0 && is_transposed != found.a_is_transposed) return false;
    found.a_is_transposed = is_transposed;
    const Op* a = found.a_is_transposed ? dot->operands[0]->def->operands[0]->def : dot->operands[0]->def;
    if (!a || a->kind != OpKind::load || (found.a && found.a != a) || a->float_attr("fill") != 0) return false;
    found.a = a;
    if (!match_weight(dot->operands[1], loop, found)) return false;
    if (found.weights[i].packed != found.weights[0].packed ||
        found.weights[i].transposed != found.weights[0].transposed || dot->results[0]->type != yielded[0]->type)
      return false;
    if (!has_same_rows(found.weights[i], found.weights[0])) return false;
  }
  for (const Op* op : body.ops)  // nothing else may happen in the loop
    if (op->info().effects != ir::OpEffects::pure && op->kind != OpKind::load && op->kind != OpKind::yield)
      return false;
  if (!match_rows(loop, found)) return false;
  found.block_m = yielded[0]->type.shape[0], found.block_n = yielded[0]->type.shape[1];
  // A sum over what only the call knows is cut into slices of whole pairs; the last may end with half of one.
  found.compute =
      compute_dtype(found.a->results[0], found.weights[0].load->results[0], found.k == ir::kDynamic ? *step : found.k);
  return true;
}

// The operand that all products of the loop share: x [m, k], or [k, m] transposed. Where k is dynamic, the loop must
// end with the operands: what they have beyond its end would count in the tiles that it loads.
bool Program::match_rows(const Op& loop, const Contraction& found) const {
  const ir::Block* body = loop.regions[0];
  const Op& load = *found.a;
  const ir::Value *view = load.operands[0], *end = loop.operands[1];
  const int k_axis = found.a_is_transposed ? 0 : 1;
  if (view->type.rank != 2 || !view->type.contiguous || view->type.shape[k_axis] != found.k) return false;
  if (load.operands[1 + k_axis] != body->arguments[0] || is_defined_in(load.operands[2 - k_axis], body) ||
      is_defined_in(view, body))
    return false;
  if (found.k == ir::kDynamic &&
      (!end->def || end->def->kind != OpKind::size || end->def->int_attr("axis") != k_axis ||
       (end->def->operands[0] != view && end->def->operands[0] != found.weights[0].load->operands[0])))
    return false;
  return view->type.dtype != DType::f64 && load.results[0]->type.shape[k_axis] == *constant_int(loop.operands[2]);
}

}  // namespace seqtile::cpu
