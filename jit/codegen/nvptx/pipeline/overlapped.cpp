// jit/codegen/nvptx/pipeline/overlapped.cpp -- a loop of two products, the second of which belongs to the turn before.
// SPDX-License-Identifier: Apache-2.0
//
// Attention's loop: S = q k^T, weights P from S, O = O * fade + P v. Were each product waited for at once, the tensor
// cores would stand still during the exponentials. So a turn issues its S and then the O of the turn before:
//
//   for t = 0 to n, of n turns
//     unless t = n:  await k(t);  S = q k(t)^T               in flight
//     unless t = 0:  O = O + P(t-1) v(t-1)                   in flight
//     wait for S;  leave the loop where t = n;  release k(t)
//     maxima, exponentials, sums                             while O is computed
//     await v(t);  wait for O;  release v(t-1);  O * fade, P(t) packed
//   wait for O;  release v(n-1)
//
// Each product and the softmax stand in the text once: an assembler takes most of its time for them. The exponentials
// stay before the wait for O since the spin on v(t)'s barrier, which is needed anyway, ends a basic block: an assembler
// that finds no such border moves them behind it. P is packed behind the wait, as the product in flight reads the
// registers of the one before.
#include "jit/codegen/nvptx/hopper/hopper.h"
#include "jit/codegen/nvptx/pipeline/overlap.h"

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

/// Whether the next turn's product can be issued in this one: nothing of the loop is computed for it.
bool is_known_ahead(const Op& dot, const codegen::StreamedLoop& loop) {
  for (const size_t operand : {size_t{0}, size_t{1}}) {
    const ir::Value* tile = codegen::stored_operand(dot, operand);
    const bool is_streamed = std::any_of(loop.streams.begin(), loop.streams.end(), [&](const codegen::Stream& stream) {
      return stream.load->results[0] == tile;
    });
    if (!is_streamed && (!tile->def || tile->def->parent == dot.parent)) return false;
  }
  return codegen::is_zero(dot.operands[2]);
}

}  // namespace

std::optional<Program::Overlap> Program::plan_overlap(const Op& loop) const {
  if (pipelines_.at(&loop).slots < 2) return std::nullopt;  // a turn awaits its v before it lets the last one go
  const ir::Block& body = *loop.regions[0];
  std::vector<const Op*> dots;
  for (const Op* op : body.ops)
    if (op->kind == OpKind::dot) dots.push_back(op);
  if (dots.size() != 2 || !codegen::follows_from(dots[1]->operands[0], dots[0]->results[0])) return std::nullopt;
  if (group_of(codegen::stored_operand(*dots[0], 1)) == group_of(codegen::stored_operand(*dots[1], 1)))
    return std::nullopt;
  if (!is_known_ahead(*dots[0], tma_.found)) return std::nullopt;
  const auto& yielded = body.yielded();
  for (size_t i = 0; i < yielded.size(); ++i) {
    if (yielded[i] != dots[1]->results[0] || users_.at(yielded[i]).size() != 1) continue;
    const ir::Value* carried = body.arguments[i + 1];
    if (only_feeds(carried, *dots[1], users_)) return Overlap{dots[0], dots[1], carried, i};
  }
  return std::nullopt;
}

std::vector<Value*> Program::Overlap::flat() const {
  std::vector<Value*> all;
  for (const auto* part : {&others, &words, &sums}) all.insert(all.end(), part->begin(), part->end());
  return all;
}

void Program::Overlap::take(const std::vector<Value*>& flat) {
  auto next = flat.begin();
  for (auto* part : {&others, &words, &sums})
    for (Value*& value : *part) value = *next++;
}

// This turn's scores, into flight.
std::vector<Value*> Program::issue_first(Value* index) {
  const Op& dot = *overlap_->first;
  scalars_[dot.parent->arguments[0]] = index;
  for (const Op* each : tma_.found.indices) lower_op(*each);
  arrived_.clear();
  await_operands(dot);
  std::vector<Value*> sums = wgmma_sums(dot);
  hopper::fence_wgmma(e_);
  issue_wgmma(dot, overlap_->queries, *in_shared(codegen::stored_operand(dot, 1)), sums);
  hopper::commit_wgmma(e_);
  return sums;
}

// The turn before's second product, into flight.
std::vector<Value*> Program::issue_second(const Pipeline& pipeline) {
  const Op& dot = *overlap_->second;
  Staged right = *in_shared(codegen::stored_operand(dot, 1));
  right.slot = e_.b.CreateMul(overlap_->slot_before, e_.i32(pipeline.slot_bytes));
  std::vector<Value*> sums = overlap_->sums;
  hopper::fence_wgmma(e_);
  issue_wgmma(dot, overlap_->words, right, sums);
  return sums;
}

// Scores that are in hand.
void Program::lower_first(const Op& dot) { hold(dot.results[0], preferred(dot.results[0]), overlap_->scores); }

// The end of the turn before's second product, and what this turn's needs.
void Program::lower_second(const Op& dot) {
  await_operands(dot);
  finish_second();
  hold(overlap_->carried, preferred(dot.results[0]), overlap_->sums);
  overlap_->sums = wgmma_sums(dot);
  overlap_->words = wgmma_words(dot);
}

