// jit/codegen/cpu/program.h -- the state of lowering one function: what each tile-IR value has become so far.
// SPDX-License-Identifier: Apache-2.0
//
// Scalars and views are lowered in program order. Tiles are not: a tile is an expression that is evaluated, one vector
// of elements at a time, inside the loops of the root that needs it (tile_eval.cpp). Only roots make loops: stores,
// reductions, and tiles that a product, a branch or a second pass reads from memory. Roots with the same outer
// dimensions wait in a row group and share one loop over rows (row_group.cpp). Products have stages of their own
// (dot_stage.cpp, contraction.cpp). Tensors of one call may overlap only as the same tensor (in place): a row is read
// before it is written.
#pragma once
#include <map>
#include <set>
#include <unordered_map>

#include "jit/codegen/cpu/dims.h"
#include "jit/codegen/cpu/emitter.h"
#include "jit/codegen/cpu/kernels/micro_kernel.h"
#include "seqtile/ir.h"

namespace seqtile::cpu {

/// A view at run time.
struct ViewRef {
  llvm::Value* base = nullptr;
  std::vector<llvm::Value*> sizes, strides;  ///< strides in elements; constants where known
};

/// A tile in the arena, in storage representation. A stride of 0 means that the dimension is not kept (one row is
/// live).
struct Buffer {
  int64_t offset = 0;  ///< in the arena
  DType dtype = DType::f32;
  std::vector<int64_t> strides;
};

/// One position of an index: a scalar, or `lanes` positions base, base + stride, ...
struct Axis {
  llvm::Value* base = nullptr;
  bool is_vector = false;
  int64_t stride = 1;
  bool operator<(const Axis& o) const {
    return std::tie(base, is_vector, stride) < std::tie(o.base, o.is_vector, o.stride);
  }
};

/// The elements at which a tile is evaluated: one axis per dimension, at most one of them a vector.
struct Index {
  int lanes = 1;
  std::vector<Axis> axes;
  llvm::Value* mask = nullptr;  ///< lanes that count; other lanes may hold anything
  bool has_vector() const {
    for (const Axis& axis : axes)
      if (axis.is_vector) return true;
    return false;
  }
};

/// A reason to compute a tile.
struct Root {
  enum class Kind { store, reduce, materialise } kind;
  const ir::Op* op = nullptr;        ///< store, store_add, reduce
  const ir::Value* value = nullptr;  ///< the tile to evaluate
  Buffer buffer;                     ///< materialise: the destination; reduce: the buffer of the result
  int level = 0;                     ///< passes over the row that must come before
  bool is_private = false;           ///< materialise: later groups do not read `buffer` for this value
  bool in_place = false;             ///< materialise: `buffer` is read by earlier passes of the row
  int64_t shift = 0;                 ///< store: added to the column, for a part of a concatenation
};

/// The count of a loop over a dimension, and a number that is known to divide it.
struct Limit {
  llvm::Value* count;
  int64_t divisor;
};

class Program {
 public:
  Program(llvm::Module& module, const Target& target, const ir::Function& function);
  void lower();
  int64_t arena_bytes() const { return e_.arena_bytes(); }

 private:
  // program.cpp: blocks, scalars, views, memory for tiles
  void bind_parameters();
  void number(const ir::Block& block);
  void lower_block(const ir::Block& block);
  void lower_op(const ir::Op& op);
  void lower_scalar(const ir::Op& op);
  void lower_view(const ir::Op& op);
  void lower_shape(const ir::Op& op);
  bool is_only_stored(const ir::Value* tile) const;
  void lower_reduce(const ir::Op& op);
  void lower_store(const ir::Op& op);
  Buffer reserve_tile(const ir::Type& type);
  Buffer reserve_row(const ir::Type& type);
  Buffer reserve_dense(const ir::Type& type);
  void copy_to(const ir::Value* tile, const Buffer& buffer);
  [[noreturn]] void fail(const ir::Op& op, const std::string& why) const;
  // arithmetic.cpp: values in registers
  llvm::Value* float_arithmetic(const ir::Op& op, const std::vector<llvm::Value*>& operands);
  llvm::Value* scalar_arithmetic(const ir::Op& op, const std::vector<llvm::Value*>& operands);
  // control.cpp: loops and branches, tiles that cross them
  void lower_for(const ir::Op& op);
  void lower_if(const ir::Op& op);
  void lower_while(const ir::Op& op);
  void yield_into(const std::vector<ir::Value*>& yielded, size_t first, const std::vector<const ir::Value*>& carried,
                  std::vector<llvm::Value*>& next_scalars);
  void copy_buffer(const Buffer& from, const Buffer& to, const ir::Type& type);
  // memory_ops.cpp: element accesses, scatter, atomics and flags, random numbers
  void lower_rand(const ir::Op& op);
  void lower_scatter(const ir::Op& op);
  void lower_sync(const ir::Op& op);
  void lower_await(const ir::Op& op);
  void lower_clock(const ir::Op& op);
  void lower_element(const ir::Op& op);
  llvm::Value* element_address(const ir::Op& op);

