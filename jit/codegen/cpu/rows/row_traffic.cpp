// jit/codegen/cpu/rows/row_traffic.cpp -- row groups and memory: rows fetched ahead, outputs written past the caches.
// SPDX-License-Identifier: Apache-2.0
//
// A group of one pass fetches a little ahead of its reads. A group of several passes reads memory in its first and
// finds the row in the cache later; its second pass fetches the next row meanwhile, so that memory never idles. Outputs
// larger than the last-level cache are gone before anybody reads them: writing them past the caches saves reading their
// lines first, a third of the traffic.
#include <algorithm>

#include "jit/codegen/cpu/program.h"

namespace seqtile::cpu {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int64_t kLineBytes = 64;

}  // namespace

void Program::fetch_ahead(const Op& load, Value* address, int lanes) {
  // Far enough to hide memory's latency; the hardware's own prefetches end at the page.
  constexpr uint64_t kDistanceBytes = 2048;
  const ir::Type& tile = load.results[0]->type;
  if (tile.rank < 2) return;
  auto it = std::find_if(first_reads_.begin(), first_reads_.end(), [&](const auto& r) { return r.first == &load; });
  if (it == first_reads_.end()) it = first_reads_.insert(it, {&load, level_});
  if (it->second != level_ || step_ * lanes * dtype_bytes(tile.dtype) % kLineBytes != 0) return;
  prefetch(e_, e_.b.CreateConstGEP1_64(e_.b.getInt8Ty(), address, kDistanceBytes));
}

// The part at `index`, one row later, of everything that earlier passes read from memory.
void Program::fetch_next_row(const ir::Value& row, const Index& index) {
  if (row.type.rank < 2) return;
  Index next = index;
  {
    llvm::IRBuilderBase::InsertPointGuard guard(e_.b);
    e_.b.SetInsertPoint(hoist_block_->getTerminator());  // where row_address computes
    Axis& outer = next.axes[next.axes.size() - 2];
    outer.base = e_.b.CreateAdd(outer.base, e_.i64(1));
  }
  for (const auto& [load, level] : first_reads_) {
    const ir::Value *view = load->operands[0], *tile = load->results[0];
    const int last = tile->type.rank - 1;
    if (level == level_ || tile->type.shape != row.type.shape || !view->type.contiguous) continue;
    if (step_ * index.lanes * dtype_bytes(tile->type.dtype) % kLineBytes != 0) continue;
    Value* column = e_.b.CreateAdd(scalars_.at(load->operands[static_cast<size_t>(1 + last)]), next.axes.back().base);
    prefetch(e_, e_.element_ptr(row_address(*load, next).pointer, column, view->type.dtype));
  }
}

bool Program::is_whole_rows(const Op& store) const {
  const ir::Value *view = store.operands[0], *tile = store.operands.back();
  const int last = tile->type.rank - 1;
  return store.kind == OpKind::store && dtype_bytes(view->type.dtype) > 1 && !view->def && view->type.contiguous &&
         view->type.rank == tile->type.rank && last > 0 && tile->type.shape[last] == view->type.shape[last] &&
         in_range(store.operands[static_cast<size_t>(1 + last)], tile->type.shape[last], view->type.shape[last]);
}

// Whether what the group writes is larger than the last-level cache and aligned to cache lines; null: never.
Value* Program::streams_past_caches() {
  Value *bytes = nullptr, *misaligned = nullptr;
  for (const Root& root : pending_) {
    if (root.kind != Root::Kind::store || root.shift != 0 || !is_whole_rows(*root.op)) continue;
    const ir::Value* view = root.op->operands[0];
    const ViewRef& ref = views_.at(view);
    Value* size = e_.i64(dtype_bytes(view->type.dtype));
    Value* address_bits = e_.b.CreatePtrToInt(ref.base, e_.b.getInt64Ty());
    for (size_t d = 0; d < ref.sizes.size(); ++d) {
      size = e_.b.CreateMul(size, ref.sizes[d]);
      if (d + 1 == ref.sizes.size()) break;
      Value* pitch = e_.b.CreateMul(ref.strides[d], e_.i64(dtype_bytes(view->type.dtype)));
      address_bits = e_.b.CreateOr(address_bits, pitch);
    }
    bytes = bytes ? e_.b.CreateAdd(bytes, size) : size;
    misaligned = misaligned ? e_.b.CreateOr(misaligned, address_bits) : address_bits;
  }
  if (!bytes) return nullptr;
  Value* is_aligned = e_.b.CreateICmpEQ(e_.b.CreateAnd(misaligned, e_.i64(kLineBytes - 1)), e_.i64(0));
  return e_.b.CreateAnd(is_aligned, e_.b.CreateICmpUGT(bytes, e_.i64(e_.target.l3_bytes)));
}

}  // namespace seqtile::cpu
