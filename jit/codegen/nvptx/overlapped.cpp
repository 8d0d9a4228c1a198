// jit/codegen/nvptx/overlapped.cpp -- a loop of two products, the second of which belongs to the turn before.
// SPDX-License-Identifier: Apache-2.0
//
// Attention's loop: S = q k^T, weights P from S, O = O * fade + P v. Were each product waited for at once, the tensor
// cores would stand still during the exponentials. So a turn issues its S and then the O of the turn before:
//
//   await k(t);    S = q k(t)^T                                  in flight
//                  O = O + P(t-1) v(t-1)                         in flight
//   wait for S;    release k(t);  maxima, exponentials, sums     while O is computed
//   await v(t);    wait for O; release v(t-1); O * fade, P(t) packed
//
// The first turn has no O to issue, and the last O follows the loop. The exponentials stay before the wait for O since
// the spin on v(t)'s barrier, which is needed anyway, ends a basic block: an assembler that finds no such border moves
// them behind it. P is packed behind the wait, as the product in flight reads the registers of the one before.
#include "jit/codegen/nvptx/hopper.h"
#include "jit/codegen/nvptx/overlap.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

/// Whether everything that is computed from `tile`, element by element, ends as operand c of `dot`.
bool only_feeds(const ir::Value* tile, const Op& dot, const codegen::Users& users) {
  const auto found = users.find(tile);
  if (found == users.end()) return false;
  for (const Op* user : found->second) {
    if (user == &dot && dot.operands[2] == tile && dot.operands[0] != tile && dot.operands[1] != tile) continue;
    const auto group = user->info().group;
    if (user->parent != dot.parent || (group != ir::OpGroup::unary && group != ir::OpGroup::binary)) return false;
    if (!only_feeds(user->results[0], dot, users)) return false;
  }
  return true;
}

}  // namespace

std::optional<Program::Overlap> Program::plan_overlap(const Op& loop) const {
  const ir::Block& body = *loop.regions[0];
  std::vector<const Op*> dots;
  for (const Op* op : body.ops)
    if (op->kind == OpKind::dot) dots.push_back(op);
  if (dots.size() != 2 || !codegen::follows_from(dots[1]->operands[0], dots[0]->results[0])) return std::nullopt;
  if (group_of(codegen::stored_operand(*dots[0], 1)) == group_of(codegen::stored_operand(*dots[1], 1)))
    return std::nullopt;
  const auto& yielded = body.yielded();
  for (size_t i = 0; i < yielded.size(); ++i) {
    if (yielded[i] != dots[1]->results[0] || users_.at(yielded[i]).size() != 1) continue;
    const ir::Value* carried = body.arguments[i + 1];
    if (only_feeds(carried, *dots[1], users_)) return Overlap{dots[0], dots[1], carried, i, {}, {}, {}, nullptr, {}};
  }
  return std::nullopt;
}

// This turn's scores, and the turn before's second product behind them.
void Program::lower_first(const Op& dot) {
  Overlap& overlap = *overlap_;
  std::vector<Value*> sums = wgmma_sums(dot);
  const std::vector<Value*> words = wgmma_words(dot);
  await_operands(dot);
  issue_wgmma(dot, words, *in_shared(codegen::stored_operand(dot, 1)), sums);
  if (overlap.right) issue_wgmma(*overlap.second, overlap.words, *overlap.right, overlap.sums);
  hopper::wait_wgmma(e_, overlap.right ? 1 : 0, sums, words);
  release_operands(dot);
  hold(dot.results[0], preferred(dot.results[0]), std::move(sums));
}

// The end of the turn before's second product, and what this turn's needs.
void Program::lower_second(const Op& dot) {
  Overlap& overlap = *overlap_;
  await_operands(dot);
  if (overlap.right) finish_second();
  hold(overlap.carried, preferred(dot.results[0]), overlap.right ? overlap.sums : overlap.initial);
  overlap.sums = wgmma_sums(dot);
  overlap.words = wgmma_words(dot);
  overlap.right = *in_shared(codegen::stored_operand(dot, 1));
  overlap.slot = turn_.first;
}

void Program::finish_second() {
  hopper::wait_wgmma(e_, 0, overlap_->sums, overlap_->words);
  release_group(group_of(codegen::stored_operand(*overlap_->second, 1)), overlap_->slot);
}