  // tile_eval.cpp: one vector of a tile's elements
  llvm::Value* eval(const ir::Value* value, const Index& index);
  llvm::Value* compute(const ir::Value* value, const Index& index);
  llvm::Value* compute_shape(const ir::Op& op, const ir::Value* value, const Index& index);
  llvm::Value* compute_join(const ir::Op& op, const Index& index);
  llvm::Value* compute_iota(const Index& index);
  llvm::Value* compute_arithmetic(const ir::Op& op, const Index& index);
  llvm::Value* read_view(const ir::Op& op, const Index& index);
  llvm::Value* read_gather(const ir::Op& op, const Index& index);
  llvm::Value* read_buffer(const Buffer& buffer, const Index& index);
  void write_buffer(const Buffer& buffer, llvm::Value* value, const Index& index);
  llvm::Value* lane_loads(DType dtype, llvm::Value* row, llvm::Value* position, llvm::Value* stride, const Index& index,
                          int64_t lane_stride, llvm::Value* mask);
  /// Whether positions of a load or a store along the dimension may be out of range.
  bool needs_check(const ir::Op& access, int dim);
  /// Address of the scalar axes' position. `in_range`: whether the position is in range; null: it is.
  struct RowAddress {
    llvm::Value* pointer;
    llvm::Value* in_range;
    int vector_axis;
  };
  RowAddress row_address(const ir::Op& access, const Index& index, bool checks_rows = true);
  llvm::Value* load_row_or_zeros(const RowAddress& row, const ir::Op& op, llvm::Value* column, int lanes);
  void write_view(const ir::Op& op, llvm::Value* value, const Index& index);

  // row_group.cpp: roots that share one loop over rows
  void add_root(Root root);
  bool has_bounds_of_group(const ir::Value* tile) const;
  void flush();
  int level_of(const ir::Value* value, const std::vector<int>& map);
  void add_shared_rows();
  void emit_group();
  void emit_rows(const std::vector<llvm::Value*>& outer);
  void start_hoist_block();
  void emit_columns(const std::vector<Root*>& roots, const std::vector<llvm::Value*>& outer);
  Index column_index(const std::vector<llvm::Value*>& outer, llvm::Value* column, int width) const;
  void emit_tail(const std::vector<Root*>& roots, const std::vector<llvm::Value*>& outer, llvm::Value* first,
                 llvm::Value* count, int width, std::vector<llvm::Value*>& partial, int64_t unroll);
  void emit_step(const std::vector<Root*>& roots, const Index& index, std::vector<llvm::Value*>& carried, int unroll,
                 int which);
  bool is_visible(const ir::Value* value) const;
  /// True when the stores of the dimension's class bound it, and the bound can be computed here.
  bool is_limited(const ir::Value* tile, int dim) const;
  Limit limit(const ir::Value* tile, int dim);
  /// Whether the group only stores, and stores the same rows of each tile; some of the rows may be out of range.
  bool stores_one_range();
  struct Range {
    llvm::Value *first, *end;
  };
  Range rows_to_visit(int dim);
  // aliasing.cpp: loads that a store of the same row group could overtake
  void collect_overtaken(const ir::Value* value, bool is_moved, std::set<const ir::Op*>& loads) const;
  void protect_loads();
  bool has_later_use(const ir::Value* value) const;
  // reductions.cpp: results of a row group's reductions, and reductions not along a row
  void lower_ordered(const ir::Op& op);
  void finish_reductions(const std::vector<Root*>& roots, const std::vector<llvm::Value*>& outer,
                         const std::vector<llvm::Value*>& partial, int64_t unroll);
  void reduce_outer(const ir::Op& op);
  // row_traffic.cpp: reads of a row group ahead of time, and stores past the caches
  void fetch_ahead(const ir::Op& load, llvm::Value* address, int lanes);
  void fetch_next_row(const ir::Value& row, const Index& index);
  bool is_whole_rows(const ir::Op& store) const;
  llvm::Value* streams_past_caches();