void Program::finish_second() {
  hopper::wait_wgmma(e_, 0, overlap_->sums, overlap_->words);
  const int group = group_of(codegen::stored_operand(*overlap_->second, 1));
  e_.if_then(overlap_->is_in_flight, [&] { release_group(group, overlap_->slot_before); });
}

// Computes the other values of a turn while its products are in flight; the next turn's products are issued from them.
void Program::lower_turn(const ir::Block& body, const std::vector<LinearLayout>& layouts) {
  std::vector<ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end()), yielded = body.yielded();
  std::vector<LinearLayout> other_layouts = layouts;
  const auto position = static_cast<std::ptrdiff_t>(overlap_->position);
  carried.erase(carried.begin() + position);
  yielded.erase(yielded.begin() + position);
  other_layouts.erase(other_layouts.begin() + position);
  const Scope scope = open_scope();
  preferred_.insert_or_assign(overlap_->carried, layouts[overlap_->position]);
  bind(carried, other_layouts, overlap_->others);
  lower_block(body);
  overlap_->others = flattened(yielded, other_layouts);
  close_scope(scope);
}

// Issues the products that are in flight when a turn's exponentials start. If the path around the second product's
// batch had no fence, ptxas would put in one of its own, with a warning.
void Program::issue_turn(const Pipeline& pipeline, Value* index, Value* has_first) {
  Overlap& overlap = *overlap_;
  find_in_shared(pipeline, e_.b.CreateMul(turn_.first, e_.i32(pipeline.slot_bytes)));
  const std::vector<Value*> nothing(static_cast<size_t>(preferred(overlap.first->results[0]).num_registers()),
                                    llvm::PoisonValue::get(e_.b.getFloatTy()));
  overlap.scores = e_.choose(
      has_first, [&] { return issue_first(index); }, nothing);
  overlap.sums = e_.choose(
      overlap.is_in_flight, [&] { return issue_second(pipeline); }, overlap.sums);
  hopper::fence_wgmma(e_);
  hopper::commit_wgmma(e_);  // of nothing in the first turn: the wait counts alike
  hopper::wait_wgmma(e_, 1, overlap.scores, overlap.queries);
}

// All turns; the carried values end in overlap_.
void Program::lower_turns(const Op& op, const Pipeline& pipeline, const std::vector<LinearLayout>& layouts) {
  Overlap& overlap = *overlap_;
  const auto bound = [&](size_t i) { return scalars_.at(op.operands[i]); };
  Value *lo = bound(0), *index = lo;
  turn_ = ring_;  // of the only program: such loops are not persistent
  overlap.slot_before = turn_.first;
  const auto state = [&] {
    std::vector<Value*> values = overlap.flat();
    values.insert(values.end(), {index, turn_.first, turn_.second, overlap.slot_before});
    return values;
  };
  std::unique_ptr<Overlap> last;
  e_.loop_while(
      state(),
      [&](const std::vector<Value*>& values) {
        overlap.take(values);
        index = values.end()[-4];
        turn_ = {values.end()[-3], values.end()[-2]};
        overlap.slot_before = values.back();
        overlap.is_in_flight = e_.b.CreateICmpNE(index, lo);
        Value* goes_on = e_.b.CreateICmpSLT(index, bound(1));
        issue_turn(pipeline, index, goes_on);
        last = std::make_unique<Overlap>(overlap);
        return goes_on;
      },
      [&] {
        release_operands(*overlap.first);
        scalars_[op.regions[0]->arguments[0]] = index;
        lower_turn(*op.regions[0], layouts);
        index = e_.b.CreateAdd(index, bound(2));
        overlap.slot_before = turn_.first;
        const auto next = next_turn(turn_.first, turn_.second);
        turn_ = {next[0], next[1]};
        return state();
      });
  overlap = *last;
  finish_second();
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
  std::ptrdiff_t before = 0;  // values of the carried tiles in front of the sums
  for (size_t i = 0; i < overlap_->position; ++i) before += layouts[i].rank() == 0 ? 1 : layouts[i].num_registers();
  const auto sums = first.begin() + before, behind = sums + layouts[overlap_->position].num_registers();
  overlap_->sums.assign(sums, behind);
  overlap_->others.assign(first.begin(), sums);
  overlap_->others.insert(overlap_->others.end(), behind, first.end());
  const auto num_words = static_cast<size_t>(wgmma_operand_layout(*overlap_->second).num_registers()) / 2;
  overlap_->words.assign(num_words, llvm::PoisonValue::get(e_.b.getInt32Ty()));
  const auto shared_before = in_shared_;
  find_in_shared(pipeline, e_.i32(0));
  overlap_->queries = wgmma_words(*overlap_->first);
  lower_turns(op, pipeline, layouts);
  in_shared_ = shared_before;
  std::vector<Value*> results = overlap_->others;
  results.insert(results.begin() + before, overlap_->sums.begin(), overlap_->sums.end());
  overlap_.reset();
  bind({op.results.begin(), op.results.end()}, layouts, results);
}

}  // namespace seqtile::nvptx
