// jit/codegen/nvptx/pipeline/ordering.cpp -- barriers between accesses of a block's threads to the same memory.
// SPDX-License-Identifier: Apache-2.0
//
// The tile IR orders a program's accesses; threads of a block run as they like. A barrier stands before an access that
// conflicts with one since the last barrier, unless every element is touched by the same thread both times: the same
// place in the same layout. Where several threads hold an element, one writes it, and one reads it if all that comes of
// it is written (feeds_only_stores). A loop's body starts with the accesses of its earlier turns, whose places are
// compared as those of another turn; what follows a region also follows what was before it, which may not have run.
#include <algorithm>
#include <unordered_set>

#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpEffects;
using ir::OpKind;

namespace {

bool has_chosen_rows(const ir::Region& region) {
  return std::any_of(region.dims.begin(), region.dims.end(), [](const ir::Interval& dim) { return !dim.is_known; });
}

bool touches_memory(const Op& op) {
  const OpEffects effects = op.info().effects;
  const bool has_view = !op.operands.empty() && op.operands[0]->type.is_view();
  return has_view && op.kind != OpKind::prefetch &&
         (effects == OpEffects::read || effects == OpEffects::write || effects == OpEffects::sync);
}

}  // namespace

bool Program::Touch::conflicts_with(const Touch& next) const {
  if (!is_write && !next.is_write) return false;
  // Two outputs of one call are two tensors; so are rows chosen by index and what is written: other programs write it.
  const bool are_parameters = !region.base->def && !next.region.base->def;
  const bool are_two = (is_write && next.is_write) || has_chosen_rows(region) || has_chosen_rows(next.region);
  if (are_two && are_parameters && region.base != next.region.base) return false;
  if (loop) return ir::overlaps_across(region, next.region, *loop);
  const ir::Overlap how = ir::overlap(region, next.region);
  const bool is_own = how == ir::Overlap::same && layout && layout == next.layout;
  return how != ir::Overlap::none && !is_own;
}

std::vector<Program::Touch>& Program::open_touches() {
  if (touches_after_ != e_.num_syncs()) touches_.clear();
  touches_after_ = e_.num_syncs();
  return touches_;
}

void Program::sync_before(const Touch& touch) {
  const auto& open = open_touches();
  if (std::any_of(open.begin(), open.end(), [&](const Touch& before) { return before.conflicts_with(touch); }))
    e_.sync();
}

void Program::order_access(const Op& op, const LinearLayout* layout) {
  Touch touch{ir::region_of(op), op.info().effects != OpEffects::read, std::nullopt, nullptr};
  if (layout && (touch.is_write || is_held_once(*layout) || reads_as_writer(op, *layout))) touch.layout = *layout;
  sync_before(touch);
  open_touches().push_back(std::move(touch));
}

// Whether everything that comes of a tile is element by element and stored.
bool Program::feeds_only_stores(const ir::Value* tile) const {
  std::vector<const ir::Value*> open{tile};
  std::unordered_set<const ir::Value*> seen{tile};
  while (!open.empty()) {
    const auto users = users_.find(open.back());
    open.pop_back();
    if (users == users_.end()) continue;
    for (const Op* user : users->second) {
      const auto group = user->info().group;
      if (user->kind == OpKind::store || user->kind == OpKind::store_add) continue;
      if (group != ir::OpGroup::unary && group != ir::OpGroup::binary) return false;
      if (seen.insert(user->results[0]).second) open.push_back(user->results[0]);
    }
  }
  return true;
}

bool Program::reads_as_writer(const Op& op, const LinearLayout& layout) const {
  return op.kind == OpKind::load && !is_held_once(layout) && feeds_only_stores(op.results[0]);
}

void Program::order_copies(const Pipeline& pipeline) {
  for (const codegen::Stream& stream : pipeline.loop.streams)
    sync_before({ir::region_of(*stream.load), false, std::nullopt, nullptr});
}

bool Program::is_streamed(const Op& load, const Op& loop) const {
  const auto pipeline = pipelines_.find(&loop);
  if (pipeline == pipelines_.end()) return false;
  const auto& streams = pipeline->second.loop.streams;
  return std::any_of(streams.begin(), streams.end(), [&](const codegen::Stream& s) { return s.load == &load; });
}

void Program::note_turns(const ir::Block& block, const Op& loop) {
  for (const Op* op : block.ops) {
    if (touches_memory(*op) && !is_streamed(*op, loop))
      open_touches().push_back({ir::region_of(*op), op->info().effects != OpEffects::read, std::nullopt, &loop});
    for (const ir::Block* region : op->regions) note_turns(*region, loop);
  }
}

void Program::close_region(const OpenRegion& region) {
  auto& open = open_touches();
  if (region.num_syncs != e_.num_syncs()) open.insert(open.end(), region.touches.begin(), region.touches.end());
}

}  // namespace seqtile::nvptx
