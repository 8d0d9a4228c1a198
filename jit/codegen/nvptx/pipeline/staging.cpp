// jit/codegen/nvptx/pipeline/staging.cpp -- operands of products in shared memory.
// SPDX-License-Identifier: Apache-2.0
//
// An operand lies in shared memory as the kernel loads it: a as rows of m, or as rows of k where it is the transpose of
// a tile; b as rows of k, or as rows of n where it is one. Both end in zeros up to whole instructions.
#include <algorithm>

#include "jit/base/cdiv.h"
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using llvm::Value;

Staged Program::staged_operand(const Op& dot, size_t operand) {
  const int64_t bytes = dtype_bytes(dot.operands[0]->type.dtype);
  const Coordinates covered = preferred(dot.results[0]).shape();
  const int64_t k = round_up(dot.operands[0]->type.shape[1], kMmaStepBytes / bytes);
  const int64_t other = operand == 0 ? covered[0] : round_up(covered[1], 16);
  const bool has_rows_of_k = codegen::is_transposed(dot.operands[operand]) == (operand == 0);
  if (!has_rows_of_k) return {SharedLayout(k * bytes), other, k, bytes};
  // Words in rows of k are read four rows and two chunks at a time, everything else by ldmatrix.
  return {SharedLayout(other * bytes, bytes == 4 ? 2 : 1), k, other, bytes};
}

const Staged* Program::in_shared(const ir::Value* tile) const {
  const auto found = in_shared_.find(tile);
  return found == in_shared_.end() ? nullptr : &found->second;
}

// Address of an element of a staged tile.
Value* Program::staged_pointer(const Staged& at, Value* row, Value* column) {
  Value* phase = e_.b.CreateShl(e_.b.CreateLShr(row, e_.i32(at.layout.row_shift())), e_.i32(at.layout.byte_shift()));
  phase = e_.b.CreateAnd(phase, e_.i32(at.layout.byte_mask()));
  Value* byte = e_.b.CreateMul(column, e_.i32(at.element_bytes));
  Value* panel = nullptr;
  if (at.num_panels() > 1) {
    panel = e_.b.CreateMul(e_.b.CreateUDiv(byte, e_.i32(at.layout.row_bytes())), e_.i32(at.panel_stride()));
    byte = e_.b.CreateURem(byte, e_.i32(at.layout.row_bytes()));
  }
  Value* offset = e_.b.CreateAdd(e_.b.CreateMul(row, e_.i32(at.layout.row_bytes())), e_.b.CreateXor(byte, phase));
  if (panel) offset = e_.b.CreateAdd(offset, panel);
  Value* base = at.is_reserved ? e_.reserved(at.first, at.slot) : e_.scratch(at.first + at.bytes());
  return e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), base,
                                at.is_reserved ? offset : e_.b.CreateAdd(offset, e_.i32(at.first)));
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

}  // namespace seqtile::nvptx
