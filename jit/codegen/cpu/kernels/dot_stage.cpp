// jit/codegen/cpu/kernels/dot_stage.cpp -- products of tiles that are already on the chip (attention's two).
// SPDX-License-Identifier: Apache-2.0
//
// The left operand is written, in compute type, by the same pass over the rows that computes it (the exponentials of
// attention are stored and summed in one pass); the right one is packed into panels; the accumulator stays in the arena
// and is updated in place when it is carried by a loop. A product with few rows reads a transposed right operand where
// it lies.
#include <algorithm>

#include "jit/analysis/streams.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int64_t kRowPadding = 16;        // register kernels write no more rows beyond the last one
constexpr int64_t kMaxVectors = 4;         // nor more vectors of columns
constexpr int64_t kMaxRowProductRows = 4;  // up to here packing the right operand costs more than it saves

// Register kernels write up to kMaxVectors vectors at a time: a row has room for the rest of the last panel.
int64_t product_stride(int64_t columns, int64_t lanes) { return round_up(columns, lanes) + (kMaxVectors - 1) * lanes; }

// The load behind trans(load(view [n, k])), or null.
const Op* transposed_load(const ir::Value* b) {
  const Op* trans = b->def;
  if (!trans || trans->kind != OpKind::trans || b->type.rank != 2) return nullptr;
  const Op* load = trans->operands[0]->def;
  if (!load || load->kind != OpKind::load || load->float_attr("fill") != 0) return nullptr;
  return load->operands[0]->type.contiguous && load->operands[0]->type.dtype != DType::f64 ? load : nullptr;
}

struct Shape {
  int mr, nv;
  bool in_matrix_registers = false;
};

// Two by two registers of sums, or one row of up to three where the second one would have no row.
Shape matrix_shape(int64_t rows, int64_t vectors) {
  static_assert(kMatrixRows <= kRowPadding);
  const bool is_high = round_up(rows, 2 * kMatrixRows) - rows < kMatrixRows;
  const int64_t most = is_high ? 2 : 3;
  return {(is_high ? 2 : 1) * kMatrixRows, static_cast<int>(cdiv(vectors, cdiv(vectors, most))), true};
}

// Rows and vectors of the register kernel: least work wasted at the edges, then most accumulators.
Shape choose_shape(int64_t rows, int64_t vectors, int64_t registers) {
  Shape best{1, 1};
  double best_cost = 1e30;
  for (int nv = 1; nv <= std::min<int64_t>(kMaxVectors, vectors); ++nv)
    for (int mr = 1; mr <= std::min<int64_t>(kRowPadding, rows); ++mr) {
      if (mr * nv + nv + 1 > registers) continue;
      const double work = static_cast<double>(round_up(rows, mr) * round_up(vectors, nv));
      const double loads = std::max(1.0, static_cast<double>(mr + nv) / (mr * nv));
      const double latency = std::max(1.0, 8.0 / (mr * nv));
      const double cost = work * loads * latency * (1 + 0.5 / (mr * nv));
      if (cost < best_cost) best = {mr, nv}, best_cost = cost;
    }
  return best;
}

}  // namespace

DType Program::compute_dtype(const ir::Value* a, const ir::Value* b, int64_t k) const {
  const bool pairs =
      e_.target.has_bf16_dot && a->type.dtype == DType::bf16 && b->type.dtype == DType::bf16 && k % 2 == 0;
  return pairs ? DType::bf16 : DType::f32;
}

Buffer Program::product_buffer(const ir::Type& type) {
  const int64_t stride = product_stride(type.shape[1], e_.lanes);
  return {e_.reserve((type.shape[0] + kRowPadding) * stride * 4), DType::f32, {stride, 1}};
}

Buffer Program::packed_rows(const ir::Value* a, DType compute) {
  const int64_t stride = round_up(a->type.shape[1], vector_elements(e_, compute)) + vector_elements(e_, compute);
  return {e_.reserve((a->type.shape[0] + kRowPadding) * stride * dtype_bytes(compute)), compute, {stride, 1}};
}

