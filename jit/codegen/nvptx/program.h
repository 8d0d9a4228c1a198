// jit/codegen/nvptx/program.h -- the state of lowering one function for GPUs: what each tile-IR value has become.
// SPDX-License-Identifier: Apache-2.0
//
// Scalars and views are lowered in program order and are the same in all threads of a block. Tiles are pulled: a store
// asks for its tile in the layout that makes its own accesses wide, and so on down the expression. Elementwise values
// and loads are computed in the layout that they are asked for. Products, reductions and loop-carried tiles have a
// layout of their own; it is converted, by way of shared memory where threads must exchange elements. A load happens
// where its value is first asked for, but before the next write to memory that it may overlap. A layout may cover more
// than the tile: elements of this overhang hold anything. Loads and stores leave the overhang out, reductions replace
// it.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/analysis/aliasing.h"
#include "jit/analysis/streams.h"
#include "jit/codegen/nvptx/emitter.h"
#include "jit/codegen/nvptx/hopper/tma_plan.h"
#include "jit/codegen/nvptx/layout/linear_layout.h"
#include "seqtile/device.h"
#include "seqtile/ir.h"

namespace seqtile::nvptx {

/// A view at run time; strides in elements, constants where known.
struct ViewRef {
  llvm::Value* base = nullptr;
  std::vector<llvm::Value*> sizes, strides;
};

/// The elements of a tile that one thread holds, in the order of the layout's registers.
struct Held {
  LinearLayout layout;
  std::vector<llvm::Value*> registers;
};

constexpr int64_t kPanelAlignment = 1024;  ///< bytes, for tiles in shared memory: the repetition of the widest swizzle
constexpr int64_t kMmaStepBytes = 32;      ///< bytes of k in one mma.sync: two 16-byte chunks

/// A tile in shared memory, where products read it: rows one after the other, or panels of neighbouring columns.
struct Staged {
  SharedLayout layout;    ///< layout of whole rows, or of a panel's rows
  int64_t rows, columns;  ///< including zeros up to whole instructions
  int64_t element_bytes;
  int64_t first = 0;  ///< byte of the scratch or of the reserved shared memory
  bool is_reserved = false;
  llvm::Value* slot = nullptr;  ///< reserved memory: i32 bytes to add at run time
  int64_t num_panels() const { return columns * element_bytes / layout.row_bytes(); }
  int64_t panel_stride() const { return rows * layout.row_bytes(); }
  int64_t bytes() const { return rows * columns * element_bytes; }
};

/// An integer of the function's schedule: "num_warps", "num_stages".
int schedule_of(const ir::Function& function, std::string_view name, int fallback);

/// A loop whose streams are copied to shared memory turns (iterations) ahead: `slots` buffers for each stream, all in
/// one region of shared memory.
struct Pipeline {
  codegen::StreamedLoop loop;
  std::vector<Staged> streams, residents;  ///< places in slot 0
  int64_t slot_bytes = 0, bytes = 0;
  int64_t barriers = 0;  ///< byte of the first barrier, where TMA copies
  int slots = 0;
};

/// 16-bit floats are summed in f32.
DType accumulator_of(DType dtype);
/// One step of a reduction or scan of `kind`.
llvm::Value* combine_values(Emitter& e, std::string_view kind, llvm::Value* a, llvm::Value* b);

class Program {
 public:
  Program(llvm::Module& module, const Target& target, const ir::Function& function);
  ~Program();
  void lower();
  GpuLaunch launch() const;

