// jit/codegen/nvptx/control.cpp -- loops and branches; conditions are the same in all threads of a block.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

bool writes(const ir::Block& block) {
  for (const Op* op : block.ops) {
    if (op->info().effects == ir::OpEffects::write || op->info().effects == ir::OpEffects::sync) return true;
    for (const ir::Block* region : op->regions)
      if (writes(*region)) return true;
  }
  return false;
}

bool is_within(const Op* op, const Op& outer) {
  for (; op; op = op->parent ? op->parent->parent : nullptr)
    if (op == &outer) return true;
  return false;
}

}  // namespace

// A load from before a loop that is used in it happens once, before; and so does every one where the region writes.
void Program::pin_loads_for(const Op& op) {
  const bool is_writing = std::any_of(op.regions.begin(), op.regions.end(), [](const auto* r) { return writes(*r); });
  std::vector<const Op*> open = open_loads_, left;
  for (const Op* load : open) {
    const ir::Value* tile = load->results[0];
    const auto& users = users_[tile];
    const bool inside = std::any_of(users.begin(), users.end(), [&](const Op* user) { return is_within(user, op); });
    if (is_writing || inside) pull(tile);
    else left.push_back(load);
  }
  open_loads_ = left;
}

std::vector<Value*> Program::flattened(const std::vector<ir::Value*>& values,
                                       const std::vector<LinearLayout>& layouts) {
  std::vector<Value*> flat;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]->type.is_scalar()) {
      flat.push_back(scalars_.at(values[i]));
      continue;
    }
    const auto& registers = pull(values[i], layouts[i]);
    flat.insert(flat.end(), registers.begin(), registers.end());
  }
  return flat;
}

void Program::bind(const std::vector<ir::Value*>& values, const std::vector<LinearLayout>& layouts,
                   const std::vector<Value*>& flat) {
  auto next = flat.begin();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]->type.is_scalar()) {
      scalars_[values[i]] = *next++;
      continue;
    }
    const int count = layouts[i].num_registers();
    preferred_.insert_or_assign(values[i], layouts[i]);
    hold(values[i], layouts[i], {next, next + count});
    next += count;
  }
}

void Program::close_scope(const Scope& scope) {
  while (held_order_.size() > scope.mark) {
    held_[held_order_.back()].pop_back();
    held_order_.pop_back();
  }
  open_loads_ = scope.open_loads;
}

std::vector<Value*> Program::lower_region(const ir::Block& block, const std::vector<LinearLayout>& layouts,
                                          const std::vector<ir::Value*>& arguments, const std::vector<Value*>& flat) {
  const Scope scope = open_scope();
  const OpenRegion before = open_region();
  if (const Op* loop = block.parent; loop && loop->kind != OpKind::if_then)
    for (const ir::Block* part : loop->regions) note_turns(*part, *loop);
  bind(arguments, layouts, flat);
  lower_block(block);
  const ir::Op* last = block.ops.empty() ? nullptr : block.ops.back();
  std::vector<Value*> result;
  if (last && last->kind == OpKind::yield) {
    const size_t skipped = last->operands.size() - layouts.size();  // a while loop's condition
    const std::vector<ir::Value*> yielded(last->operands.begin() + static_cast<std::ptrdiff_t>(skipped),
                                          last->operands.end());
    for (size_t i = 0; i < skipped; ++i) result.push_back(scalars_.at(last->operands[i]));
    const auto rest = flattened(yielded, layouts);
    result.insert(result.end(), rest.begin(), rest.end());
  }
  close_scope(scope);
  close_region(before);
  return result;
}

// A carried tile has the layout in which an iteration makes it.
std::vector<LinearLayout> Program::carried_layouts(const std::vector<ir::Value*>& carried,
                                                   const std::vector<ir::Value*>& yielded) {
  const auto before = preferred_;
  for (const ir::Value* value : carried)
    if (value->type.is_tile()) preferred_.insert_or_assign(value, default_layout(value->type));
  std::vector<LinearLayout> layouts;
  for (size_t i = 0; i < carried.size(); ++i)
    layouts.push_back(carried[i]->type.is_tile() ? preferred(yielded[i]) : LinearLayout());
  preferred_ = before;
  return layouts;
}

void Program::lower_for(const Op& op) {
  pin_loads_for(op);
  if (const auto found = pipelines_.find(&op); found != pipelines_.end()) {
    const Pipeline& pipeline = found->second;
    order_copies(pipeline);
    const OpenRegion before = open_region();
    if (&op == tma_.loop) lower_consumed(op, pipeline);
    else lower_pipelined(op, pipeline);
    return close_region(before);
  }
  const ir::Block& body = *op.regions[0];
  const std::vector<ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end());
  const std::vector<ir::Value*> inits(op.operands.begin() + 3, op.operands.end());
  const auto layouts = carried_layouts(carried, body.yielded());
  const auto bound = [&](size_t i) { return scalars_.at(op.operands[i]); };
  const auto last = e_.loop(bound(0), bound(1), bound(2), flattened(inits, layouts),
                            [&](Value* index, const std::vector<Value*>& values) {
                              scalars_[body.arguments[0]] = index;
                              return lower_region(body, layouts, carried, values);
                            });
  bind({op.results.begin(), op.results.end()}, layouts, last);
}

void Program::lower_if(const Op& op) {
  pin_loads_for(op);
  const std::vector<ir::Value*> results(op.results.begin(), op.results.end());
  std::vector<LinearLayout> layouts;
  for (size_t i = 0; i < results.size(); ++i)
    layouts.push_back(results[i]->type.is_tile() ? preferred(op.regions[0]->yielded()[i]) : LinearLayout());
  llvm::BasicBlock* sides[2] = {llvm::BasicBlock::Create(e_.context, "then", e_.function),
                                llvm::BasicBlock::Create(e_.context, "else", e_.function)};
  auto* after = llvm::BasicBlock::Create(e_.context, "endif", e_.function);
  e_.b.CreateCondBr(scalars_.at(op.operands[0]), sides[0], sides[1]);
  std::vector<Value*> values[2];
  llvm::BasicBlock* ends[2];
  for (int side = 0; side < 2; ++side) {
    e_.b.SetInsertPoint(sides[side]);
    values[side] = lower_region(*op.regions[static_cast<size_t>(side)], layouts);
    ends[side] = e_.b.GetInsertBlock();
    e_.b.CreateBr(after);
  }
  e_.b.SetInsertPoint(after);
  std::vector<Value*> merged;
  for (size_t i = 0; i < values[0].size(); ++i) {
    auto* phi = e_.b.CreatePHI(values[0][i]->getType(), 2);
    for (int side = 0; side < 2; ++side) phi->addIncoming(values[side][i], ends[side]);
    merged.push_back(phi);
  }
  bind(results, layouts, merged);
}

void Program::lower_while(const Op& op) {
  pin_loads_for(op);
  const std::vector<ir::Value*> inits(op.operands.begin(), op.operands.end());
  const ir::Block &test = *op.regions[0], &body = *op.regions[1];
  const auto layouts = carried_layouts(test.arguments, body.yielded());
  std::vector<Value*> values;
  e_.loop_while(
      flattened(inits, layouts),
      [&](const std::vector<Value*>& carried) {
        const auto tested = lower_region(test, layouts, test.arguments, carried);
        values.assign(tested.begin() + 1, tested.end());
        return tested.front();
      },
      [&] { return lower_region(body, layouts, body.arguments, values); });
  bind({op.results.begin(), op.results.end()}, layouts, values);
}

}  // namespace seqtile::nvptx