// The carried tile that `op` accumulates into: op's result is yielded at that place, and the old value has no other use
// than the (element-wise) initial value of the product.
const ir::Value* Program::accumulates_in_place(const Op& op) const {
  const ir::Block* body = op.parent;
  const ir::Value* result = op.results[0];
  if (!body->parent || body->parent->kind != OpKind::for_loop) return nullptr;
  const auto& yielded = body->yielded();
  const auto at = std::find(yielded.begin(), yielded.end(), result);
  if (at == yielded.end() || users_.at(result).size() != 1) return nullptr;
  const ir::Value* carried = body->arguments[static_cast<size_t>(at - yielded.begin()) + 1];
  const ir::Value* value = op.operands[2];
  const Op* user = &op;
  while (value != carried) {  // walk down the chain of element-wise operations that ends in the carried tile
    if (!value->def || users_.at(value).size() != 1 || value->def->info().group != ir::OpGroup::binary) return nullptr;
    user = value->def;
    value = user->operands[0]->type.is_tile() && (user->operands[0] == carried || user->operands[0]->def) &&
                    user->operands[0]->type == result->type &&
                    (user->operands[0] == carried || user->operands[0]->def->info().group == ir::OpGroup::binary)
                ? user->operands[0]
                : user->operands[1];
    if (value->type != result->type) return nullptr;
    if (value == carried) break;
  }
  const auto& users = users_.at(carried);
  return users.size() == 1 && users[0] == user ? carried : nullptr;
}

// Values that a loop does not change are computed once, before it: left operands of products are packed, and tiles with
// transcendental functions (the angles of rotary embeddings) are written to the arena.
void Program::hoist_operands(const ir::Block& body) {
  for (const Op* op : body.ops) {
    for (const ir::Block* region : op->regions) hoist_operands(*region);
    if (op->kind != OpKind::dot) {
      for (const ir::Value* operand : op->operands) hoist_costly(operand);
      continue;
    }
    const ir::Value* a = op->operands[0];
    if (!is_visible(a) || (!a->def && !buffers_.count(a))) continue;
    const DType compute = compute_dtype(a, op->operands[1], a->type.shape[1]);
    if (packed_.count({a, compute})) continue;
    const Buffer rows = packed_rows(a, compute);
    copy_to(a, rows);
    packed_[{a, compute}] = rows;
  }
}

void Program::hoist_costly(const ir::Value* tile) {
  if (!tile->type.is_tile() || !is_visible(tile) || !tile->def || buffers_.count(tile) || !is_costly(tile)) return;
  const Buffer buffer = reserve_tile(tile->type);
  copy_to(tile, buffer);
  buffers_[tile] = buffer;
}

// True when evaluating the tile calls a transcendental function.
bool Program::is_costly(const ir::Value* tile) const {
  if (!tile->type.is_tile() || !tile->def || buffers_.count(tile)) return false;
  const Op& op = *tile->def;
  const auto group = op.info().group;
  if (group != ir::OpGroup::unary && group != ir::OpGroup::binary && group != ir::OpGroup::shape) return false;
  if (op.kind >= OpKind::exp2 && op.kind <= OpKind::cos && op.kind != OpKind::sqrt && op.kind != OpKind::rcp)
    return true;
  return std::any_of(op.operands.begin(), op.operands.end(), [&](const ir::Value* v) { return is_costly(v); });
}

