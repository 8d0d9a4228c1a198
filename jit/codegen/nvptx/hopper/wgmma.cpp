// jit/codegen/nvptx/hopper/wgmma.cpp -- products of a specialised loop: a warp group multiplies 64 rows at a time.
// SPDX-License-Identifier: Apache-2.0
//
// Operand b is read from shared memory by descriptor, a as well or from registers, where the group has computed it
// itself: an accumulator's registers are the next product's operand a. A descriptor names the tile's first byte in
// units of 16, the distance between groups of eight rows (stride) and, of tiles with neighbouring n, the distance
// between panels (leading).
#include "jit/codegen/nvptx/hopper/hopper.h"
#include "jit/codegen/nvptx/pipeline/overlap.h"

namespace seqtile::nvptx {

using ir::Op;
using llvm::Value;

namespace {

constexpr int64_t kStep = 16, kStepBytes = 32, kGroupRows = 64, kUnit = 16;

}  // namespace

// The matrix descriptor of the rows of `tile` from `row` (i32; null: the first) on.
Value* Program::descriptor(const Staged& tile, Value* row, bool is_n_major) {
  const int64_t panel = tile.layout.row_bytes();
  Value* address = e_.address_of(e_.reserved(tile.first, tile.slot));
  if (row) address = e_.b.CreateAdd(address, e_.b.CreateMul(row, e_.i32(panel)));
  Value* low = e_.b.CreateAnd(e_.b.CreateLShr(address, e_.i32(4)), e_.i32(0x3fff));
  const uint64_t bits = hopper::descriptor_bits(is_n_major ? tile.panel_stride() : kUnit, 8 * panel, panel);
  return e_.b.CreateOr(e_.b.CreateZExt(low, e_.b.getInt64Ty()), e_.b.getInt64(bits));
}

LinearLayout Program::wgmma_operand_layout(const Op& op) const {
  const ir::Type& a = op.operands[0]->type;
  return mma_operand_layout(a.shape[0], a.shape[1], e_.num_warps, 1);
}

// Operand a where it comes from registers, four words for every 64 rows and 16 of k; none where it is in shared memory.
std::vector<Value*> Program::wgmma_words(const Op& op) {
  const ir::Value* a = op.operands[0];
  std::vector<Value*> words;
  if (in_shared(codegen::stored_operand(op, 0))) return words;
  const LinearLayout fragments = wgmma_operand_layout(op);
  for (int i = 0; i < fragments.repeats()[0]; ++i)
    for (int64_t step = 0; step < a->type.shape[1] / kStep; ++step)
      for (Value* word : packed_fragment(fragments, pull(a, fragments), i, step)) words.push_back(word);
  return words;
}

std::vector<Value*> Program::wgmma_sums(const Op& op) {
  const LinearLayout layout = preferred(op.results[0]);
  if (!codegen::is_zero(op.operands[2])) return pull(op.operands[2], layout);
  return std::vector<Value*>(static_cast<size_t>(layout.num_registers()));
}

// Issues one product, between a fence and a commit; `sums` hold its results when the batch has been waited for.
void Program::issue_wgmma(const Op& op, const std::vector<Value*>& words, const Staged& right,
                          std::vector<Value*>& sums) {
  const LinearLayout layout = preferred(op.results[0]);
  const Staged* left = words.empty() ? in_shared(codegen::stored_operand(op, 0)) : nullptr;
  const int64_t n = layout.shape()[1], steps = op.operands[0]->type.shape[1] / kStep;
  const bool is_fresh = codegen::is_zero(op.operands[2]), is_n_major = !codegen::is_transposed(op.operands[1]);
  const bool is_m_major = left && codegen::is_transposed(op.operands[0]);
  const auto moved = [&](Value* first, const Staged& tile, int64_t step) {  // along rows, and on to the next panel
    const int64_t byte = step * kStepBytes, panel = tile.layout.row_bytes();
    return e_.b.CreateAdd(first, e_.i64((byte / panel * tile.panel_stride() + byte % panel) / kUnit));
  };
  const auto down = [&](Value* first, const Staged& tile, int64_t step) {  // rows of k
    return e_.b.CreateAdd(first, e_.i64(step * kStep * tile.layout.row_bytes() / kUnit));
  };
  Value* b_first = descriptor(right, nullptr, is_n_major);
  for (int i = 0; i < layout.repeats()[0]; ++i) {
    Value* a_first = nullptr;
    if (left) {
      Value* row = e_.b.CreateAdd(e_.b.CreateMul(e_.warp_group(), e_.i32(kGroupRows)),
                                  e_.i32(int64_t{i} * layout.core_shape()[0]));
      if (is_m_major) row = e_.b.CreateMul(e_.b.CreateUDiv(row, e_.i32(kGroupRows)), e_.i32(left->rows));  // a panel
      a_first = descriptor(*left, row, is_m_major);
    }
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<Value*> a;
      if (left) a = {is_m_major ? down(a_first, *left, step) : moved(a_first, *left, step)};
      else a.assign(words.begin() + (i * steps + step) * 4, words.begin() + (i * steps + step + 1) * 4);
      Value* b = is_n_major ? down(b_first, right, step) : moved(b_first, right, step);
      const auto count = static_cast<size_t>(n / 2);
      hopper::multiply(e_, {op.operands[0]->type.dtype, n, is_fresh && step == 0, is_n_major, is_m_major}, a, b,
                       std::span(sums).subspan(static_cast<size_t>(i) * count, count));
    }
  }
}

void Program::lower_wgmma(const Op& op) {
  if (overlap_ && &op == overlap_->first) return lower_first(op);
  if (overlap_ && &op == overlap_->second) return lower_second(op);
  std::vector<Value*> sums = wgmma_sums(op);
  const std::vector<Value*> words = wgmma_words(op);
  await_operands(op);
  hopper::fence_wgmma(e_);
  issue_wgmma(op, words, *in_shared(codegen::stored_operand(op, 1)), sums);
  hopper::commit_wgmma(e_);
  hopper::wait_wgmma(e_, 0, sums, words);
  release_operands(op);
  hold(op.results[0], preferred(op.results[0]), std::move(sums));
}

}  // namespace seqtile::nvptx