 private:
  // program.cpp: parameters, blocks, scalars, views
  void bind_parameters();
  void note_positions(const ir::Block& block);
  void lower_portable();
  bool is_in_order() const;
  /// Whether a block runs several programs, one after the other.
  bool is_persistent() const;
  void lower_block(const ir::Block& block);
  void lower_op(const ir::Op& op);
  void check_shared(const ir::Op& op) const;
  void lower_scalar(const ir::Op& op);
  void lower_view(const ir::Op& op);
  void lower_assume(const ir::Op& op);
  [[noreturn]] void fail(const ir::Op& op, const std::string& why) const;
  // control.cpp: loops and branches
  void lower_for(const ir::Op& op);
  void lower_if(const ir::Op& op);
  void lower_while(const ir::Op& op);
  /// Binds the block's arguments, lowers its operations and returns the operands of its yield, flattened.
  std::vector<llvm::Value*> lower_region(const ir::Block& block, const std::vector<LinearLayout>& layouts,
                                         const std::vector<ir::Value*>& arguments = {},
                                         const std::vector<llvm::Value*>& flat = {});
  /// Tiles held and loads opened between open_scope() and close_scope() do not reach the code behind.
  struct Scope {
    size_t mark;
    std::vector<const ir::Op*> open_loads;
  };
  Scope open_scope() const { return {held_order_.size(), open_loads_}; }
  void close_scope(const Scope& scope);
  std::vector<llvm::Value*> flattened(const std::vector<ir::Value*>& values, const std::vector<LinearLayout>& layouts);
  /// Gives `values` their registers from a flat list, in the layouts that flattened() used.
  void bind(const std::vector<ir::Value*>& values, const std::vector<LinearLayout>& layouts,
            const std::vector<llvm::Value*>& flat);
  std::vector<LinearLayout> carried_layouts(const std::vector<ir::Value*>& carried,
                                            const std::vector<ir::Value*>& yielded);
  void pin_loads_for(const ir::Op& op);

  // arithmetic.cpp: one element
  llvm::Value* arithmetic(const ir::Op& op, const std::vector<llvm::Value*>& operands);

  // layouts.cpp: which layout a tile would like
  LinearLayout preferred(const ir::Value* tile);
  LinearLayout default_layout(const ir::Type& type) const;
  LinearLayout preferred_elementwise(const ir::Op& op);

  // tiles.cpp: pulling tiles
  const std::vector<llvm::Value*>& pull(const ir::Value* tile, const LinearLayout& layout);
  const Held& pull(const ir::Value* tile);
  std::vector<llvm::Value*> pull_converted(const ir::Value* tile, const LinearLayout& from, const LinearLayout& to);
  std::vector<llvm::Value*> compute(const ir::Value* tile, const LinearLayout& layout);
  std::vector<llvm::Value*> elementwise(const ir::Op& op, const LinearLayout& layout);
  std::vector<llvm::Value*> broadcast(const ir::Op& op, const LinearLayout& layout);
  std::vector<llvm::Value*> pull_half(const ir::Op& op, int half, const LinearLayout& layout);
  std::vector<llvm::Value*> join(const ir::Op& op, const LinearLayout& layout);
  std::vector<llvm::Value*> rearrange(const ir::Op& op, const LinearLayout& layout);
  llvm::Value* flat_index(const LinearLayout& layout, const ir::Type& type, int reg, int64_t columns);
  const Held* held(const ir::Value* tile, const LinearLayout& layout) const;
  const Held& hold(const ir::Value* tile, LinearLayout layout, std::vector<llvm::Value*> registers);

  // exchange.cpp: tiles from one layout into another, and the elements that a thread holds
  Staged exchanged(const LinearLayout& from, const LinearLayout& to, int64_t bytes) const;
  std::vector<llvm::Value*> convert(const Held& from, const LinearLayout& to, const ir::Type& type);
  /// The thread's share of the coordinates of `layout`; computed once.
  const std::array<llvm::Value*, kMaxRank>& thread_share(const LinearLayout& layout);
  /// Coordinate `axis` of register `reg`.
  llvm::Value* coordinate(const LinearLayout& layout, int reg, int axis);
  /// Whether register `reg` holds an element of `type`, or null where it always does.
  llvm::Value* is_inside(const LinearLayout& layout, const ir::Type& type, int reg);
  /// Whether this thread is the one that writes, if several threads hold the same elements. Null: each has its own.
  llvm::Value* is_writer(const LinearLayout& layout);
  llvm::Value* both(llvm::Value* a, llvm::Value* b);  ///< null stands for true

  // masks.cpp: masks that hold for a whole tile are not applied
  struct Bounds {
    llvm::Value *least, *most;  ///< i64
  };
  std::optional<Bounds> bounds_of(const ir::Value* tile);
  llvm::Value* holds_everywhere(const ir::Value* mask);
  std::optional<std::vector<llvm::Value*>> masked(const ir::Op& op, const LinearLayout& layout);

