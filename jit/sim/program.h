// jit/sim/program.h -- a kernel decoded for execution: dense instructions whose operands are all register slots.
// SPDX-License-Identifier: Apache-2.0
//
// Immediates, addresses of variables and special registers become constant slots that are filled when a warp starts, so
// an operand is an index and costs no branch. Virtual registers of the text share slots where they are never live at
// once; checks that speak of a register use its virtual number, which is unique.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/sim/lanes.h"
#include "jit/sim/ptx_module.h"

namespace seqtile::sim {

/// What the rows of ptx_ops.def and the scalar families lead to.
enum class Op : uint8_t {
  scalar,
  read_clock,
  branch,
  leave,
  trap,
  nothing,
  sleep,
  set_registers,
  load,
  store,
  atomic,
  prefetch,
  prefetch_map,
  make_policy,
  shuffle,
  vote,
  ballot,
  match_any,
  match_all,
  reduce_warp,
  active_mask,
  elect,
  sync_warp,
  bar_sync,
  bar_arrive,
  bar_reduce,
  cluster_arrive,
  cluster_wait,
  fence_async,
  fence_init,
  fence,
  mbarrier_init,
  mbarrier_inval,
  mbarrier_arrive,
  mbarrier_expect,
  mbarrier_complete,
  mbarrier_wait,
  map_rank,
  rank_of,
  copy_async,
  copy_commit,
  copy_wait,
  copy_arrive,
  bulk_commit,
  bulk_wait,
  tensor_load,
  tensor_store,
  bulk_load,
  bulk_store,
  load_matrix,
  store_matrix,
  mma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  wgmma,
};

/// How the counters group instructions.
enum class InstructionClass : uint8_t {
  integer,
  floating,
  move,
  control,
  memory,
  warp,
  barrier,
  async,
  matrix,
  tensor
};
constexpr int kNumInstructionClasses = 10;

/// PTX memory orders; weak is neither of the strong ones.
enum class Order : uint8_t { weak, relaxed, acquire, release, acq_rel, sc };
enum class Scope : uint8_t { cta, cluster, gpu, sys };
enum class AtomicOp : uint8_t { add, inc, dec, min, max, bit_and, bit_or, bit_xor, exch, cas };

constexpr uint32_t kNoRegister = ~0u;

struct Instruction {
  ScalarFn scalar = nullptr;
  uint32_t slot[6] = {};  ///< the first operands
  uint32_t pool = 0;      ///< of all operands: index into Program::pool
  uint32_t aux = 0;       ///< of a scalar function; mode of shuffles, votes, reductions
  int32_t guard = -1;     ///< slot
  uint32_t virtual_guard = kNoRegister;
  int64_t offset = 0;   ///< of the (first) memory operand
  int64_t offset2 = 0;  ///< of the second one
  int64_t offset3 = 0;  ///< of the third one
  uint32_t target = 0;  ///< of a branch
  int32_t line = 0;
  uint16_t num_operands = 0, num_destinations = 0;
  Op op = Op::scalar;
  InstructionClass kind = InstructionClass::integer;
  PtxSpace space = PtxSpace::generic;
  PtxType type = PtxType::none, type2 = PtxType::none;
  Order order = Order::weak;
  Scope scope = Scope::sys;
  AtomicOp atomic = AtomicOp::add;
  uint8_t width = 0;   ///< bytes of one element in memory, of an accumulator
  uint8_t vector = 1;  ///< elements; blocks of 8 columns of a wgmma; rank of a tensor; k of an mma
  bool is_guard_negated = false;
  bool is_wide = false;  ///< value registers or addresses have 64 bits
  bool is_address_wide = false;
  bool may_be_uninitialised = false;  ///< an operand is a register that some path reads before it writes
  bool touches_wgmma = false;         ///< an operand is also a register of some wgmma
  bool flag = false;  ///< no count of bar.sync, trans of ldmatrix, multicast of a load, reduction of a store, parity of
                      ///< a wait, RS of a wgmma
  bool flag2 = false;  ///< read of a bulk wait, a predicate destination of a shuffle, zeroing wgmma, expect_tx
};

struct ConstantSlot {
  uint32_t slot;
  bool is_wide;
  uint64_t value;
};

enum class Special : uint8_t {
#define SEQTILE_SPECIAL(name, text) name,
#include "jit/sim/special_registers.def"
#undef SEQTILE_SPECIAL
};

struct SpecialSlot {
  uint32_t slot;
  Special what;
  bool is_wide;
};

struct Program {
  std::string kernel;
  std::shared_ptr<const PtxModule> module;  ///< the lines for reports
  std::vector<Instruction> code;
  std::vector<uint32_t> pool;          ///< operand slots
  std::vector<uint32_t> virtual_pool;  ///< beside it: virtual registers, kNoRegister for constants
  std::vector<ConstantSlot> constants;
  std::vector<SpecialSlot> specials;
  uint32_t num_slots = 0, num_virtual = 0;
  std::vector<uint32_t> watched;  ///< virtual registers that some path reads before it writes them
  int64_t static_shared_bytes = 0, local_bytes = 0;
  std::vector<PtxVariable> params;
  int64_t param_bytes = 0;
  int required_threads = 0, max_registers = 0;  ///< 0: the text does not say
  bool has_wgmma = false;
  /// By instruction: from here the text cannot reach its end. Empty where there is no such place.
  std::vector<bool> never_ends;
  /// Module variables in the global and constant spaces: name, place, bytes. The storage is shared by copies.
  struct Global {
    std::string name;
    std::shared_ptr<std::vector<uint64_t>> storage;
    int64_t bytes;
    bool is_constant;
  };
  std::vector<Global> globals;

  const uint32_t* operands(const Instruction& instruction) const { return pool.data() + instruction.pool; }
};

/// Decodes one kernel of the module. Errors: compile_failed naming line and form where the machine does not know it;
/// invalid_argument where the module has no such kernel.
Program decode(const PtxModule& module, std::string_view kernel);
/// parse_ptx and decode in one step.
Program decode_text(std::string_view ptx, std::string_view kernel);

}  // namespace seqtile::sim
