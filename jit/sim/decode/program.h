// jit/sim/decode/program.h -- a kernel decoded for execution: dense instructions whose operands are all register slots.
// SPDX-License-Identifier: Apache-2.0
//
// Immediates, addresses of variables and special registers become constant slots that are filled when a warp starts, so
// an operand is an index and costs no branch. Virtual registers of the text share slots where they are never live at
// once; checks that speak of a register use its virtual number, which is unique.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/ptx/ptx_module.h"
#include "jit/sim/values/lanes.h"

namespace seqtile::sim {

/// Operations of the machine. The rows of ptx_ops.def and the scalar families are decoded to them.
enum class Op : uint8_t {
  scalar,
  read_clock,
  branch,
  branch_indexed,
  call,
  return_,
  print,
  assert_fail,
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
  wmma_load,
  wmma_store,
  wmma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  wgmma,
};

/// Groups of instructions, for the counters.
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
  uint32_t pool = 0;      ///< index into Program::pool, where all operands are
  uint32_t aux = 0;       ///< argument of a scalar function; mode of a shuffle, vote, reduction; index of a call
  int32_t guard = -1;     ///< slot
  uint32_t virtual_guard = kNoRegister;
  int64_t offset = 0;   ///< offset of the (first) memory operand
  int64_t offset2 = 0;  ///< offset of the second memory operand
  int64_t offset3 = 0;  ///< offset of the third memory operand
  uint32_t target = 0;  ///< target of a branch; brx.idx: how many targets begin at `aux` in Program::targets
  int32_t line = 0;
  uint16_t num_operands = 0, num_destinations = 0;
  Op op = Op::scalar;
  InstructionClass kind = InstructionClass::integer;
  PtxSpace space = PtxSpace::generic;
  PtxType type = PtxType::none, type2 = PtxType::none;
  Order order = Order::weak;
  Scope scope = Scope::sys;
  AtomicOp atomic = AtomicOp::add;
  uint8_t width = 0;   ///< bytes of one element in memory, or of an accumulator
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
#include "jit/ptx/special_registers.def"
#undef SEQTILE_SPECIAL
};

struct SpecialSlot {
  uint32_t slot;
  Special what;
  bool is_wide;
};

/// A slot that holds, in each lane, the address of a variable in the frame of the function that runs.
struct FrameSlot {
  uint32_t slot;
  uint64_t offset;  ///< the address where the frame begins at 0
  bool is_wide;
};

/// A function of the text, or the kernel. Its variables in .local and .param memory are its frame.
struct Function {
  std::string name;
  uint32_t entry = 0;                             ///< index of the first instruction
  uint32_t first_register = 0, end_register = 0;  ///< its virtual registers
  int64_t frame_bytes = 0;
  bool is_recursive = false;  ///< a call from here may come back here
  std::vector<FrameSlot> frame_slots;
  /// The slots of the function's registers and frame addresses, which a recursive call may overwrite.
  struct Slots {
    uint32_t first, end;  ///< a wide value takes two
    bool is_wide;
  };
  std::vector<Slots> slots;
};

/// An argument or result of a call: from one frame to the other, or between a frame and a register.
struct CallMove {
  int operand = -1;                                 ///< the instruction's operand, where a register is one side
  int64_t of_caller = 0, of_callee = 0, bytes = 0;  ///< offsets in the frames
};

struct Call {
  uint32_t caller = 0, callee = 0;  ///< indices in Program::functions; a system call has no callee
  std::vector<CallMove> arguments, results;
};

struct Program {
  std::string kernel;
  std::shared_ptr<const PtxModule> module;  ///< the lines for reports
  std::vector<Instruction> code;
  std::vector<uint32_t> pool;          ///< operand slots
  std::vector<uint32_t> virtual_pool;  ///< for each entry of `pool`: the virtual register; kNoRegister for constants
  std::vector<ConstantSlot> constants;
  std::vector<SpecialSlot> specials;
  std::vector<Function> functions;  ///< each after the functions that it calls, the kernel last
  std::vector<Call> calls;
  std::vector<uint32_t> targets;  ///< instructions that brx.idx may lead to
  uint32_t num_slots = 0, num_virtual = 0;
  std::vector<uint32_t> watched;  ///< virtual registers that some path reads before it writes them
  int64_t static_shared_bytes = 0;
  std::string dynamic_shared;  ///< name of the .extern .shared variable that the kernel uses; empty: none
  int64_t local_bytes = 0;  ///< a thread's local memory: the frames of the deepest chain of calls
  std::vector<PtxVariable> params;
  int64_t param_bytes = 0;
  std::array<int, 3> required_block = {0, 0, 0}, required_cluster = {0, 0, 0};  ///< zeros: the text does not say
  int max_threads = 0, max_registers = 0;                                       ///< 0: the text does not say
  bool has_wgmma = false;
  /// By instruction: whether no path leads from it to the end. Empty where there is no such instruction.
  std::vector<bool> never_ends;
  /// Module variables in the global and constant spaces: name, place, bytes. The storage is shared by copies.
  struct Global {
    std::string name;
    std::shared_ptr<std::vector<uint64_t>> storage;
    int64_t bytes;
    bool is_constant;
  };
  std::vector<Global> globals;
  /// Address at which cooperative groups keep the barrier of a cooperative grid; 0 where the kernel does not ask.
  uint64_t grid_workspace = 0;

  const Function& entry() const { return functions.back(); }
  const uint32_t* operands(const Instruction& instruction) const { return pool.data() + instruction.pool; }
};

/// Decodes one kernel of the module and the functions that it reaches. Errors: compile_failed naming line and form
/// where the machine does not know it; invalid_argument where the module has no such kernel.
Program decode(const PtxModule& module, std::string_view kernel);
/// parse_ptx and decode in one step.
Program decode_text(std::string_view ptx, std::string_view kernel);

}  // namespace seqtile::sim
