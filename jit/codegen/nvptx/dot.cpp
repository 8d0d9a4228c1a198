// jit/codegen/nvptx/dot.cpp -- products of tiles: operands staged in shared memory, ldmatrix, mma.sync m16n8.
// SPDX-License-Identifier: Apache-2.0
//
// a lies in shared memory as rows of m, b as rows of n where it is the transpose of a tile (its k are neighbours then)
// and as rows of k otherwise; both end in zeros up to whole instructions. One ldmatrix.x4 gives the fragment of a for
// 16 rows, and of b for two groups of 8 columns. Of f32 it moves words instead of pairs; the product is then the sum of
// three tf32 products of the operands' upper and lower halves (tf32x3), which is as good as f32.
#include <algorithm>

#include "jit/codegen/nvptx/program.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int kStepM = 16;          // rows of one instruction
constexpr int64_t kStepBytes = 32;  // of k in one instruction: two 16-byte chunks

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

bool is_transposed(const ir::Value* tile) {
  if (!tile->def || tile->def->kind != OpKind::trans) return false;
  return std::get<std::vector<int64_t>>(tile->def->attributes.at("perm")) == std::vector<int64_t>{1, 0};
}

}  // namespace

/// A tile in shared memory.
struct Program::Staged {
  SharedLayout layout;
  int64_t rows, columns;  ///< with the zeros
  int64_t element_bytes;
  int64_t first = 0;  ///< byte of the shared memory
  int64_t bytes() const { return rows * layout.row_bytes(); }
};

LinearLayout Program::dot_layout(const ir::Type& type) const {
  int warps_m = e_.num_warps, warps_n = 1;
  while (warps_m > 1 && warps_m * kStepM > type.shape[0]) warps_m /= 2, warps_n *= 2;
  // Square pieces read the fewest operands.
  while (warps_m > 1 && type.shape[0] / warps_m * 2 <= type.shape[1] / warps_n) warps_m /= 2, warps_n *= 2;
  return mma_layout(type.shape[0], type.shape[1], warps_m, warps_n);
}

// Address of an element of a staged tile.
Value* Program::staged_pointer(const Staged& at, Value* row, Value* column) {
  Value* phase = e_.b.CreateShl(e_.b.CreateLShr(row, e_.i32(at.layout.row_shift())), e_.i32(at.layout.byte_shift()));
  phase = e_.b.CreateAnd(phase, e_.i32(at.layout.byte_mask()));
  Value* byte = e_.b.CreateXor(e_.b.CreateMul(column, e_.i32(at.element_bytes)), phase);
  Value* offset = e_.b.CreateAdd(e_.b.CreateMul(row, e_.i32(at.layout.row_bytes())), byte);
  return e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), e_.scratch(at.first + at.bytes()),
                                e_.b.CreateAdd(offset, e_.i32(at.first)));
}

// Writes a tile and the zeros around it.
void Program::stage(const ir::Value* tile, const Staged& to) {
  const LinearLayout layout = preferred(tile);
  const std::vector<Value*> values = pull(tile, layout);
  const int width = std::min(layout.widest_vector(1), static_cast<int>(16 / to.element_bytes));
  const Coordinates covered = layout.shape();
  Value* zero = llvm::Constant::getNullValue(e_.type_of(tile->type.dtype));
  for (int reg = 0; reg < layout.num_registers(); reg += width) {
    if (layout.representative(reg) != reg) continue;
    std::vector<Value*> written(values.begin() + reg, values.begin() + reg + width);
    for (int i = 0; i < width; ++i)
      if (Value* inside = is_inside(layout, tile->type, reg + i))
        written[static_cast<size_t>(i)] = e_.b.CreateSelect(inside, written[static_cast<size_t>(i)], zero);
    Value *row = coordinate(layout, reg, 0), *column = coordinate(layout, reg, 1);
    // A layout may cover more than the staged tile.
    Value* fits = is_writer(layout);
    if (covered[0] > to.rows) fits = both(fits, e_.b.CreateICmpSLT(row, e_.i32(to.rows)));
    if (covered[1] > to.columns) fits = both(fits, e_.b.CreateICmpSLT(column, e_.i32(to.columns)));
    e_.store(tile->type.dtype, staged_pointer(to, row, column), written, fits);
  }
  zero_beyond(to, tile->type.dtype, std::min<int64_t>(covered[0], to.rows), std::min<int64_t>(covered[1], to.columns));
}

