// jit/codegen/nvptx/pipeline/specialised.cpp -- Hopper's loop: one warp group copies, the others multiply.
// SPDX-License-Identifier: Apache-2.0
//
// The block has num_warps consumer warps, which execute the kernel, and one more warp group, of which one thread walks
// the same loop and keeps TMA copies in flight. Streams that one product reads share a group and with it two barriers a
// slot: `full`, completed by the copies' bytes, and `empty`, completed when every consumer warp has left the slot.
//
//   producer                                   consumer warps
//     for each turn, for each group              for each turn, for each product
//       await empty[group][slot]                   await full[group][slot]
//       expect the bytes on full[group][slot]      wgmma, commit, wait
//       copy the panels                            arrive on empty[group][slot], one lane a warp
//
// Parities flip each time round the slots; the producer's first round finds everything empty. Registers move from the
// producer to the consumers (setmaxnreg). In a cluster, streams that its blocks share are copied in parts: each block
// sends its rows to all of them, and an `empty` barrier counts the consumer warps of all blocks. After the roles part,
// barriers of the block are those of the consumers.
#include <algorithm>

#include "jit/codegen/nvptx/hopper/hopper.h"
#include "jit/codegen/nvptx/pipeline/overlap.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int64_t kBarrierBytes = 8;

/// Registers that a consumer's thread needs for the results of the loop's products.
int64_t product_registers(const Op& loop, int num_warps) {
  int64_t values = 0;
  for (const Op* op : loop.regions[0]->ops)
    if (op->kind == OpKind::dot) values += op->results[0]->type.shape[0] * op->results[0]->type.shape[1];
  return values / (num_warps * kLanes);
}

/// Registers of a producer's and a consumer's thread, of the 64 K that a multiprocessor has; 0: each has its even
/// share, because one consumer group can have no more, or because that is enough and a second block may fit.
std::pair<int, int> register_split(int64_t needed, int num_warps) {
  constexpr int64_t kEnough = 64;
  return num_warps == 2 * kGroupWarps && needed > kEnough ? std::pair(24, 240) : std::pair(0, 0);
}

}  // namespace

// Address of barrier `kind` (0: full, 1: empty) of a group at the slot with number `slot` (i32).
Value* Program::barrier(int kind, int group, Value* slot) {
  const Pipeline& pipeline = pipelines_.at(tma_.loop);
  const int64_t first = pipeline.barriers + (int64_t{kind} * tma_.num_groups + group) * pipeline.slots * kBarrierBytes;
  return e_.address_of(e_.reserved(first, e_.b.CreateMul(slot, e_.i32(kBarrierBytes))));
}

void Program::init_barriers() {
  const Pipeline& pipeline = pipelines_.at(tma_.loop);
  e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(0)), [&] {
    for (int group = 0; group < tma_.num_groups; ++group)
      for (int slot = 0; slot < pipeline.slots; ++slot) {
        hopper::init_barrier(e_, barrier(0, group, e_.i32(slot)), 1);
        hopper::init_barrier(e_, barrier(1, group, e_.i32(slot)), int64_t{e_.num_warps} * tma_.cluster);
      }
    hopper::fence_barriers(e_);
  });
  if (tma_.cluster > 1) hopper::sync_cluster(e_);
  else e_.sync();
}

// The kernel in two roles. Every value is computed anew in each.
void Program::lower_specialised() {
  init_barriers();
  auto* producer = llvm::BasicBlock::Create(e_.context, "producer", e_.function);
  auto* consumer = llvm::BasicBlock::Create(e_.context, "consumer", e_.function);
  e_.b.CreateCondBr(e_.b.CreateICmpSGE(e_.warp, e_.i32(e_.num_warps)), producer, consumer);
  const auto [few, many] = register_split(product_registers(*tma_.loop, e_.num_warps), e_.num_warps);

  e_.b.SetInsertPoint(producer);
  if (few) e_.b.CreateIntrinsic(llvm::Intrinsic::nvvm_setmaxnreg_dec_sync_aligned_u32, {}, {e_.i32(few)});
  e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(int64_t{e_.num_warps} * kLanes)),
             [&] { for_each_program(1, [&] { produce(function_.body()); }); });
  if (tma_.cluster > 1) hopper::sync_cluster(e_);
  e_.b.CreateRetVoid();

  e_.b.SetInsertPoint(consumer);
  if (many) e_.b.CreateIntrinsic(llvm::Intrinsic::nvvm_setmaxnreg_inc_sync_aligned_u32, {}, {e_.i32(many)});
  e_.sync_consumers_only();
  for_each_program(0, [&] { lower_block(function_.body()); });
  e_.await_stores();                               // shared memory is there until then
  if (tma_.cluster > 1) hopper::sync_cluster(e_);  // the others still copy to this block and arrive here
}

