// jit/sim/decode/slots.cpp -- which registers of the text are live where, and the slots that they share.
// SPDX-License-Identifier: Apache-2.0
//
// LLVM numbers registers without reuse: thousands per warp, a few hundred alive at once. Backward liveness over the
// basic blocks gives each register one interval of instructions; a linear scan packs the intervals. Lanes that went
// another way hold their own values, so divergence needs no care. Two facts are particular to PTX:
//  * the registers of a wgmma stay in use until a wait, so every wait counts as a use of whatever may be in flight;
//  * a register that is live at the kernel's start may be read before it is written: those, and only those, are
//  watched.
#include <algorithm>
#include <queue>

#include "jit/sim/decode/decode.h"

namespace seqtile::sim {
namespace {

class RegisterSet {
 public:
  explicit RegisterSet(uint32_t size) : words_((size + 63) / 64) {}
  void insert(uint32_t r) { words_[r / 64] |= uint64_t{1} << (r % 64); }
  void erase(uint32_t r) { words_[r / 64] &= ~(uint64_t{1} << (r % 64)); }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  bool contains(uint32_t r) const { return (words_[r / 64] >> (r % 64) & 1) != 0; }
  /// Adds all of `other`; true if that changed anything.
  bool merge(const RegisterSet& other) {
    bool changed = false;
    for (size_t i = 0; i < words_.size(); ++i) {
      changed |= (other.words_[i] & ~words_[i]) != 0;
      words_[i] |= other.words_[i];
    }
    return changed;
  }
  template <class F>
  void each(F f) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t left = words_[i]; left != 0; left &= left - 1)
        f(static_cast<uint32_t>(i * 64 + std::countr_zero(left)));
  }

 private:
  std::vector<uint64_t> words_;
};

struct Block {
  uint32_t first, end;
  std::vector<uint32_t> successors;
  RegisterSet live_in, in_flight;
};

struct Interval {
  uint32_t first = ~0u, last = 0;
  void cover(uint32_t at) { first = std::min(first, at), last = std::max(last, at); }
  bool is_used() const { return first <= last; }
};

class Allocator {
 public:
  Allocator(Program& program, const VirtualProgram& registers)
      : program_(program), virtual_(registers), num_(registers.num_registers), intervals_(registers.is_wide.size()) {}

  void run() {
    cut_blocks();
    if (program_.has_wgmma) find_in_flight();
    find_live();
    for (const Block& block : blocks_) walk(block, block_live_out(block), /*record=*/true);
    assign();
    set_flags();
    rewrite();
  }

 private:
  void cut_blocks() {
    const auto size = static_cast<uint32_t>(program_.code.size());
    std::vector<bool> starts(size + 1, false);
    for (const Function& function : program_.functions) starts[function.entry] = true;
    for (uint32_t i = 0; i < size; ++i) {
      const Instruction& instruction = program_.code[i];
      const auto targets = branch_targets(program_, instruction);
      for (const uint32_t target : targets) starts[target] = true;
      if (!targets.empty() || instruction.op == Op::leave || instruction.op == Op::return_) starts[i + 1] = true;
    }
    block_of_.resize(size);
    for (uint32_t i = 0; i < size; ++i) {
      if (starts[i]) blocks_.push_back({i, i, {}, RegisterSet(num_), RegisterSet(num_)});
      blocks_.back().end = i + 1;
      block_of_[i] = static_cast<uint32_t>(blocks_.size()) - 1;
    }
    for (Block& block : blocks_) {
      const Instruction& last = program_.code[block.end - 1];
      for (const uint32_t target : branch_targets(program_, last)) block.successors.push_back(block_of_[target]);
      if ((falls_through(last) || last.op == Op::trap) && block.end < size)
        block.successors.push_back(block_of_[block.end]);
    }
  }

  template <class F>
  void wgmma_registers(const Instruction& instruction, F f) const {
    const uint32_t* operands = program_.operands(instruction);
    const uint32_t count = instruction.num_destinations + (instruction.flag ? 4u : 0u);
    for (uint32_t i = 0; i < count; ++i)
      if (operands[i] < num_) f(operands[i]);
  }

