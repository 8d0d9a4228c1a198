// jit/codegen/nvptx/dot.cpp -- products of tiles: operands staged in shared memory, ldmatrix, mma.sync m16n8.
// SPDX-License-Identifier: Apache-2.0
//
// Operands lie in shared memory (staging.cpp), where loads of a pipelined loop or the product itself have put them. An
// operand a of 16-bit elements that the same warp has computed, as in the second product of attention, goes from
// register to register. One ldmatrix.x4 gives the fragment of a for 16 rows, and of b for two groups of 8 columns. For
// f32, ldmatrix moves words instead of pairs; the product is then the sum of three tf32 products of the operands' upper
// and lower halves (tf32x3), which is as good as f32, or on request the product of the upper halves alone.
#include <algorithm>

#include "jit/codegen/nvptx/program.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int kStepM = 16;  // rows of one instruction
}  // namespace

// Whether another product's operand a is computed from this one's result, or this one's from another's.
bool Program::is_chained(const Op& dot) const {
  return std::any_of(dot.parent->ops.begin(), dot.parent->ops.end(), [&](const Op* other) {
    return other != &dot && other->kind == OpKind::dot &&
           (codegen::follows_from(other->operands[0], dot.results[0]) ||
            codegen::follows_from(dot.operands[0], other->results[0]));
  });
}

LinearLayout Program::dot_layout(const Op& dot) const {
  const ir::Type& type = dot.results[0]->type;
  int warps_m = e_.num_warps, warps_n = 1;
  if (is_in_tma_loop(dot)) return mma_layout(type.shape[0], type.shape[1], warps_m, warps_n);
  while (warps_m > 1 && warps_m * kStepM > type.shape[0]) warps_m /= 2, warps_n *= 2;
  // Square pieces read the fewest operands; whole rows keep what one product hands to the next within a warp.
  while (warps_m > 1 && !is_chained(dot) && type.shape[0] / warps_m * 2 <= type.shape[1] / warps_n)
    warps_m /= 2, warps_n *= 2;
  return mma_layout(type.shape[0], type.shape[1], warps_m, warps_n);
}

// Four matrices of eight rows of 16 bytes: lane i gives the row and chunk of row i % 8 of matrix i / 8.
std::vector<Value*> Program::load_matrices(const Staged& from, Value* row, Value* chunk, bool is_transposed) {
  Value* pointer = staged_pointer(from, row, e_.b.CreateMul(chunk, e_.i32(16 / from.element_bytes)));
  const auto id = is_transposed ? llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                                : llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16;
  Value* all = e_.b.CreateIntrinsic(id, {pointer->getType()}, {pointer});
  std::vector<Value*> words;
  for (unsigned i = 0; i < 4; ++i) words.push_back(e_.b.CreateExtractValue(all, i));
  return words;
}

namespace {

/// Upper and lower tf32 half of f32 bits.
std::pair<Value*, Value*> tf32_halves(Emitter& e, Value* bits) {
  Value* whole = e.b.CreateBitCast(bits, e.b.getFloatTy());
  Value* upper = e.b.CreateIntrinsic(llvm::Intrinsic::nvvm_f2tf32_rna, {}, {whole});
  Value* rest = e.b.CreateFSub(whole, e.b.CreateBitCast(upper, e.b.getFloatTy()));
  return {upper, e.b.CreateIntrinsic(llvm::Intrinsic::nvvm_f2tf32_rna, {}, {rest})};
}

}  // namespace

void Program::multiply_once(DType dtype, const std::vector<Value*>& words, Value** sums) {
  const bool is_half = dtype == DType::f16;
  llvm::Type* pair = llvm::FixedVectorType::get(e_.b.getHalfTy(), 2);
  std::vector<Value*> operands;
  for (Value* word : words) operands.push_back(is_half ? e_.b.CreateBitCast(word, pair) : word);
  operands.insert(operands.end(), sums, sums + 4);
  const auto id = is_half                ? llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32
                  : dtype == DType::bf16 ? llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16
                                         : llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_tf32;
  Value* result = e_.b.CreateIntrinsic(id, {}, operands);
  for (unsigned i = 0; i < 4; ++i) sums[i] = e_.b.CreateExtractValue(result, i);
}