// The rows and columns of a staged tile that its layout does not reach, an element at a time: there are few.
void Program::zero_beyond(const Staged& to, DType dtype, int64_t rows, int64_t columns) {
  const int64_t threads = int64_t{e_.num_warps} * kLanes;
  Value* zero = llvm::Constant::getNullValue(e_.type_of(dtype));
  const auto clear = [&](int64_t first_row, int64_t count_rows, int64_t first_column, int64_t count_columns) {
    const int64_t elements = count_rows * count_columns;
    for (int64_t first = 0; first < elements; first += threads) {
      Value* index = e_.b.CreateAdd(e_.thread, e_.i32(first));
      Value* fits = first + threads <= elements ? nullptr : e_.b.CreateICmpSLT(index, e_.i32(elements));
      Value* row = e_.b.CreateAdd(e_.b.CreateUDiv(index, e_.i32(count_columns)), e_.i32(first_row));
      Value* column = e_.b.CreateAdd(e_.b.CreateURem(index, e_.i32(count_columns)), e_.i32(first_column));
      e_.store(dtype, staged_pointer(to, row, column), {zero}, fits);
    }
  };
  if (columns < to.columns) clear(0, rows, columns, to.columns - columns);
  if (rows < to.rows) clear(rows, to.rows - rows, 0, to.columns);
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
void Program::multiply(DType dtype, const std::vector<Value*>& a, const std::vector<Value*>& b, Value** sums) {
  std::vector<Value*> words = a;
  words.insert(words.end(), b.begin(), b.end());
  if (dtype != DType::f32) return multiply_once(dtype, words, sums);
  std::vector<Value*> upper, lower;
  for (Value* word : words) {
    const auto [hi, lo] = tf32_halves(e_, word);
    upper.push_back(hi), lower.push_back(lo);
  }
  // The small products first.
  multiply_once(dtype, {lower[0], lower[1], lower[2], lower[3], upper[4], upper[5]}, sums);
  multiply_once(dtype, {upper[0], upper[1], upper[2], upper[3], lower[4], lower[5]}, sums);
  multiply_once(dtype, upper, sums);
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

void Program::lower_dot(const Op& op) {
  const ir::Value *a = op.operands[0], *b = op.operands[1], *c = op.operands[2], *result = op.results[0];
  const DType dtype = a->type.dtype;
  const int64_t bytes = dtype_bytes(dtype), step_k = kStepBytes / bytes;
  if (!is_float(dtype) || bytes > 4) fail(op, "of " + std::string(dtype_name(dtype)) + " has no lowering");
  const LinearLayout layout = preferred(result);
  const Coordinates core = layout.core_shape(), repeats = layout.repeats();
  const int64_t k = round_up(a->type.shape[1], step_k), m = layout.shape()[0], n = round_up(layout.shape()[1], 16);
  const bool by_columns = is_transposed(b);
  const ir::Value* source = by_columns ? b->def->operands[0] : b;
  const Staged left{SharedLayout(k * bytes), m, k, bytes};
  // Words of b in rows of k are read four rows and two chunks at a time, everything else by ldmatrix.
  const int chunks = bytes == 4 && !by_columns ? 2 : 1;
  Staged right{SharedLayout((by_columns ? k : n) * bytes, chunks), by_columns ? n : k, by_columns ? k : n, bytes};
  right.first = round_up(left.bytes(), 128);

  std::vector<Value*> sums = pull(c, layout);
  pull(a), pull(source);  // conversions on the way use the scratch memory too
  e_.sync();
  stage(a, left), stage(source, right);
  e_.sync();

  Value *warp_row = warp_share(layout, 0), *warp_column = warp_share(layout, 1);
  Value* row_in_block = e_.b.CreateAdd(warp_row, e_.b.CreateAnd(e_.lane, e_.i32(15)));
  Value* half = e_.b.CreateLShr(e_.lane, e_.i32(4));
  for (int64_t kk = 0; kk < k; kk += step_k) {
    std::vector<std::vector<Value*>> columns;
    for (int j = 0; j < repeats[1]; j += 2) {
      // The second group of the pair is one repetition on; past the end it repeats the first.
      const int64_t step = j + 1 < repeats[1] ? core[1] : 0;
      const auto words =
          load_columns(right, by_columns, e_.b.CreateAdd(warp_column, e_.i32(int64_t{j} * core[1])), step, kk);
      columns.push_back({words[0], words[1]});
      columns.push_back({words[2], words[3]});
    }
    for (int i = 0; i < repeats[0]; ++i) {
      Value* row = e_.b.CreateAdd(row_in_block, e_.i32(int64_t{i} * core[0]));
      const auto rows = load_matrices(left, row, e_.b.CreateAdd(half, e_.i32(kk * bytes / 16)), false);
      for (int j = 0; j < repeats[1]; ++j)
        multiply(dtype, rows, columns[static_cast<size_t>(j)], &sums[static_cast<size_t>((i * repeats[1] + j) * 4)]);
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
