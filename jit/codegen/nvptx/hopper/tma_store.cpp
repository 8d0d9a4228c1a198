// jit/codegen/nvptx/hopper/tma_store.cpp -- results leave a specialised kernel by TMA, while the next program is under
// way.
// SPDX-License-Identifier: Apache-2.0
//
// The tile goes to shared memory in panels (stmatrix), from where one thread has it copied. A tile that reaches beyond
// its view, or beyond a length in device memory, which the tensor map does not know, is written by the threads, as far
// as the tile is inside.
#include "jit/codegen/nvptx/hopper/hopper.h"
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using llvm::Value;

void Program::store_by_tma(const Op& op) {
  const ir::Value *view = op.operands[0], *tile = op.operands.back();
  const TmaTile& plan = tma_.stored;
  const Staged staged{SharedLayout(plan.panel_bytes), plan.rows, plan.columns, dtype_bytes(tile->type.dtype)};
  pull(tile);  // conversions on the way use the scratch memory too
  pin_loads_before(op);
  e_.sync_before_scratch();
  if (!store_matrices(tile, staged)) stage(tile, staged);
  hopper::fence_proxy(e_);
  e_.sync();
  order_access(op);
  Value* is_inside = nullptr;
  // A tensor map ends rows that have a known size; the plan takes whole rows only.
  for (size_t d = 0; d < (view->type.shape[1] == ir::kDynamic ? 2 : 1); ++d) {
    Value *first = scalars_.at(op.operands[1 + d]), *size = views_.at(view).sizes[d];
    Value* end = e_.b.CreateAdd(first, e_.i64(d == 0 ? plan.rows : plan.columns));
    is_inside = both(is_inside, both(e_.b.CreateICmpSGE(first, e_.i64(0)), e_.b.CreateICmpSLE(end, size)));
  }
  e_.if_then(both(is_inside, e_.b.CreateICmpEQ(e_.thread, e_.i32(0))), [&] { copy_out(op, staged); });
  e_.if_then(e_.b.CreateNot(is_inside), [&] { copy_out_inside(op, staged); });
}

// Pairs of groups of eight columns by stmatrix, where the tile is held as products leave it: lane i gives the address
// of row i % 8 of matrix i / 8, of which there are two below each other, twice.
bool Program::store_matrices(const ir::Value* tile, const Staged& to) {
  const LinearLayout layout = preferred(tile);
  const Coordinates repeats = layout.repeats();
  const bool is_product = layout == mma_layout(to.rows, to.columns, e_.num_warps, 1);
  if (!is_product || repeats[1] % 2 != 0 || layout.shape()[0] != to.rows) return false;
  const std::vector<Value*> words = e_.repacked(pull(tile, layout), e_.b.getInt32Ty(), layout.num_registers() / 2);
  Value* row = e_.b.CreateAdd(warp_share(layout, 0), e_.b.CreateAnd(e_.lane, e_.i32(15)));
  Value* column = e_.b.CreateMul(e_.b.CreateLShr(e_.lane, e_.i32(4)), e_.i32(8));
  for (int i = 0; i < repeats[0]; ++i)
    for (int j = 0; j < repeats[1]; j += 2) {
      Value* pointer = staged_pointer(to, e_.b.CreateAdd(row, e_.i32(int64_t{i} * layout.core_shape()[0])),
                                      e_.b.CreateAdd(column, e_.i32(int64_t{j} * 8)));
      const auto first = words.begin() + (int64_t{i} * repeats[1] + j) * 2;
      hopper::store_matrices(e_, e_.address_of(pointer), {first, first + 4});
    }
  return true;
}

// One thread's: a copy for every panel.
void Program::copy_out(const Op& op, const Staged& from) {
  MapPlace place = map_place(op.operands[0], tma_.stored);
  for (size_t d = 0; d < 2; ++d) {
    Value*& origin = place.origin[place.open[d]];
    origin = e_.b.CreateAdd(origin, scalars_.at(op.operands[1 + d]));
  }
  Value* base = e_.address_of(e_.scratch(from.bytes()));
  for (int64_t panel = 0; panel < from.num_panels(); ++panel) {
    std::vector<Value*> coordinates;  // innermost first
    for (size_t d = place.origin.size(); d-- > 0;)
      coordinates.push_back(e_.b.CreateTrunc(place.origin[d], e_.b.getInt32Ty()));
    hopper::store_box(e_, e_.b.CreateAdd(base, e_.i32(panel * from.panel_stride())), place.map, coordinates);
    Value*& column = place.origin[place.open[1]];
    column = e_.b.CreateAdd(column, e_.i64(from.layout.row_bytes() / from.element_bytes));
  }
  hopper::commit_stores(e_);
}

// All threads': what is inside of the view.
void Program::copy_out_inside(const Op& op, const Staged& from) {
  const ir::Type& tile = op.operands.back()->type;
  const Access access = access_of(op, tile, default_layout(tile));
  for_some_rows(tile, [&](const ir::Type& part, Value* first) {
    const LinearLayout layout = copy_layout(part);
    std::vector<Value*> moved = access.position;
    moved[0] = e_.b.CreateAdd(moved[0], e_.b.CreateSExt(first, e_.b.getInt64Ty()));
    for (int reg = 0; reg < layout.num_registers(); reg += access.width) {
      if (layout.representative(reg) != reg) continue;
      const Address at = address(op.operands[0], moved, part, layout, reg, access.width, access.is_checked);
      Value* row = e_.b.CreateAdd(coordinate(layout, reg, 0), first);
      Value* pointer = staged_pointer(from, row, coordinate(layout, reg, 1));
      Value* fits = both(at.inside, is_writer(layout));
      Value* zero = llvm::Constant::getNullValue(e_.type_of(tile.dtype));
      const auto values = e_.load(tile.dtype, pointer, access.width, fits, zero);
      e_.store(tile.dtype, at.pointer, values, fits);
    }
  });
}

}  // namespace seqtile::nvptx