  // ordering.cpp: barriers between accesses of the block's threads
  struct Touch {
    ir::Region region;
    bool is_write;
    std::optional<LinearLayout> layout;  ///< set if only one thread touches each element
    const ir::Op* loop;                  ///< not null: the touch was in earlier turns of this loop
    bool conflicts_with(const Touch& next) const;
  };
  struct OpenRegion {
    std::vector<Touch> touches;  ///< since the last barrier before the region
    int num_syncs;
  };
  /// Called before the code of every access. `layout`: the tile's layout; null for one element.
  void order_access(const ir::Op& op, const LinearLayout* layout = nullptr);
  /// order_access() for the first of a loop's copies to shared memory. All of them have arrived when the loop ends.
  void order_copies(const Pipeline& pipeline);
  void sync_before(const Touch& touch);
  bool feeds_only_stores(const ir::Value* tile) const;
  /// Whether only the threads that would write a load's elements read them.
  bool reads_as_writer(const ir::Op& op, const LinearLayout& layout) const;
  std::vector<Touch>& open_touches();
  OpenRegion open_region() { return {open_touches(), e_.num_syncs()}; }
  void note_turns(const ir::Block& block, const ir::Op& loop);
  bool is_streamed(const ir::Op& load, const ir::Op& loop) const;
  void close_region(const OpenRegion& region);

  // memory.cpp: loads and stores
  std::vector<llvm::Value*> load(const ir::Op& op, const LinearLayout& layout);
  std::vector<llvm::Value*> gather(const ir::Op& op, const LinearLayout& layout);
  void store(const ir::Op& op);
  void scatter(const ir::Op& op);
  int row_width(const ir::Op& op, const ir::Type& tile, const LinearLayout& layout) const;
  void lower_element(const ir::Op& op);
  void prefetch(const ir::Op& op);
  llvm::Value* element_address(const ir::Op& op);
  void pin_loads_before(const ir::Op& write);
  bool is_needed_after(const ir::Value* tile, const ir::Op& op) const;
  /// Place of a group of neighbouring registers in a view. `inside`: whether the group is inside; null: it is.
  struct Address {
    llvm::Value *pointer, *inside;
  };
  Address address(const ir::Value* view, const std::vector<llvm::Value*>& position, const ir::Type& tile,
                  const LinearLayout& layout, int reg, int width, const std::vector<bool>& is_checked);
  Address row_address(const ir::Op& op, const ir::Type& tile, const LinearLayout& layout,
                      const std::vector<llvm::Value*>& indices, int reg, int width);
  int vector_width(const ir::Value* view, const ir::Value* offset, const LinearLayout& layout) const;
  /// One access of a load or store: how many elements it moves, which dimensions need a check against the view's size,
  /// and its position.
  struct Access {
    int width;
    std::vector<bool> is_checked;
    std::vector<llvm::Value*> position;
  };
  int access_width(const ir::Op& op, const ir::Type& tile, const LinearLayout& layout) const;
  Access access_of(const ir::Op& op, const ir::Type& tile, const LinearLayout& layout);
  // synchronisation.cpp: atomics and flags; one thread acts for the block
  void lower_sync(const ir::Op& op);
  void lower_fence(const ir::Op& op);
  void lower_griddep(const ir::Op& op);
  void lower_atomic_load(const ir::Op& op);
  void lower_wait_ge(const ir::Op& op);
  void lower_signal(const ir::Op& op);
  void lower_cas(const ir::Op& op);
  void lower_atomic(const ir::Op& op);
  llvm::Value* flag_address(const ir::Op& op);
  void by_first_thread(DType dtype, const std::string& text, llvm::Value* address, llvm::Value* value);
  llvm::Value* from_first_thread(DType dtype, const std::function<llvm::Value*()>& act);
  // await.cpp: waits for other ranks, and their clock
  void lower_await(const ir::Op& op);
  void lower_clock(const ir::Op& op);

