// jit/codegen/nvptx/layout/layouts.cpp -- which layout a tile would like to be computed in.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpGroup;
using ir::OpKind;

LinearLayout Program::default_layout(const ir::Type& type) const {
  return blocked_layout(type.dims(), vector_, e_.num_warps);
}

// Operands that cannot be computed anywhere (products, reductions, carried tiles) decide; the others follow.
LinearLayout Program::preferred_elementwise(const Op& op) {
  const ir::Type& type = op.results[0]->type;
  const LinearLayout plain = default_layout(type);
  for (const ir::Value* operand : op.operands) {
    if (!operand->type.is_tile()) continue;
    const LinearLayout layout = preferred(operand);
    if (layout != plain) return layout;
  }
  return plain;
}

LinearLayout Program::preferred(const ir::Value* tile) {
  if (const auto known = preferred_.find(tile); known != preferred_.end()) return known->second;
  const Op* op = tile->def;
  LinearLayout layout = default_layout(tile->type);
  if (op) {
    const auto axis = static_cast<int>(op->int_attr("axis"));
    if (op->info().group == OpGroup::unary || op->info().group == OpGroup::binary) layout = preferred_elementwise(*op);
    else if (op->kind == OpKind::rand) layout = preferred(op->operands[1]);
    else if (op->kind == OpKind::dot) layout = dot_layout(*op);
    else if (op->kind == OpKind::reduce || op->kind == OpKind::argreduce)
      layout = preferred(op->operands[0]).without(axis);
  }
  preferred_.emplace(tile, layout);
  return layout;
}

}  // namespace seqtile::nvptx
