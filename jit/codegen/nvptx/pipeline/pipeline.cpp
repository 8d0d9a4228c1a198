// jit/codegen/nvptx/pipeline/pipeline.cpp -- loops whose operands are copied to shared memory turns ahead by cp.async.
// SPDX-License-Identifier: Apache-2.0
//
// The streams of a loop (codegen/streams.h) have `slots` = num_stages buffers each. Turn t
//
//   waits until its own copies have arrived: all but the newest slots - 2 groups;     (cp.async.wait_group)
//   meets the other threads: their copies are there too, and all have left turn t - 1;  (bar.sync)
//   starts the copies of turn t + slots - 1 into the buffers that turn t - 1 has read;  (cp.async, commit_group)
//   computes.
//
// so one barrier a turn is enough. Tiles from outside that products read (attention's queries) are put into shared
// memory once, before the loop. A copy fills elements beyond a view's bounds with zeros.
#include <algorithm>

#include "jit/base/cdiv.h"
#include "jit/codegen/nvptx/program.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int kDefaultStages = 3;
constexpr int64_t kCopyBytes = 16;

}  // namespace

LinearLayout Program::copy_layout(const ir::Type& tile) const {
  return blocked_layout(tile.dims(), static_cast<int>(kCopyBytes / dtype_bytes(tile.dtype)), e_.num_warps);
}

namespace {

/// Takes the next buffer of the reserved memory for a tile.
Staged placed(Staged staged, int64_t& next) {
  staged.first = next;
  staged.is_reserved = true;
  next = round_up(next + staged.bytes(), kPanelAlignment);
  return staged;
}

Staged in_panels(int64_t rows, int64_t columns, int64_t element_bytes) {
  return {SharedLayout(panel_bytes_of(columns * element_bytes)), rows, columns, element_bytes};
}

}  // namespace

// Streams and residents in panels, then the barriers.
Pipeline Program::plan_specialised() {
  Pipeline plan{tma_.found, {}, {}};
  plan.slots = schedule_of(function_, "num_stages", kDefaultStages);
  const auto element = [](const codegen::Stream& s) { return dtype_bytes(s.load->results[0]->type.dtype); };
  for (const TmaStream& stream : tma_.streams)
    plan.streams.push_back(placed(in_panels(stream.rows, stream.columns, element(stream.stream)), plan.slot_bytes));
  plan.bytes = plan.slot_bytes * plan.slots;
  for (const codegen::Stream& tile : plan.loop.residents) {
    const auto& shape = tile.load->results[0]->type.shape;
    plan.residents.push_back(placed(in_panels(shape[0], shape[1], element(tile)), plan.bytes));
  }
  plan.barriers = plan.bytes;
  plan.bytes += 2 * int64_t{tma_.num_groups} * plan.slots * 8;
  return plan;
}

std::optional<Pipeline> Program::plan_pipeline(const Op& loop) {
  Pipeline plan{codegen::find_streams(loop, users_), {}, {}};
  plan.slots = schedule_of(function_, "num_stages", kDefaultStages);
  std::erase_if(plan.loop.streams, [&](const codegen::Stream& stream) {
    const ir::Type& tile = stream.load->results[0]->type;
    return access_width(*stream.load, tile, copy_layout(tile)) * dtype_bytes(tile.dtype) < 4;
  });
  if (plan.loop.streams.empty() || plan.slots < 2) return std::nullopt;
  for (const codegen::Stream& stream : plan.loop.streams)
    plan.streams.push_back(placed(staged_operand(*stream.dot, stream.operand), plan.slot_bytes));
  plan.bytes = plan.slot_bytes * plan.slots;
  for (const codegen::Stream& tile : plan.loop.residents)
    plan.residents.push_back(placed(staged_operand(*tile.dot, tile.operand), plan.bytes));
  return plan;
}

void Program::plan_pipelines(const ir::Block& block) {
  for (const Op* op : block.ops) {
    for (const ir::Block* region : op->regions) plan_pipelines(*region);
    if (op->kind != OpKind::for_loop) continue;
    if (auto plan = op == tma_.loop ? plan_specialised() : plan_pipeline(*op)) {
      e_.reserve(plan->bytes);
      pipelines_.emplace(op, std::move(*plan));
    }
  }
}

// One load's tile to shared memory; zeros where `is_wanted` does not hold (null: it does).
void Program::copy_async(const Op& load, const Staged& to, Value* is_wanted) {
  const ir::Type& tile = load.results[0]->type;
  const LinearLayout layout = copy_layout(tile);
  const auto [width, is_checked, position] = access_of(load, tile, layout);
  const int64_t bytes = width * to.element_bytes;
  const Coordinates covered = layout.shape();
  const std::string cache = bytes == kCopyBytes ? ".cg" : ".ca";
  const std::string text =
      "cp.async" + cache + ".shared.global.L2::128B [$0], [$1], " + std::to_string(bytes) + ", $2;";
  for (int reg = 0; reg < layout.num_registers(); reg += width) {
    if (layout.representative(reg) != reg) continue;
    const Address at = address(load.operands[0], position, tile, layout, reg, width, is_checked);
    Value* inside = both(at.inside, is_wanted);
    Value* size = inside ? e_.b.CreateSelect(inside, e_.i32(bytes), e_.i32(0)) : e_.i32(bytes);
    Value *row = coordinate(layout, reg, 0), *column = coordinate(layout, reg, 1);
    Value* fits = is_writer(layout);
    if (covered[0] > to.rows) fits = both(fits, e_.b.CreateICmpSLT(row, e_.i32(to.rows)));
    if (covered[1] > to.columns) fits = both(fits, e_.b.CreateICmpSLT(column, e_.i32(to.columns)));
    std::vector<Value*> operands = {e_.address_of(staged_pointer(to, row, column)), e_.address_of(at.pointer), size};
    if (fits) operands.push_back(fits);
    e_.assembly(e_.b.getVoidTy(), (fits ? "@$3 " : "") + text, fits ? "r,l,r,b,~{memory}" : "r,l,r,~{memory}",
                operands);
  }
}