// One turn; returns what it yields but the second product's sums.
std::vector<Value*> Program::lower_turn(const Op& op, const Pipeline& pipeline,
                                        const std::vector<LinearLayout>& layouts, Value* index,
                                        const std::vector<Value*>& others) {
  const ir::Block& body = *op.regions[0];
  std::vector<ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end()), yielded = body.yielded();
  std::vector<LinearLayout> other_layouts = layouts;
  const auto position = static_cast<std::ptrdiff_t>(overlap_->position);
  carried.erase(carried.begin() + position);
  yielded.erase(yielded.begin() + position);
  other_layouts.erase(other_layouts.begin() + position);
  arrived_.clear();
  const auto shared_before = in_shared_;
  find_in_shared(pipeline, e_.b.CreateMul(turn_.first, e_.i32(pipeline.slot_bytes)));
  scalars_[body.arguments[0]] = index;
  const Scope scope = open_scope();
  preferred_.insert_or_assign(overlap_->carried, layouts[overlap_->position]);
  bind(carried, other_layouts, others);
  lower_block(body);
  const auto next = flattened(yielded, other_layouts);
  close_scope(scope);
  in_shared_ = shared_before;
  return next;
}

void Program::lower_overlapped(const Op& op, const Pipeline& pipeline) {
  const ir::Block& body = *op.regions[0];
  const std::vector<ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end());
  const std::vector<ir::Value*> inits(op.operands.begin() + 3, op.operands.end());
  const auto layouts = carried_layouts(carried, body.yielded());
  const std::vector<Value*> first = flattened(inits, layouts);
  stage_residents(pipeline);
  if (!pipeline.residents.empty()) hopper::fence_proxy(e_);
  e_.sync();
  overlap_ = std::make_unique<Overlap>(*plan_overlap(op));
  size_t before = 0;  // values of the carried tiles in front of the sums
  for (size_t i = 0; i < overlap_->position; ++i)
    before += layouts[i].rank() == 0 ? 1 : static_cast<size_t>(layouts[i].num_registers());
  const auto count = static_cast<size_t>(layouts[overlap_->position].num_registers());
  const auto sums_at = first.begin() + static_cast<std::ptrdiff_t>(before);
  overlap_->initial.assign(sums_at, sums_at + static_cast<std::ptrdiff_t>(count));
  std::vector<Value*> others = first;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(before),
               others.begin() + static_cast<std::ptrdiff_t>(before + count));

  Value *lo = scalars_.at(op.operands[0]), *hi = scalars_.at(op.operands[1]), *step = scalars_.at(op.operands[2]);
  const auto last = e_.choose(
      e_.b.CreateICmpSLT(lo, hi),
      [&] {
        auto results = lower_turns(op, pipeline, layouts, {lo, hi, step}, others);
        results.insert(results.begin() + static_cast<std::ptrdiff_t>(before), overlap_->sums.begin(),
                       overlap_->sums.end());
        return results;
      },
      first);
  overlap_.reset();
  bind({op.results.begin(), op.results.end()}, layouts, last);
}

// All turns of a loop that has at least one; the sums end in overlap_.
std::vector<Value*> Program::lower_turns(const Op& op, const Pipeline& pipeline,
                                         const std::vector<LinearLayout>& layouts, const std::array<Value*, 3>& bounds,
                                         std::vector<Value*> others) {
  turn_ = ring_;  // of the only program: such loops are not persistent
  others = lower_turn(op, pipeline, layouts, bounds[0], others);
  const size_t num_others = others.size(), num_words = overlap_->words.size();
  std::vector<Value*> state = others;
  state.insert(state.end(), overlap_->words.begin(), overlap_->words.end());
  state.insert(state.end(), overlap_->sums.begin(), overlap_->sums.end());
  for (Value* value : next_turn(turn_.first, turn_.second)) state.push_back(value);
  state.push_back(turn_.first);

  const auto take = [&](const std::vector<Value*>& values) {
    const auto words = values.begin() + static_cast<std::ptrdiff_t>(num_others);
    const auto sums = words + static_cast<std::ptrdiff_t>(num_words);
    others.assign(values.begin(), words);
    overlap_->words.assign(words, sums);
    overlap_->sums.assign(sums, values.end() - 3);
    overlap_->slot = values.back();
    overlap_->right->slot = e_.b.CreateMul(overlap_->slot, e_.i32(pipeline.slot_bytes));
  };
  const auto last = e_.loop(e_.b.CreateAdd(bounds[0], bounds[2]), bounds[1], bounds[2], state,
                            [&](Value* index, const std::vector<Value*>& values) {
                              take(values);
                              turn_ = {values.end()[-3], values.end()[-2]};
                              const auto [slot, parity] = turn_;
                              auto next = lower_turn(op, pipeline, layouts, index, others);
                              next.insert(next.end(), overlap_->words.begin(), overlap_->words.end());
                              next.insert(next.end(), overlap_->sums.begin(), overlap_->sums.end());
                              for (Value* value : next_turn(slot, parity)) next.push_back(value);
                              next.push_back(slot);
                              return next;
                            });
  take(last);
  issue_wgmma(*overlap_->second, overlap_->words, *overlap_->right, overlap_->sums);
  finish_second();
  return others;
}

}  // namespace seqtile::nvptx