  /// Forward: the registers of every wgmma that may not have been waited for at a block's start.
  void find_in_flight() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Block& block : blocks_) {
        RegisterSet flying = block.in_flight;
        for (uint32_t i = block.first; i < block.end; ++i) step_in_flight(program_.code[i], flying);
        for (const uint32_t next : block.successors) changed |= blocks_[next].in_flight.merge(flying);
      }
    }
  }

  void step_in_flight(const Instruction& instruction, RegisterSet& flying) const {
    if (instruction.op == Op::wgmma) wgmma_registers(instruction, [&](uint32_t r) { flying.insert(r); });
    if (instruction.op == Op::wgmma_wait && is_zero(program_.operands(instruction)[0])) flying.clear();
  }

  bool is_zero(uint32_t id) const {
    for (const ConstantSlot& constant : program_.constants)
      if (constant.slot == id) return constant.value == 0;
    return false;
  }

  RegisterSet block_live_out(const Block& block) const {
    RegisterSet live(num_);
    for (const uint32_t next : block.successors) live.merge(blocks_[next].live_in);
    return live;
  }

  void find_live() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = blocks_.size(); b-- > 0;)
        changed |= blocks_[b].live_in.merge(walk(blocks_[b], block_live_out(blocks_[b]), false));
    }
  }

  /// Backwards through a block from what is live at its end to what is live at its start.
  RegisterSet walk(const Block& block, RegisterSet live, bool record) {
    std::vector<RegisterSet> flying;
    if (program_.has_wgmma) flying = in_flight_at_waits(block);
    if (record) live.each([&](uint32_t r) { intervals_[r].cover(block.end - 1); });
    for (uint32_t i = block.end; i-- > block.first;) {
      const Instruction& instruction = program_.code[i];
      const uint32_t* operands = program_.operands(instruction);
      for (uint32_t k = 0; k < instruction.num_destinations; ++k) {
        if (record) intervals_[operands[k]].cover(i);
        if (operands[k] < num_ && instruction.guard < 0) live.erase(operands[k]);
      }
      const bool reads_destinations = instruction.op == Op::wgmma && !instruction.flag2;
      for (uint32_t k = reads_destinations ? 0 : instruction.num_destinations; k < instruction.num_operands; ++k)
        use(operands[k], i, live, record);
      if (instruction.guard >= 0) use(static_cast<uint32_t>(instruction.guard), i, live, record);
      if (instruction.op == Op::wgmma_wait && program_.has_wgmma) {
        flying.back().each([&](uint32_t r) { use(r, i, live, record); });
        flying.pop_back();
      }
    }
    if (record) live.each([&](uint32_t r) { intervals_[r].cover(block.first); });
    return live;
  }

  std::vector<RegisterSet> in_flight_at_waits(const Block& block) const {
    std::vector<RegisterSet> result;
    RegisterSet flying = block.in_flight;
    for (uint32_t i = block.first; i < block.end; ++i) {
      if (program_.code[i].op == Op::wgmma_wait) result.push_back(flying);
      step_in_flight(program_.code[i], flying);
    }
    return result;
  }

  void use(uint32_t id, uint32_t at, RegisterSet& live, bool record) {
    if (record) intervals_[id].cover(at);
    if (id < num_) live.insert(id);
  }

  /// Linear scan; 4-byte and 8-byte values in separate ranges, so that slots never overlap in part. Functions share no
  /// slots: the values of one live while another one runs.
  void assign() {
    slot_.assign(intervals_.size(), 0);
    uint32_t next = 0;
    for (Function& function : program_.functions) {
      for (const bool is_wide : {false, true}) {
        const uint32_t first = next;
        next = assign_range(function.first_register, function.end_register, is_wide, next);
        function.slots.push_back({first, next, is_wide});
      }
    }
    for (const bool is_wide : {false, true})
      next =
          assign_range(program_.functions.back().end_register, static_cast<uint32_t>(intervals_.size()), is_wide, next);
    for (uint32_t id = 0; id < intervals_.size(); ++id) {
      if (!is_constant(id)) continue;
      slot_[id] = next;
      next += virtual_.is_wide[id] ? 2 : 1;
    }
    program_.num_slots = next;
  }

  uint32_t assign_range(uint32_t first, uint32_t end, bool is_wide, uint32_t next) {
    std::vector<uint32_t> order;
    for (uint32_t id = first; id < end; ++id)
      if (intervals_[id].is_used() && virtual_.is_wide[id] == is_wide && !is_constant(id)) order.push_back(id);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return intervals_[a].first < intervals_[b].first; });
    return scan(order, is_wide ? 2 : 1, next);
  }

  uint32_t scan(const std::vector<uint32_t>& order, uint32_t size, uint32_t next) {
    using Busy = std::pair<uint32_t, uint32_t>;  // last instruction, slot
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    for (const uint32_t id : order) {
      if (!busy.empty() && busy.top().first < intervals_[id].first) {
        slot_[id] = busy.top().second;
        busy.pop();
      } else {
        slot_[id] = next;
        next += size;
      }
      busy.push({intervals_[id].last, slot_[id]});
    }
    return next;
  }

  bool is_constant(uint32_t id) const { return constants_.contains_id(id); }

  void set_flags() {
    RegisterSet unset(num_);
    for (const Function& function : program_.functions) unset.merge(blocks_[block_of_[function.entry]].live_in);
    unset.each([&](uint32_t r) { program_.watched.push_back(r); });
    RegisterSet in_wgmma(num_);
    for (const Instruction& instruction : program_.code)
      if (instruction.op == Op::wgmma) wgmma_registers(instruction, [&](uint32_t r) { in_wgmma.insert(r); });
    for (Instruction& instruction : program_.code) {
      const auto look = [&](uint32_t id) {
        if (id >= num_) return;
        instruction.may_be_uninitialised |= unset.contains(id);
        instruction.touches_wgmma |= in_wgmma.contains(id);
      };
      for (uint32_t k = 0; k < instruction.num_operands; ++k) look(program_.operands(instruction)[k]);
      if (instruction.guard >= 0) look(static_cast<uint32_t>(instruction.guard));
    }
  }

  void rewrite() {
    program_.num_virtual = num_;
    program_.virtual_pool = program_.pool;
    for (uint32_t& id : program_.virtual_pool)
      if (id >= num_) id = kNoRegister;
    for (uint32_t& id : program_.pool) id = slot_[id];
    for (ConstantSlot& constant : program_.constants) constant.slot = slot_[constant.slot];
    for (SpecialSlot& special : program_.specials) special.slot = slot_[special.slot];
    for (Function& function : program_.functions)
      for (FrameSlot& frame : function.frame_slots) {
        frame.slot = slot_[frame.slot];
        function.slots.push_back({frame.slot, frame.slot + (frame.is_wide ? 2 : 1), frame.is_wide});
      }
    for (Instruction& instruction : program_.code) {
      if (instruction.guard >= 0) instruction.virtual_guard = static_cast<uint32_t>(instruction.guard);
      if (instruction.guard >= 0) instruction.guard = static_cast<int32_t>(slot_[instruction.guard]);
      for (uint32_t k = 0; k < std::min<uint32_t>(instruction.num_operands, 6); ++k)
        instruction.slot[k] = program_.operands(instruction)[k];
    }
  }

  /// Ids of constants and special registers: filled once per warp, never shared.
  struct ConstantIds {
    std::vector<bool> is;
    bool contains_id(uint32_t id) const { return id < is.size() && is[id]; }
  };

  Program& program_;
  const VirtualProgram& virtual_;
  uint32_t num_;
  std::vector<Interval> intervals_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> block_of_, slot_;
  ConstantIds constants_ = [this] {
    ConstantIds ids{std::vector<bool>(intervals_.size(), false)};
    for (const ConstantSlot& constant : program_.constants) ids.is[constant.slot] = true;
    for (const SpecialSlot& special : program_.specials) ids.is[special.slot] = true;
    for (const Function& function : program_.functions)
      for (const FrameSlot& frame : function.frame_slots) ids.is[frame.slot] = true;
    return ids;
  }();
};

}  // namespace

void allocate_slots(Program& program, const VirtualProgram& registers) { Allocator(program, registers).run(); }

}  // namespace seqtile::sim