// sums += a b for one instruction's 16 x 8 results; a has four words, b two.
void Program::multiply(const Op& dot, const std::vector<Value*>& a, const std::vector<Value*>& b, Value** sums) {
  std::vector<Value*> words = a;
  words.insert(words.end(), b.begin(), b.end());
  const DType dtype = dot.operands[0]->type.dtype;
  if (dtype != DType::f32) return multiply_once(dtype, words, sums);
  std::vector<Value*> upper, lower;
  for (Value* word : words) {
    const auto [hi, lo] = tf32_halves(e_, word);
    upper.push_back(hi), lower.push_back(lo);
  }
  if (dot.string_attr("precision") == "tf32") return multiply_once(dtype, upper, sums);
  // Tensor cores cut sums off instead of rounding them, and the loss adds up over k. Each instruction's sum therefore
  // starts at 0, the small products first, and an addition of f32 joins it to the rest.
  std::vector<Value*> part(4, llvm::ConstantFP::get(e_.b.getFloatTy(), 0.0));
  multiply_once(dtype, {lower[0], lower[1], lower[2], lower[3], upper[4], upper[5]}, part.data());
  multiply_once(dtype, {upper[0], upper[1], upper[2], upper[3], lower[4], lower[5]}, part.data());
  multiply_once(dtype, upper, part.data());
  for (size_t i = 0; i < part.size(); ++i) sums[i] = e_.b.CreateFAdd(sums[i], part[i]);
}

// The words of a that lies as rows of k, for 16 of its columns from `first` on.
std::vector<Value*> Program::load_turned_rows(const Staged& left, Value* first, int64_t k) {
  if (left.element_bytes == 2) {  // the second matrix is of the next eight columns, the third of the next eight of k
    Value* row = e_.b.CreateOr(e_.b.CreateAnd(e_.lane, e_.i32(7)),
                               e_.b.CreateAnd(e_.b.CreateLShr(e_.lane, e_.i32(1)), e_.i32(8)));
    Value* column = e_.b.CreateAdd(first, e_.b.CreateAnd(e_.lane, e_.i32(8)));
    return load_matrices(left, e_.b.CreateAdd(row, e_.i32(k)), e_.b.CreateLShr(column, e_.i32(3)), true);
  }
  std::vector<Value*> words;
  Value *row = e_.b.CreateAnd(e_.lane, e_.i32(3)), *column = e_.b.CreateAdd(first, e_.b.CreateLShr(e_.lane, e_.i32(2)));
  for (const int64_t half : {0, 4})
    for (const int64_t which : {0, 8}) {
      Value* at = staged_pointer(left, e_.b.CreateAdd(row, e_.i32(k + half)), e_.b.CreateAdd(column, e_.i32(which)));
      words.push_back(e_.load(DType::i32, at, 1, nullptr, nullptr)[0]);
    }
  return words;
}

// The words of b for columns `group` and, four words in all, those of the upper lanes' group.
std::vector<Value*> Program::load_columns(const Staged& right, bool by_columns, Value* first, int64_t step, int64_t k) {
  Value *low = e_.b.CreateAnd(e_.lane, e_.i32(15)), *high = e_.b.CreateLShr(e_.lane, e_.i32(4));
  Value* group = e_.b.CreateAdd(first, e_.b.CreateMul(high, e_.i32(step)));
  if (by_columns) {
    Value* row = e_.b.CreateAdd(group, e_.b.CreateAnd(e_.lane, e_.i32(7)));
    Value* half = e_.b.CreateAnd(e_.b.CreateLShr(e_.lane, e_.i32(3)), e_.i32(1));
    return load_matrices(right, row, e_.b.CreateAdd(half, e_.i32(k * right.element_bytes / 16)), false);
  }
  if (right.element_bytes == 2)
    return load_matrices(right, e_.b.CreateAdd(low, e_.i32(k)), e_.b.CreateLShr(group, e_.i32(3)), true);
  // Words cannot be transposed on the way: each lane fetches its own.
  std::vector<Value*> words;
  Value *row = e_.b.CreateAnd(e_.lane, e_.i32(3)), *column = e_.b.CreateLShr(e_.lane, e_.i32(2));
  for (const int64_t which : {int64_t{0}, step})
    for (const int64_t half : {0, 4}) {
      Value* at = staged_pointer(right, e_.b.CreateAdd(row, e_.i32(k + half)),
                                 e_.b.CreateAdd(e_.b.CreateAdd(first, column), e_.i32(which)));
      words.push_back(e_.load(DType::i32, at, 1, nullptr, nullptr)[0]);
    }
  return words;
}

// The words of a for `rows` = repetition i and step kk that the warp holds itself.
std::vector<Value*> Program::packed_fragment(const LinearLayout& layout, const std::vector<Value*>& values, int i,
                                             int64_t step) {
  constexpr int kValues = 8;
  const auto first = values.begin() + (int64_t{i} * layout.repeats()[1] + step) * kValues;
  return e_.repacked({first, first + kValues}, e_.b.getInt32Ty(), kValues / 2);
}