// The role's code for this block's program, or of a persistent kernel for every one of them in turn: the ring of slots
// goes on where the program before has left it. A cluster's blocks take neighbours.
void Program::for_each_program(int parity, const std::function<void()>& body) {
  ring_ = {e_.i32(0), e_.i32(parity)};
  if (!is_persistent()) return body();
  Value* count = e_.num_programs(0);
  for (const int axis : {1, 2}) count = e_.b.CreateMul(count, e_.num_programs(axis));
  const auto [block, blocks] = e_.block_and_count();
  const auto wide = [&](Value* value) { return e_.b.CreateZExt(value, e_.b.getInt64Ty()); };
  e_.loop(wide(block), count, wide(blocks), {ring_.first, ring_.second},
          [&](Value* index, const std::vector<Value*>& state) -> std::vector<Value*> {
            ring_ = {state[0], state[1]};
            e_.set_program(e_.b.CreateTrunc(index, e_.b.getInt32Ty()));
            body();
            return {ring_.first, ring_.second};
          });
}

// Scalars and views as far as the loop needs them, and the loop's copies.
void Program::produce(const ir::Block& block) {
  for (const Op* op : block.ops) {
    if (op == tma_.loop) return produce_turns(*op);
    const bool is_index = op->results.size() == 1 && !op->results[0]->type.is_tile() && op->regions.empty();
    if (is_index && (op->info().effects == ir::OpEffects::pure || op->kind == OpKind::load_scalar)) lower_op(*op);
  }
}

std::vector<Value*> Program::next_turn(Value* slot, Value* parity) {
  Value* next = e_.b.CreateAdd(slot, e_.i32(1));
  Value* wraps = e_.b.CreateICmpEQ(next, e_.i32(pipelines_.at(tma_.loop).slots));
  return {e_.b.CreateSelect(wraps, e_.i32(0), next), e_.b.CreateXor(parity, e_.b.CreateZExt(wraps, e_.b.getInt32Ty()))};
}

void Program::produce_turns(const Op& op) {
  const auto bound = [&](size_t i) { return scalars_.at(op.operands[i]); };
  const std::vector<Value*> ring = {ring_.first, ring_.second};
  const auto last = e_.loop(bound(0), bound(1), bound(2), ring, [&](Value* index, const std::vector<Value*>& state) {
    scalars_[op.regions[0]->arguments[0]] = index;
    for (const Op* each : tma_.found.indices) lower_op(*each);
    for (int group = 0; group < tma_.num_groups; ++group) {
      hopper::await(e_, barrier(1, group, state[0]), state[1], tma_.cluster > 1);
      copy_group(group, state[0]);
    }
    return next_turn(state[0], state[1]);
  });
  ring_ = {last[0], last[1]};
}

void Program::copy_group(int group, Value* slot) {
  Value* full = barrier(0, group, slot);
  int64_t bytes = 0;
  for (const TmaStream& stream : tma_.streams)
    if (stream.group == group)
      bytes += stream.rows * stream.columns * dtype_bytes(stream.stream.load->results[0]->type.dtype);
  hopper::expect(e_, full, bytes);
  Value* offset = e_.b.CreateMul(slot, e_.i32(pipelines_.at(tma_.loop).slot_bytes));
  for (size_t i = 0; i < tma_.streams.size(); ++i)
    if (tma_.streams[i].group == group) copy_panels(i, offset, full);
}

// The panels of one stream's tile, or this block's part of their rows.
void Program::copy_panels(size_t index, Value* offset, Value* full) {
  const TmaStream& stream = tma_.streams[index];
  const Staged& tile = pipelines_.at(tma_.loop).streams[index];
  const Op& load = *stream.stream.load;
  MapPlace place = map_place(load.operands[0], stream);
  const int64_t part = stream.rows / tma_.cluster;
  Value* rank = stream.is_shared ? hopper::cluster_rank(e_) : e_.i32(0);
  Value* first_row = e_.b.CreateMul(e_.b.CreateZExt(rank, e_.b.getInt64Ty()), e_.i64(part));
  // The tile's two dimensions are where no index has fixed one.
  Value *&row = place.origin[place.open[0]], *&column = place.origin[place.open[1]];
  row = e_.b.CreateAdd(e_.b.CreateAdd(row, scalars_.at(load.operands[1])), first_row);
  column = e_.b.CreateAdd(column, scalars_.at(load.operands[2]));
  offset = e_.b.CreateAdd(offset, e_.b.CreateMul(rank, e_.i32(part * stream.panel_bytes)));
  for (int64_t panel = 0; panel < tile.num_panels(); ++panel) {
    std::vector<Value*> coordinates;  // innermost first
    for (size_t d = place.origin.size(); d-- > 0;)
      coordinates.push_back(e_.b.CreateTrunc(place.origin[d], e_.b.getInt32Ty()));
    Value* to = e_.address_of(e_.reserved(tile.first + panel * tile.panel_stride(), offset));
    if (stream.is_shared) hopper::copy_box_to_all(e_, to, place.map, coordinates, full, tma_.cluster);
    else hopper::copy_box(e_, to, place.map, coordinates, full);
    column = e_.b.CreateAdd(column, e_.i64(stream.panel_bytes / tile.element_bytes));
  }
}