void Program::lower_dot(const Op& op) {
  const ir::Value *a = op.operands[0], *b = op.operands[1], *c = op.operands[2], *result = op.results[0];
  if (a->type.dtype == DType::f64 || b->type.dtype == DType::f64) fail(op, "has no lowering for f64 on the CPU");
  const int64_t m = a->type.shape[0], k = a->type.shape[1], n = b->type.shape[1];
  const DType compute = compute_dtype(a, b, k);

  const bool from_zero = codegen::is_zero(c);
  const ir::Value* carried = accumulates_in_place(op);
  const auto home = carried ? buffers_.find(carried) : buffers_.end();
  const bool in_place = home != buffers_.end() && product_strides(home->second, result->type);
  const Buffer out = in_place ? home->second : product_buffer(result->type);
  if (!from_zero && !(in_place && c == carried)) {
    Root root{Root::Kind::materialise, nullptr, c, out, 0};
    root.in_place = in_place, root.is_private = true;
    add_root(root);
  }
  const auto packed = packed_.find({a, compute});
  const Buffer rows = packed != packed_.end() ? packed->second : packed_rows(a, compute);
  if (packed == packed_.end()) {
    Root root{Root::Kind::materialise, nullptr, a, rows, 0};
    root.is_private = true;
    add_root(root);
  }
  flush();

  const Op* load = transposed_load(b);
  const bool has_whole_rows = load && in_range(load->operands[2], k, load->operands[0]->type.shape[1]);
  if (has_whole_rows && m <= kMaxRowProductRows && k % vector_elements(e_, compute) == 0) {
    row_product(op, *load, rows, out, !from_zero);
  } else {
    const int64_t vectors = round_up(n, e_.lanes) / e_.lanes;
    const bool in_matrix_registers = e_.target.has_matrix_registers && compute == DType::bf16 && m >= kMatrixRows / 2 &&
                                     k % vector_elements(e_, compute) == 0;
    const Shape shape = in_matrix_registers ? matrix_shape(m, vectors) : choose_shape(m, vectors, target_registers());
    const int64_t units = elements_per_unit(compute), steps = (k + units - 1) / units;
    Panels panels{0, round_up(steps, 4) * shape.nv * e_.lanes * 4, shape.nv};  // transposed four steps at a time
    panels.offset = e_.reserve(round_up(vectors, shape.nv) / shape.nv * panels.panel_bytes);
    if (load) pack_panels_transposed(*load, compute, panels);
    else pack_panels(b, compute, panels);
    OuterKernel kernel{shape.mr, shape.nv, 1, rows.strides[0] / units, out.strides[0], 0, compute};
    kernel.in_matrix_registers = shape.in_matrix_registers;
    llvm::Function* fn = outer_kernel(kernel);
    Value* count = limit(result, 0).count;
    const int64_t columns = int64_t{shape.nv} * e_.lanes;
    e_.loop(e_.i64(0), e_.i64(round_up(n, columns)), columns, [&](Value* j) {
      Value* panel = e_.b.CreateMul(e_.b.CreateUDiv(j, e_.i64(columns)), e_.i64(panels.panel_bytes));
      Value* b_panel = e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), e_.arena_ptr(panels.offset), panel);
      e_.loop(e_.i64(0), count, shape.mr, [&](Value* i) {
        Value* left = e_.element_ptr(e_.arena_ptr(rows.offset), e_.b.CreateMul(i, e_.i64(rows.strides[0])), compute);
        Value* at = e_.b.CreateAdd(e_.b.CreateMul(i, e_.i64(out.strides[0])), j);
        Value* address = e_.element_ptr(e_.arena_ptr(out.offset), at, DType::f32);
        e_.b.CreateCall(fn, {left, e_.i64(0), b_panel, address, e_.i64(steps), e_.b.getInt1(!from_zero)});
      });
    });
  }
  buffers_[result] = out;
}

// A buffer that register kernels may run over: padded rows and columns.
bool Program::product_strides(const Buffer& buffer, const ir::Type& type) const {
  return buffer.strides.size() == 2 && buffer.dtype == DType::f32 && buffer.strides[1] == 1 &&
         buffer.strides[0] == product_stride(type.shape[1], e_.lanes);
}

// Panels of b [k, n] from any expression, a row (or a pair of rows) of k at a time.
void Program::pack_panels(const ir::Value* b, DType compute, const Panels& panels) {
  const int64_t k = b->type.shape[0], n = b->type.shape[1], units = elements_per_unit(compute);
  const int64_t columns = int64_t{panels.nv} * e_.lanes, step_bytes = columns * 4;
  const bool has_end = is_limited(b, 1) || n % e_.lanes;
  Value* end = limit(b, 1).count;  // columns beyond it may not exist in memory
  hoist_block_ = nullptr;
  e_.loop(e_.i64(0), e_.i64(k), units, [&](Value* row) {
    row_memo_.clear();
    Value* odd_row = e_.b.CreateAdd(row, e_.i64(1));
    start_hoist_block();
    e_.loop(e_.i64(0), end, e_.lanes, [&](Value* j) {
      memo_.clear();
      const auto vector = [&](Value* r) {
        Index index{e_.lanes, {{r}, {j, e_.lanes > 1}}, nullptr};
        if (has_end) index.mask = e_.lanes_below(e_.b.CreateSub(end, j), e_.lanes);
        return e_.splat(eval(b, index), e_.lanes);
      };
      Value* value =
          units == 1 ? e_.convert(vector(row), b->type.dtype, DType::f32) : interleave(vector(row), vector(odd_row));
      Value* panel = e_.b.CreateMul(e_.b.CreateUDiv(j, e_.i64(columns)), e_.i64(panels.panel_bytes));
      Value* step = e_.b.CreateMul(e_.b.CreateUDiv(row, e_.i64(units)), e_.i64(step_bytes));
      Value* column = e_.b.CreateMul(e_.b.CreateURem(j, e_.i64(columns)), e_.i64(4));
      Value* at = e_.b.CreateAdd(e_.b.CreateAdd(panel, step), column);
      e_.b.CreateAlignedStore(value, e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), e_.arena_ptr(panels.offset), at),
                              llvm::Align(4));
    });
  });
  hoist_block_ = nullptr;
  row_memo_.clear(), memo_.clear();
}