// Starts the copies of the turn with loop index `index` into the buffers at `slot`, as one group.
void Program::fetch_turn(const Pipeline& pipeline, Value* index, Value* slot) {
  Value* is_turn = e_.b.CreateICmpSLT(index, scalars_.at(pipeline.loop.loop->operands[1]));
  // Added to addresses last, as nothing is known of it: the rest stays the same from turn to turn.
  scalars_[pipeline.loop.loop->regions[0]->arguments[0]] = e_.opaque(index);
  for (const Op* op : pipeline.loop.indices) lower_op(*op);
  for (size_t i = 0; i < pipeline.streams.size(); ++i) {
    Staged to = pipeline.streams[i];
    to.slot = slot;
    copy_async(*pipeline.loop.streams[i].load, to, is_turn);
  }
  e_.b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, {});
}

// Tiles from outside, once.
void Program::stage_residents(const Pipeline& pipeline) {
  for (const codegen::Stream& tile : pipeline.loop.residents) pull(tile.load->results[0]);
  // After the barrier all threads have read the tiles that an earlier loop, or an earlier run of this loop, left there.
  if (is_reserved_used_ || pipeline.loop.loop->parent != &function_.body()) e_.sync();
  is_reserved_used_ = true;
  for (size_t i = 0; i < pipeline.residents.size(); ++i)
    stage(pipeline.loop.residents[i].load->results[0], pipeline.residents[i]);
}

// Clears the ends of rows and columns in all slots: the copies never write them.
void Program::clear_slots(const Pipeline& pipeline) {
  for (int slot = 0; slot < pipeline.slots; ++slot)
    for (size_t i = 0; i < pipeline.streams.size(); ++i) {
      Staged to = pipeline.streams[i];
      to.slot = e_.i32(slot * pipeline.slot_bytes);
      const ir::Type& tile = pipeline.loop.streams[i].load->results[0]->type;
      const Coordinates covered = copy_layout(tile).shape();
      zero_beyond(to, tile.dtype, std::min<int64_t>(covered[0], to.rows), std::min<int64_t>(covered[1], to.columns));
    }
}

// Tells products where the streams of a turn are, and the residents.
void Program::find_in_shared(const Pipeline& pipeline, Value* slot) {
  for (size_t i = 0; i < pipeline.streams.size(); ++i) {
    Staged from = pipeline.streams[i];
    from.slot = slot;
    in_shared_.insert_or_assign(pipeline.loop.streams[i].load->results[0], from);
  }
  for (size_t i = 0; i < pipeline.residents.size(); ++i)
    in_shared_.insert_or_assign(pipeline.loop.residents[i].load->results[0], pipeline.residents[i]);
}

void Program::lower_pipelined(const Op& op, const Pipeline& pipeline) {
  const ir::Block& body = *op.regions[0];
  const std::vector<ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end());
  const std::vector<ir::Value*> inits(op.operands.begin() + 3, op.operands.end());
  const auto layouts = carried_layouts(carried, body.yielded());
  Value *lo = scalars_.at(op.operands[0]), *hi = scalars_.at(op.operands[1]), *step = scalars_.at(op.operands[2]);
  const int64_t end = pipeline.slots * pipeline.slot_bytes;

  std::vector<Value*> first = flattened(inits, layouts);
  stage_residents(pipeline);
  clear_slots(pipeline);
  for (int turn = 0; turn + 1 < pipeline.slots; ++turn)
    fetch_turn(pipeline, e_.b.CreateAdd(lo, e_.b.CreateMul(step, e_.i64(turn))), e_.i32(turn * pipeline.slot_bytes));

  const auto next_slot = [&](Value* slot) {
    Value* next = e_.b.CreateAdd(slot, e_.i32(pipeline.slot_bytes));
    return e_.b.CreateSelect(e_.b.CreateICmpEQ(next, e_.i32(end)), e_.i32(0), next);
  };
  first.push_back(e_.i32(0));
  first.push_back(e_.i32(end - pipeline.slot_bytes));
  auto last = e_.loop(lo, hi, step, first, [&](Value* index, std::vector<Value*> values) {
    Value* write = values.back();
    values.pop_back();
    Value* read = values.back();
    values.pop_back();
    e_.b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {}, {e_.i32(pipeline.slots - 2)});
    e_.sync();
    Value* ahead = e_.b.CreateAdd(index, e_.b.CreateMul(step, e_.i64(pipeline.slots - 1)));
    fetch_turn(pipeline, ahead, write);
    const auto shared_before = in_shared_;
    find_in_shared(pipeline, read);
    scalars_[body.arguments[0]] = index;
    auto next = lower_region(body, layouts, carried, values);
    in_shared_ = shared_before;
    next.push_back(next_slot(read));
    next.push_back(next_slot(write));
    return next;
  });
  e_.b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_all, {}, {});
  last.resize(last.size() - 2);
  bind({op.results.begin(), op.results.end()}, layouts, last);
}

}  // namespace seqtile::nvptx