  // staging.cpp: tiles in shared memory
  Staged staged_operand(const ir::Op& dot, size_t operand);
  const Staged* in_shared(const ir::Value* tile) const;
  void stage(const ir::Value* tile, const Staged& to);
  llvm::Value* staged_pointer(const Staged& at, llvm::Value* row, llvm::Value* column);
  void zero_beyond(const Staged& to, DType dtype, int64_t rows, int64_t columns);

  // pipeline.cpp: loops whose operands are copied to shared memory turns ahead
  void plan_pipelines(const ir::Block& block);
  std::optional<Pipeline> plan_pipeline(const ir::Op& loop);
  Pipeline plan_specialised();
  LinearLayout copy_layout(const ir::Type& tile) const;
  void copy_async(const ir::Op& load, const Staged& to, llvm::Value* is_wanted);
  void fetch_turn(const Pipeline& pipeline, llvm::Value* index, llvm::Value* slot);
  void stage_residents(const Pipeline& pipeline);
  void find_in_shared(const Pipeline& pipeline, llvm::Value* slot);
  void clear_slots(const Pipeline& pipeline);
  void lower_pipelined(const ir::Op& op, const Pipeline& pipeline);

  // specialised.cpp: Hopper's loop
  llvm::Value* barrier(int kind, int group, llvm::Value* slot);
  void init_barriers();
  void lower_specialised();
  void for_each_program(int parity, const std::function<void()>& body);
  void produce(const ir::Block& block);
  void produce_turns(const ir::Op& op);
  void copy_group(int group, llvm::Value* slot);
  void copy_panels(size_t stream, llvm::Value* offset, llvm::Value* full);
  /// Coordinates of a view's first element in a tensor map, and which of its dimensions are the view's.
  struct MapPlace {
    llvm::Value* map;
    std::vector<llvm::Value*> origin;
    std::vector<size_t> open;
  };
  MapPlace map_place(const ir::Value* view, const TmaTile& tile);
  std::vector<llvm::Value*> next_turn(llvm::Value* slot, llvm::Value* parity);
  int group_of(const ir::Value* tile) const;
  void clear_overhang(const TmaStream& stream, const Staged& tile);
  void for_some_rows(const ir::Type& tile, const std::function<void(const ir::Type& part, llvm::Value* first)>& body);
  void await_group(int group);
  void release_group(int group, llvm::Value* slot);
  void await_operands(const ir::Op& dot);
  void release_operands(const ir::Op& dot);
  void lower_consumed(const ir::Op& op, const Pipeline& pipeline);

  // tma_store.cpp: results that leave by TMA
  void store_by_tma(const ir::Op& op);
  bool store_matrices(const ir::Value* tile, const Staged& to);
  void copy_out(const ir::Op& op, const Staged& from);
  void copy_out_inside(const ir::Op& op, const Staged& from);

  // wgmma.cpp: products of warp groups
  bool is_in_tma_loop(const ir::Op& dot) const { return tma_.loop && dot.parent == tma_.loop->regions[0]; }
  llvm::Value* descriptor(const Staged& tile, llvm::Value* row, bool is_n_major);
  LinearLayout wgmma_operand_layout(const ir::Op& op) const;
  std::vector<llvm::Value*> wgmma_words(const ir::Op& op);
  std::vector<llvm::Value*> wgmma_sums(const ir::Op& op);
  void issue_wgmma(const ir::Op& op, const std::vector<llvm::Value*>& words, const Staged& right,
                   std::vector<llvm::Value*>& sums);
  void lower_wgmma(const ir::Op& op);

  // overlapped.cpp: attention's two products
  struct Overlap;
  std::optional<Overlap> plan_overlap(const ir::Op& loop) const;
  std::vector<llvm::Value*> issue_first(llvm::Value* index);
  std::vector<llvm::Value*> issue_second(const Pipeline& pipeline);
  void issue_turn(const Pipeline& pipeline, llvm::Value* index, llvm::Value* has_first);
  void lower_first(const ir::Op& dot);
  void lower_second(const ir::Op& dot);
  void finish_second();
  void lower_turn(const ir::Block& body, const std::vector<LinearLayout>& layouts);
  void lower_turns(const ir::Op& op, const Pipeline& pipeline, const std::vector<LinearLayout>& layouts);
  void lower_overlapped(const ir::Op& op, const Pipeline& pipeline);