// Panels of b = trans(load(view [n, k])): blocks of rows of the view are transposed.
void Program::pack_panels_transposed(const Op& load, DType compute, const Panels& panels) {
  const ir::Value *view = load.operands[0], *tile = load.results[0];
  const ViewRef& ref = views_.at(view);
  const int64_t n = tile->type.shape[0], k = tile->type.shape[1];
  const int64_t columns = int64_t{panels.nv} * e_.lanes, step_bytes = columns * 4;
  const int width = vector_elements(e_, compute);
  Value *first = scalars_.at(load.operands[1]), *first_k = scalars_.at(load.operands[2]);
  const bool k_inside = in_range(load.operands[2], k, view->type.shape[1]);
  Value* last = in_range(load.operands[1], n, view->type.shape[0]) && n % e_.lanes == 0
                    ? nullptr
                    : e_.min_i64(e_.b.CreateSub(ref.sizes[0], e_.i64(1)), e_.b.CreateAdd(first, e_.i64(n - 1)));
  Value* k_end =
      k_inside ? e_.i64(k) : e_.max_i64(e_.i64(0), e_.min_i64(e_.i64(k), e_.b.CreateSub(ref.sizes[1], first_k)));
  Value* base = e_.element_ptr(ref.base, first_k, view->type.dtype);
  Value* stride_bytes = e_.b.CreateMul(ref.strides[0], e_.i64(dtype_bytes(view->type.dtype)));
  llvm::Function* fn = transpose_kernel({view->type.dtype, compute, last != nullptr, !k_inside || k % width != 0});
  e_.loop(e_.i64(0), e_.i64(round_up(n, e_.lanes)), e_.lanes, [&](Value* j) {
    Value* panel = e_.b.CreateMul(e_.b.CreateUDiv(j, e_.i64(columns)), e_.i64(panels.panel_bytes));
    Value* column = e_.b.CreateMul(e_.b.CreateURem(j, e_.i64(columns)), e_.i64(4));
    Value* target =
        e_.b.CreateInBoundsGEP(e_.b.getInt8Ty(), e_.arena_ptr(panels.offset), e_.b.CreateAdd(panel, column));
    Value* row = e_.b.CreateAdd(first, j);
    Value* source = e_.element_ptr(base, e_.b.CreateMul(row, ref.strides[0]), view->type.dtype);
    Value* left = last ? e_.b.CreateSub(last, row) : e_.i64(e_.lanes - 1);
    e_.b.CreateCall(fn, {source, stride_bytes, left, k_end, e_.i64(k), target, e_.i64(step_bytes)});
  });
}

// Few rows: dot products with the rows of the view where they lie.
void Program::row_product(const Op& op, const Op& load, const Buffer& a, const Buffer& c, bool accumulate) {
  const ir::Value *view = load.operands[0], *tile = load.results[0];
  const ViewRef& ref = views_.at(view);
  const int64_t m = op.operands[0]->type.shape[0], n = tile->type.shape[0], k = tile->type.shape[1];
  const int width = vector_elements(e_, a.dtype);
  const int nr = m <= 2 ? 4 : 3;
  const DotKernel kernel{static_cast<int>(m), nr, a.strides[0], c.strides[0], view->type.dtype, a.dtype, false};
  llvm::Function* fn = dot_kernel(kernel);
  Value* first = scalars_.at(load.operands[1]);
  Value* valid = e_.b.CreateSub(ref.sizes[0], first);
  e_.loop(e_.i64(0), e_.i64(n), nr, [&](Value* j) {
    Value* row = e_.b.CreateAdd(first, j);
    Value* last = e_.b.CreateSub(e_.b.CreateSub(valid, j), e_.i64(1));
    Value* elements = e_.b.CreateAdd(e_.b.CreateMul(row, ref.strides[0]), scalars_.at(load.operands[2]));
    Value* source = e_.element_ptr(ref.base, elements, view->type.dtype);
    Value* out = e_.element_ptr(e_.arena_ptr(c.offset), j, DType::f32);
    e_.b.CreateCall(fn, {e_.arena_ptr(a.offset), source, ref.strides[0], last, out, e_.i64(k / width), e_.i64(0),
                         e_.b.getInt1(accumulate)});
  });
}

}  // namespace seqtile::cpu