  // dot_stage.cpp: products of tiles that are already on the chip
  void lower_dot(const ir::Op& op);
  DType compute_dtype(const ir::Value* a, const ir::Value* b, int64_t k) const;
  /// The carried tile that `op` (a product whose result is yielded) accumulates into, or null.
  const ir::Value* accumulates_in_place(const ir::Op& op) const;
  Buffer product_buffer(const ir::Type& type);
  bool product_strides(const Buffer& buffer, const ir::Type& type) const;
  Buffer packed_rows(const ir::Value* a, DType compute);
  void hoist_operands(const ir::Block& body);
  void hoist_costly(const ir::Value* tile);
  bool is_costly(const ir::Value* tile) const;
  struct Panels {
    int64_t offset = 0, panel_bytes = 0;
    int nv = 1;  ///< vectors of columns in a panel
  };
  void pack_panels(const ir::Value* b, DType compute, const Panels& panels);
  void pack_panels_transposed(const ir::Op& load, DType compute, const Panels& panels);
  void row_product(const ir::Op& op, const ir::Op& load, const Buffer& a, const Buffer& c, bool accumulate);

  // contraction.cpp: loops over k whose operands come from memory
  struct Weight {
    const ir::Op* load = nullptr;
    bool packed = false;      ///< [n / nr, k, nr] in memory
    bool transposed = false;  ///< [k, n] in memory
    bool is_plain() const { return !packed && !transposed; }
    Buffer c;
  };
  struct Contraction {
    const ir::Op* loop = nullptr;
    const ir::Op* a = nullptr;     ///< the load of the rows
    bool a_is_transposed = false;  ///< the rows are columns in memory: x [k, m]
    std::vector<Weight> weights;
    int64_t k = 0, block_m = 0, block_n = 0, kc = 0;  ///< k: kDynamic where only the call knows it
    int mr = 0, nr = 0;
    DType compute = DType::f32;
    enum class Form { outer, dot, transposed } form = Form::outer;
    bool in_matrix_registers = false;                 ///< forms outer and transposed, by the kernel for them
    bool accumulate = false;                          ///< the initial values were copied into c
    llvm::Value *rows = nullptr, *columns = nullptr;  ///< how many of the tile are computed
    int64_t a_offset = 0, a_stride = 0;  ///< packed rows: arena bytes; compute elements of a row, bytes of a panel
  };
  bool lower_contraction(const ir::Op& loop);
  llvm::Value* depth(const Contraction& c);
  void choose_schedule(Contraction& c) const;
  bool fits_matrix_registers(const Contraction& c, int64_t rows, int64_t vectors) const;
  int64_t target_registers() const { return e_.target.num_vector_registers - 1; }
  llvm::Value* packed_panel(const Contraction& c, llvm::Value* k, llvm::Value* column);
  llvm::Value* rows_of(const Contraction& c);
  llvm::Value* columns_of(const Contraction& c, const Weight& weight);
  void clear(const Contraction& c, llvm::Value* first_row, llvm::Value* end_row, llvm::Value* first_column);
  void contract_outer(const Contraction& c);
  void prefetch_rows(llvm::Value* base, llvm::Value* stride_bytes, llvm::Value* from, llvm::Value* to,
                     int64_t row_bytes);
  void prefetch_next(const Contraction& c, llvm::Value* k, llvm::Value* j, llvm::Value* i, llvm::Value* rows,
                     llvm::Value* columns);
  void contract_dot(const Contraction& c);
  llvm::Function* transpose_kernel(const TransposeKernel& kernel);
  llvm::Function* outer_kernel(const OuterKernel& kernel);
  llvm::Function* dot_kernel(const DotKernel& kernel);
  // contraction_match.cpp: which loops are contractions
  bool match(const ir::Op& loop, Contraction& found) const;
  bool match_weight(const ir::Value* b, const ir::Op& loop, Contraction& found) const;
  static bool has_same_rows(const Weight& a, const Weight& b);
  bool is_packed_weight(const ir::Op& reshape) const;
  bool match_rows(const ir::Op& loop, const Contraction& found) const;
  // contraction_transposed.cpp: contractions of form transposed
  struct TransposedPlan;
  bool fits_transposed(const Contraction& c) const;
  void contract_transposed(const Contraction& c);
  llvm::Value* copy_rows(const TransposedPlan& plan, llvm::Value* source, llvm::Value* stride_bytes,
                         llvm::Value* steps);
  llvm::Value* panel_of(const Contraction& c, llvm::Value* i);
  void pack_columns(const Contraction& c, llvm::Value* first_k, llvm::Value* count_k, llvm::Value* rows);
  void multiply_columns(const TransposedPlan& plan, size_t which, llvm::Value* columns, llvm::Value* k,
                        llvm::Value* steps);
  void transpose_result(const TransposedPlan& plan, size_t which, llvm::Value* columns, llvm::Value* valid);