// Where a view lies in the tensor map of the parameter that it is of.
Program::MapPlace Program::map_place(const ir::Value* view, const TmaTile& tile) {
  const Op* op = view->def;
  if (!op) {
    MapPlace place{e_.tensor_map(tile.maps.at(view)), {}, {}};
    for (int d = 0; d < view->type.rank; ++d)
      place.origin.push_back(e_.i64(0)), place.open.push_back(static_cast<size_t>(d));
    return place;
  }
  if (op->kind == OpKind::select) {
    MapPlace place = map_place(op->operands[1], tile);
    const MapPlace other = map_place(op->operands[2], tile);
    Value* condition = scalars_.at(op->operands[0]);
    place.map = e_.b.CreateSelect(condition, place.map, other.map);
    for (size_t d = 0; d < place.origin.size(); ++d)
      place.origin[d] = e_.b.CreateSelect(condition, place.origin[d], other.origin[d]);
    return place;
  }
  MapPlace place = map_place(op->operands[0], tile);
  if (op->kind == OpKind::at) {
    const auto axis = static_cast<std::ptrdiff_t>(op->int_attr("axis"));
    Value*& origin = place.origin[place.open[static_cast<size_t>(axis)]];
    origin = e_.b.CreateAdd(origin, scalars_.at(op->operands[1]));
    place.open.erase(place.open.begin() + axis);
  } else {
    for (size_t d = 0; d < place.open.size(); ++d)
      place.origin[place.open[d]] = e_.b.CreateAdd(place.origin[place.open[d]], scalars_.at(op->operands[1 + d]));
  }
  return place;
}

namespace {

/// The last product of the loop that reads each group.
std::vector<const Op*> last_readers(const TmaPlan& tma) {
  std::vector<const Op*> last(static_cast<size_t>(tma.num_groups));
  for (const Op* op : tma.loop->regions[0]->ops) {
    if (op->kind != OpKind::dot) continue;
    for (const TmaStream& stream : tma.streams)
      for (const size_t operand : {size_t{0}, size_t{1}})
        if (codegen::stored_operand(*op, operand) == stream.stream.load->results[0])
          last[static_cast<size_t>(stream.group)] = op;
  }
  return last;
}

}  // namespace

int Program::group_of(const ir::Value* tile) const {
  for (const TmaStream& stream : tma_.streams)
    if (stream.stream.load->results[0] == tile) return stream.group;
  return -1;
}

// Rows of a stream's tile beyond its view, where the tensor goes on: zeros, as a load gives.
void Program::clear_overhang(const TmaStream& stream, const Staged& tile) {
  const Op& load = *stream.stream.load;
  const ir::Value* view = load.operands[0];
  Value *row = scalars_.at(load.operands[1]), *size = views_.at(view).sizes[0];
  Value* is_cut = e_.b.CreateOr(e_.b.CreateICmpSLT(row, e_.i64(0)),
                                e_.b.CreateICmpSGT(e_.b.CreateAdd(row, e_.i64(stream.rows)), size));
  if (!view->def) {
    // TMA has put zeros behind a whole tensor; only a length that lies in device memory may end before the tensor does.
    Value* whole = e_.function->getArg(tma_.maps[static_cast<size_t>(stream.maps.at(view))].first_slot + 1);
    if (size == whole || llvm::isa<llvm::Constant>(size)) return;
    is_cut = e_.b.CreateAnd(is_cut, e_.b.CreateICmpSLT(size, whole));
  }
  const DType dtype = load.results[0]->type.dtype;
  const int width = static_cast<int>(16 / tile.element_bytes);
  const std::vector<Value*> zeros(static_cast<size_t>(width), llvm::Constant::getNullValue(e_.type_of(dtype)));
  e_.if_then(is_cut, [&] {
    for_some_rows(load.results[0]->type, [&](const ir::Type& part, Value* first) {
      const LinearLayout layout = copy_layout(part);
      for (int reg = 0; reg < layout.num_registers(); reg += width) {
        if (layout.representative(reg) != reg) continue;
        Value* here = e_.b.CreateAdd(coordinate(layout, reg, 0), first);
        Value* place = e_.b.CreateAdd(row, e_.b.CreateSExt(here, e_.b.getInt64Ty()));
        Value* outside = e_.b.CreateOr(e_.b.CreateICmpSLT(place, e_.i64(0)), e_.b.CreateICmpSGE(place, size));
        Value* fits = both(is_inside(layout, part, reg), is_writer(layout));
        e_.store(dtype, staged_pointer(tile, here, coordinate(layout, reg, 1)), zeros, both(fits, outside));
      }
    });
    hopper::fence_proxy(e_);
    e_.sync();
  });
}