  // dot.cpp: products by mma.sync
  bool is_chained(const ir::Op& dot) const;
  LinearLayout dot_layout(const ir::Op& dot) const;
  std::vector<llvm::Value*> load_turned_rows(const Staged& left, llvm::Value* first, int64_t k);
  std::vector<llvm::Value*> load_matrices(const Staged& from, llvm::Value* row, llvm::Value* chunk, bool is_transposed);
  std::vector<llvm::Value*> load_columns(const Staged& right, bool by_columns, llvm::Value* first, int64_t step,
                                         int64_t k);
  void multiply_once(DType dtype, const std::vector<llvm::Value*>& words, llvm::Value** sums);
  void multiply(const ir::Op& dot, const std::vector<llvm::Value*>& a, const std::vector<llvm::Value*>& b,
                llvm::Value** sums);
  llvm::Value* warp_share(const LinearLayout& layout, int axis);
  std::vector<llvm::Value*> packed_fragment(const LinearLayout& layout, const std::vector<llvm::Value*>& values, int i,
                                            int64_t step);
  struct DotOperands {
    Staged left, right;
    LinearLayout fragment_layout;         ///< layout of `fragments`
    std::vector<llvm::Value*> fragments;  ///< operand a in registers; empty: operand a is `left`
  };
  DotOperands prepare_operands(const ir::Op& op, const LinearLayout& layout);
  void lower_dot(const ir::Op& op);

  // reductions.cpp
  /// Values that a reduction carries for one result: the value; for argreduce also its index.
  using Partial = std::vector<llvm::Value*>;
  void lower_reduce(const ir::Op& op);
  Partial combine(const ir::Op& op, const Partial& a, const Partial& b);
  std::vector<Partial> reduce_in_warp(const ir::Op& op, const LinearLayout& whole);
  std::vector<Partial> reduce_across_warps(const ir::Op& op, const LinearLayout& whole, std::vector<Partial> partial);
  // scan.cpp
  void lower_scan(const ir::Op& op);
  void scan_in_lanes(const ir::Op& op, const LinearLayout& layout, std::vector<llvm::Value*>& values);

  const ir::Function& function_;
  codegen::Users users_;
  TmaPlan tma_;
  Emitter e_;
  std::unordered_map<const ir::Value*, llvm::Value*> scalars_;
  std::unordered_map<const ir::Value*, ViewRef> views_;
  /// Deques keep references valid; entries of an inner block are dropped at its end.
  std::unordered_map<const ir::Value*, std::deque<Held>> held_;
  std::vector<const ir::Value*> held_order_;
  std::unordered_map<const ir::Value*, LinearLayout> preferred_;  ///< earlier answers of preferred(), or set layouts
  int vector_ = 1;  ///< neighbours that a thread holds in default layouts: 16 bytes of the narrowest float
  std::vector<std::pair<LinearLayout, std::array<llvm::Value*, kMaxRank>>> shares_;
  std::unordered_map<const ir::Op*, int> position_;  ///< place in the text
  std::vector<const ir::Op*> open_loads_;            ///< loads that may still happen, of the blocks around
  std::vector<Touch> touches_;                       ///< touches since barrier number touches_after_
  int touches_after_ = 0;
  std::unordered_map<const ir::Op*, Pipeline> pipelines_;   ///< by loop
  std::pair<llvm::Value*, llvm::Value*> ring_;              ///< slot and parity that the role's next loop starts with
  std::pair<llvm::Value*, llvm::Value*> turn_;              ///< number and parity of the slot that consumers read now
  bool is_cooperative_ = false;                             ///< the program waits for other programs
  bool is_reserved_used_ = false;                           ///< an earlier loop has used the reserved memory
  std::unique_ptr<Overlap> overlap_;                        ///< state of the overlapped loop that is being lowered
  std::set<int> arrived_;                                   ///< groups of streams that this turn has waited for
  std::unordered_map<const ir::Value*, Staged> in_shared_;  ///< tiles that products find in shared memory now
};

}  // namespace seqtile::nvptx