  // packing.cpp: operands of contractions, copied into panels
  llvm::Value* interleave(llvm::Value* even, llvm::Value* odd);
  void pack_rows(const Contraction& c, llvm::Value* first_k, llvm::Value* count_k, llvm::Value* rows);
  void pack_weight(const Contraction& c, size_t which, llvm::Value* first_k, llvm::Value* count_k, llvm::Value* column,
                   int64_t panel_offset);
  void copy_packed_weight(const Contraction& c, size_t which, llvm::Value* first_k, llvm::Value* count_k,
                          llvm::Value* column, int64_t panel_offset);
  void copy_columns(const ir::Op& load, DType compute, llvm::Value* first_k, llvm::Value* count_k, llvm::Value* column,
                    int64_t columns, llvm::Value* panel, int64_t step_bytes);
  void copy_transposed_rows(const Contraction& c, llvm::Value* first_k, llvm::Value* count_k, llvm::Value* rows);

  Emitter e_;
  const ir::Function& function_;
  const DimClasses dims_;
  std::unordered_map<const ir::Value*, llvm::Value*> scalars_;
  std::unordered_map<const ir::Value*, ViewRef> views_;
  std::unordered_map<const ir::Value*, Buffer> buffers_;
  std::unordered_map<const ir::Value*, std::vector<const ir::Op*>> users_;
  std::unordered_map<const ir::Op*, int> position_;
  const ir::Op* current_ = nullptr;      ///< the operation being lowered
  bool is_after_current_ = false;        ///< current_ was the last operation of its block
  std::vector<const ir::Block*> scope_;  ///< blocks around current_, outermost first

  std::vector<Root> pending_;  ///< the row group under construction
  std::vector<int64_t> pending_outer_;
  std::map<std::tuple<const ir::Value*, int, std::vector<Axis>>, llvm::Value*> memo_, row_memo_;
  /// Loads of the row being emitted, and the level that reads them first.
  std::vector<std::pair<const ir::Op*, int>> first_reads_;
  int level_ = 0, step_ = 0;                 ///< the pass being emitted, and the vector of its unrolled loop
  bool has_own_rows_ = false;                ///< the group's stores have one range, and no other row is visited
  bool is_row_kernel_ = false;               ///< the group writes whole rows of tensors
  bool is_streaming_ = false;                ///< the stores that are being emitted go past the caches
  llvm::BasicBlock* hoist_block_ = nullptr;  ///< where values that do not depend on the column are computed
  std::map<std::pair<const ir::Value*, DType>, Buffer> packed_;  ///< left operands of products, in compute type
  std::map<std::string, llvm::Function*> kernels_;
  bool uses_matrix_registers_ = false;
};

}  // namespace seqtile::cpu