// A tile's rows in turns of as many as the threads take 16 bytes each of, for what rarely happens: unrolled, it would
// be most of the kernel's text. `first` is i32.
void Program::for_some_rows(const ir::Type& tile, const std::function<void(const ir::Type& part, Value* first)>& body) {
  ir::Type part = tile;
  const int64_t at_once = int64_t{e_.num_warps} * kLanes * 16 / dtype_bytes(tile.dtype);
  while (part.shape[0] % 2 == 0 && part.shape[0] * part.shape[1] > at_once) part.shape[0] /= 2;
  e_.loop(e_.i64(0), e_.i64(tile.shape[0]), e_.i64(part.shape[0]), {}, [&](Value* first, const std::vector<Value*>&) {
    body(part, e_.b.CreateTrunc(first, e_.b.getInt32Ty()));
    return std::vector<Value*>{};
  });
  e_.keep_rolled();
}

void Program::await_group(int group) {
  const auto [slot, parity] = turn_;
  hopper::await(e_, barrier(0, group, slot), parity, tma_.cluster > 1);
  for (size_t i = 0; i < tma_.streams.size(); ++i)
    if (tma_.streams[i].group == group)
      clear_overhang(tma_.streams[i], in_shared_.at(tma_.streams[i].stream.load->results[0]));
}

void Program::release_group(int group, Value* slot) {
  if (tma_.cluster == 1)
    return e_.if_then(e_.b.CreateICmpEQ(e_.lane, e_.i32(0)), [&] { hopper::arrive(e_, barrier(1, group, slot)); });
  // Every block of the cluster copies to this one: one lane tells each of them.
  e_.if_then(e_.b.CreateICmpSLT(e_.lane, e_.i32(tma_.cluster)),
             [&] { hopper::arrive_at(e_, barrier(1, group, slot), e_.lane); });
}

// Waits for the streams that a product is the first to read.
void Program::await_operands(const Op& dot) {
  for (const size_t operand : {size_t{0}, size_t{1}}) {
    const int group = group_of(codegen::stored_operand(dot, operand));
    if (group >= 0 && arrived_.insert(group).second) await_group(group);
  }
}

void Program::release_operands(const Op& dot) {
  const auto last = last_readers(tma_);
  for (int group = 0; group < tma_.num_groups; ++group)
    if (last[static_cast<size_t>(group)] == &dot) release_group(group, turn_.first);
}

void Program::lower_consumed(const Op& op, const Pipeline& pipeline) {
  if (plan_overlap(op)) return lower_overlapped(op, pipeline);
  const ir::Block& body = *op.regions[0];
  const std::vector<ir::Value*> carried(body.arguments.begin() + 1, body.arguments.end());
  const std::vector<ir::Value*> inits(op.operands.begin() + 3, op.operands.end());
  const auto layouts = carried_layouts(carried, body.yielded());
  std::vector<Value*> first = flattened(inits, layouts);
  stage_residents(pipeline);
  if (!pipeline.residents.empty()) hopper::fence_proxy(e_);
  e_.sync();
  first.push_back(ring_.first);
  first.push_back(ring_.second);
  const auto bound = [&](size_t i) { return scalars_.at(op.operands[i]); };
  auto last = e_.loop(bound(0), bound(1), bound(2), first, [&](Value* index, std::vector<Value*> values) {
    turn_.second = values.back();
    values.pop_back();
    turn_.first = values.back();
    values.pop_back();
    arrived_.clear();
    const auto shared_before = in_shared_;
    find_in_shared(pipeline, e_.b.CreateMul(turn_.first, e_.i32(pipeline.slot_bytes)));
    scalars_[body.arguments[0]] = index;
    const auto [slot, parity] = turn_;
    auto next = lower_region(body, layouts, carried, values);
    in_shared_ = shared_before;
    for (Value* state : next_turn(slot, parity)) next.push_back(state);
    return next;
  });
  ring_ = {last.end()[-2], last.end()[-1]};
  last.resize(last.size() - 2);
  bind({op.results.begin(), op.results.end()}, layouts, last);
}

}  // namespace seqtile::nvptx