// Operands that are not where the instructions take them from are staged in the scratch memory.
Program::DotOperands Program::prepare_operands(const Op& op, const LinearLayout& layout) {
  const ir::Value *a = codegen::stored_operand(op, 0), *b = codegen::stored_operand(op, 1);
  DotOperands operands{staged_operand(op, 0), staged_operand(op, 1), {}, {}};
  const int64_t step_k = kMmaStepBytes / dtype_bytes(a->type.dtype);
  if (const Staged* ready = in_shared(a)) operands.left = *ready;
  else if (a == op.operands[0] && is_chained(op) && dtype_bytes(a->type.dtype) == 2 && a->type.shape[1] % step_k == 0 &&
           layout.core_shape()[0] == e_.num_warps * kStepM) {
    operands.fragment_layout = mma_operand_layout(a->type.shape[0], a->type.shape[1], e_.num_warps, 1);
    operands.fragments = pull(a, operands.fragment_layout);
  }
  if (const Staged* ready = in_shared(b)) operands.right = *ready;
  const bool stages_left = operands.fragments.empty() && !in_shared(a), stages_right = !in_shared(b);
  if (!stages_left && !stages_right) return operands;
  if (stages_left) pull(a);  // conversions on the way use the scratch memory too
  if (stages_right) pull(b);
  e_.sync_before_scratch();
  if (stages_left && stages_right) operands.right.first = (operands.left.bytes() + 127) / 128 * 128;
  if (stages_left) stage(a, operands.left);
  if (stages_right) stage(b, operands.right);
  e_.sync();
  return operands;
}

void Program::lower_dot(const Op& op) {
  if (is_in_tma_loop(op)) return lower_wgmma(op);
  const ir::Value* result = op.results[0];
  const DType dtype = op.operands[0]->type.dtype;
  const int64_t bytes = dtype_bytes(dtype), step_k = kMmaStepBytes / bytes;
  if (!is_float(dtype) || bytes > 4) fail(op, "of " + std::string(dtype_name(dtype)) + " has no lowering");
  const LinearLayout layout = preferred(result);
  const Coordinates core = layout.core_shape(), repeats = layout.repeats();
  const bool by_rows = !codegen::is_transposed(op.operands[0]), by_columns = codegen::is_transposed(op.operands[1]);
  std::vector<Value*> sums = pull(op.operands[2], layout);
  const DotOperands operands = prepare_operands(op, layout);

  Value *warp_row = warp_share(layout, 0), *warp_column = warp_share(layout, 1);
  Value* row_in_block = e_.b.CreateAdd(warp_row, e_.b.CreateAnd(e_.lane, e_.i32(15)));
  Value* half = e_.b.CreateLShr(e_.lane, e_.i32(4));
  const auto load_rows = [&](int i, int64_t kk) {
    if (!operands.fragments.empty())
      return packed_fragment(operands.fragment_layout, operands.fragments, i, kk / step_k);
    if (!by_rows) return load_turned_rows(operands.left, e_.b.CreateAdd(warp_row, e_.i32(int64_t{i} * core[0])), kk);
    Value* row = e_.b.CreateAdd(row_in_block, e_.i32(int64_t{i} * core[0]));
    return load_matrices(operands.left, row, e_.b.CreateAdd(half, e_.i32(kk * bytes / 16)), false);
  };
  for (int64_t kk = 0; kk < (by_rows ? operands.left.columns : operands.left.rows); kk += step_k) {
    std::vector<std::vector<Value*>> columns;
    for (int j = 0; j < repeats[1]; j += 2) {
      // The second group of the pair is one repetition on; past the end it repeats the first.
      const int64_t step = j + 1 < repeats[1] ? core[1] : 0;
      const auto words =
          load_columns(operands.right, by_columns, e_.b.CreateAdd(warp_column, e_.i32(int64_t{j} * core[1])), step, kk);
      columns.push_back({words[0], words[1]});
      columns.push_back({words[2], words[3]});
    }
    for (int i = 0; i < repeats[0]; ++i) {
      const auto rows = load_rows(i, kk);
      for (int j = 0; j < repeats[1]; ++j)
        multiply(op, rows, columns[static_cast<size_t>(j)], &sums[static_cast<size_t>((i * repeats[1] + j) * 4)]);
    }
  }
  hold(result, layout, std::move(sums));
}

// The warp's part of thread_share().
Value* Program::warp_share(const LinearLayout& layout, int axis) {
  Value* share = e_.i32(0);
  const auto bases = layout.bases(LinearLayout::warps);
  for (size_t bit = 0; bit < bases.size(); ++bit) {
    if (bases[bit][axis] == 0) continue;
    Value* digit = e_.b.CreateAnd(e_.b.CreateLShr(e_.warp, e_.i32(static_cast<int64_t>(bit))), e_.i32(1));
    share = e_.b.CreateAdd(share, e_.b.CreateMul(digit, e_.i32(bases[bit][axis])));
  }
  return share;
}

}  // namespace seqtile::nvptx
