// jit/codegen/nvptx/wgmma.cpp -- products of a specialised loop: a warp group multiplies 64 rows at a time.
// SPDX-License-Identifier: Apache-2.0
//
// Operand b is read from shared memory by descriptor, a as well or from registers, where the group has computed it
// itself: an accumulator's registers are the next product's operand a. A descriptor names the tile's first byte in
// units of 16, the distance between groups of eight rows (stride) and, of tiles with neighbouring n, the distance
// between panels (leading).
#include "jit/codegen/nvptx/hopper.h"
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int64_t kStep = 16, kStepBytes = 32, kGroupRows = 64, kUnit = 16;

bool is_zero(const ir::Value* tile) {
  if (!tile->def || tile->def->kind != OpKind::full) return false;
  const Op* scalar = tile->def->operands[0]->def;
  return scalar && scalar->kind == OpKind::constant && scalar->float_attr("value", 1) == 0;
}

}  // namespace

// Of the rows of `tile` from `row` (i32) on.
Value* Program::descriptor(const Staged& tile, Value* row, bool is_n_major) {
  const int64_t panel = tile.layout.row_bytes();
  Value* address = e_.address_of(e_.reserved(tile.first, tile.slot));
  if (row) address = e_.b.CreateAdd(address, e_.b.CreateMul(row, e_.i32(panel)));
  Value* low = e_.b.CreateAnd(e_.b.CreateLShr(address, e_.i32(4)), e_.i32(0x3fff));
  const uint64_t bits = hopper::descriptor_bits(is_n_major ? tile.panel_stride() : kUnit, 8 * panel, panel);
  return e_.b.CreateOr(e_.b.CreateZExt(low, e_.b.getInt64Ty()), e_.b.getInt64(bits));
}

void Program::lower_wgmma(const Op& op) {
  const ir::Value *a = op.operands[0], *b = passes::stored_operand(op, 1);
  const LinearLayout layout = preferred(op.results[0]);
  const int64_t n = layout.shape()[1], k = a->type.shape[1];
  const auto per_tile = static_cast<size_t>(n / 2);
  const bool is_fresh = is_zero(op.operands[2]), is_n_major = !passes::is_transposed(op.operands[1]);
  std::vector<Value*> sums =
      is_fresh ? std::vector<Value*>(static_cast<size_t>(layout.num_registers())) : pull(op.operands[2], layout);
  const Staged* left = in_shared(a);
  const LinearLayout fragments = mma_operand_layout(a->type.shape[0], k, e_.num_warps, 1);
  std::vector<Value*> words;
  if (!left)
    for (int i = 0; i < layout.repeats()[0]; ++i)
      for (int64_t step = 0; step < k / kStep; ++step)
        for (Value* word : packed_fragment(fragments, pull(a, fragments), i, step)) words.push_back(word);
  await_operands(op);
  const Staged& right = *in_shared(b);
  hopper::fence_wgmma(e_);
  const hopper::Wgmma form{a->type.dtype, n, false, is_n_major};
  Value* b_first = descriptor(right, nullptr, is_n_major);
  for (int i = 0; i < layout.repeats()[0]; ++i) {
    Value* a_first = nullptr;
    if (left) {
      Value* row = e_.b.CreateAdd(e_.b.CreateMul(e_.warp_group(), e_.i32(kGroupRows)),
                                  e_.i32(int64_t{i} * layout.core_shape()[0]));
      a_first = descriptor(*left, row, false);
    }
    for (int64_t step = 0; step < k / kStep; ++step) {
      const auto moved = [&](Value* first, const Staged& tile) {  // along k within rows, and on to the next panel
        const int64_t byte = step * kStepBytes, panel = tile.layout.row_bytes();
        return e_.b.CreateAdd(first, e_.i64((byte / panel * tile.panel_stride() + byte % panel) / kUnit));
      };
      Value* b_step = is_n_major ? e_.b.CreateAdd(b_first, e_.i64(step * kStep * right.layout.row_bytes() / kUnit))
                                 : moved(b_first, right);
      std::vector<Value*> from = left ? std::vector<Value*>{moved(a_first, *left)} : std::vector<Value*>();
      if (!left) {
        const auto first = words.begin() + (i * (k / kStep) + step) * 4;
        from.assign(first, first + 4);
      }
      hopper::Wgmma each = form;
      each.is_first = is_fresh && step == 0;
      hopper::multiply(e_, each, from, b_step, std::span(sums).subspan(static_cast<size_t>(i) * per_tile, per_tile));
    }
  }
  hopper::commit_wgmma(e_);
  hopper::wait_wgmma(e_, 0, sums, words);
  release_operands(op);
  hold(op.results[0], layout, std::move(sums));
}

}  // namespace seqtile::nvptx
