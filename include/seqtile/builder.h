// include/seqtile/builder.h -- write a tile kernel in C++ so that it reads like its algorithm.
// SPDX-License-Identifier: Apache-2.0
//
// A Var is a handle on a value of the function under construction: a scalar, a tile (immutable, static shape) or a view
// (a window on memory). Operators on Vars append operations. An operator fits its two sides to each other: a literal
// takes the dtype of the other side, a scalar is stretched to the other side's tile, and at equal rank a dimension of
// size 1 is stretched to the other side's size. Dtypes are never converted implicitly.
// A kernel is one *program*: it is run once for every point of a grid that the operation's definition computes from
// the run-time length. Indices and sizes are i64 scalars.
//
// Example: the sums of the rows of x [3, 4], four rows a program.
//
//   KernelBuilder b("row_sum");
//   Var x = b.view("x", DType::f32, {kDynamic, 4}), y = b.view("y", DType::f32, {kDynamic});
//   Var row = b.program_id(0) * 4;
//   Var tile = b.load(x, {row, 0}, {4, 4});  // tile<[4, 4], f32>; the rows that x does not have are 0
//   Var sums = b.sum(tile, 1);               // tile<[4], f32>; axis 1 is dropped
//   b.store(y, {row}, sums);                 // y [3]; the element that y does not have is dropped
//   std::unique_ptr<ir::Function> function = b.finish();
//
//   x         tile       sums    y
//   1 2 3 4   1 2 3 4    10      10
//   5 6 7 8   5 6 7 8    26      26
//   1 1 1 1   1 1 1 1     4       4
//             0 0 0 0     0
//
// A product y [m, n] = x [m, k] w [n, k]^T adds a loop over slices of k, which carries the sums:
//
//   Var row = b.program_id(0) * block_m, col = b.program_id(1) * block_n;
//   Var acc = b.for_loop(0, k, block_k, {b.full({block_m, block_n}, 0.0)}, [&](Var kk, std::vector<Var> carried) {
//     Var a = b.load(x, {row, kk}, {block_m, block_k});
//     Var t = b.load(w, {col, kk}, {block_n, block_k});
//     return std::vector{b.dot(a, b.trans(t), carried[0])};
//   })[0];
//   b.store(y, {row, col}, acc);
//
// C++ leaves the order in which the arguments of one call are built to the compiler: name the intermediate values where
// the order of the operations matters, as it does for text that is compared or hashed.
// The schedule of a loop on a given backend goes into its attributes (docs/add_a_kernel.md lists them).
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "seqtile/ir.h"

namespace seqtile {

using ir::kDynamic;

class KernelBuilder;

/// A value of the function under construction, and the builder that makes it. Cheap to copy.
class Var {
 public:
  Var() = default;
  Var(KernelBuilder* builder, ir::Value* value) : builder_(builder), value_(value) {}
  ir::Value* value() const { return value_; }
  KernelBuilder* builder() const { return builder_; }
  /// Errors: compile_failed on a default-constructed Var.
  const ir::Type& type() const;

 private:
  KernelBuilder* builder_ = nullptr;
  ir::Value* value_ = nullptr;
};

/// A Var, or a literal that becomes a constant of the dtype the context asks for. A default-constructed Var counts as
/// the literal 0.
class Operand {
 public:
  Operand(Var var) : var_(var) {}                  // NOLINT: literals and handles mix freely by design
  Operand(int literal) : literal_(literal) {}      // NOLINT
  Operand(int64_t literal) : literal_(literal) {}  // NOLINT
  Operand(double literal) : literal_(literal) {}   // NOLINT
  bool is_literal() const { return var_.value() == nullptr; }
  Var var() const { return var_; }
  const std::variant<int64_t, double>& literal() const { return literal_; }

 private:
  Var var_;
  std::variant<int64_t, double> literal_ = int64_t{0};
};

/// Promises about the memory behind a view parameter.
struct ViewFacts {
  bool contiguous = true;  ///< innermost stride is 1; checked when the kernel is called
  int alignment = 0;       ///< bytes, of the base and of every row; 0: the element size, or more by align_rows()
  bool noalias = false;    ///< promised by the caller of the kernel
};

enum class Compare { eq, ne, lt, le, gt, ge };

/// Builds one function. Every operation is appended to the block under construction and checked at once.
/// Errors: every method that appends an operation throws compile_failed: where a rule of the operation is broken, from
/// the line of the kernel that breaks it; on a default-constructed Var (but as an Operand it is the literal 0); and
/// after finish().
class KernelBuilder {
 public:
  /// `name` is the kernel's symbol in IR, dumps, profiles and the cache: letters, digits, '_', '.' and '$'.
  explicit KernelBuilder(std::string name);

  /// Views made from here on promise that their base and rows are aligned to up to `bytes`: as far as their static row
  /// size allows. GPUs need it for wide accesses; the launch checks it.
  void align_rows(int bytes) { row_alignment_ = bytes; }
  /// Whether align_rows() has been called: a kernel for GPUs.
  bool is_for_gpu() const { return row_alignment_ > 1; }
  /// Facts about how a program is run, for example {num_warps}. {in_order}: programs start in the order of the grid,
  /// and every program that has started goes on, so that a program may await what an earlier one has signalled.
  /// {ranks_in_launch}: so many ranks share a launch on a GPU.
  void schedule(ir::Attributes attributes);

  // Parameters, in the order of the operation's argument schema. Names are unique in the function.

  /// A tensor of the caller. A size is static, or kDynamic where only the call knows it.
  /// Shapes:   1 to 4 sizes, outermost first.
  /// Errors:   compile_failed on another number of sizes; finish() checks names, sizes and alignment.
  Var view(std::string name, DType dtype, std::span<const int64_t> sizes, ViewFacts facts = {});
  Var view(std::string name, DType dtype, std::initializer_list<int64_t> sizes, ViewFacts facts = {}) {
    return view(std::move(name), dtype, std::span(sizes.begin(), sizes.size()), facts);
  }
  /// A scalar of the caller.
  Var scalar(std::string name, DType dtype = DType::i64);

  // Control flow. Conditions are i1 scalars, bounds i64 scalars. Views are not carried or yielded: select between them.

  /// The program's place along `axis` of the grid, 0, 1 or 2; i64.
  Var program_id(int axis);
  /// The size of the grid along `axis`, 0, 1 or 2; i64.
  Var num_programs(int axis);
  /// Gets the index (i64) and the carried values; returns the carried values of the next iteration.
  using LoopBody = std::function<std::vector<Var>(Var index, std::vector<Var> carried)>;
  /// for (index = lo; index < hi; index += step). Returns the carried values after the last iteration; without an
  /// iteration these are `inits`. `schedule` holds hints for backends.
  /// Requires: step > 0; the body returns one value of the same type for each of `inits`.
  /// Errors:   compile_failed on a constant step below 1.
  std::vector<Var> for_loop(Operand lo, Operand hi, Operand step, std::vector<Var> inits, const LoopBody& body,
                            ir::Attributes schedule = {});
  /// Returns the results of a branch.
  using BranchBody = std::function<std::vector<Var>()>;
  /// Runs one of the two branches and returns its results. A missing `else_body` does nothing and has no results.
  /// Requires: both branches return the same number of values, of the same types.
  std::vector<Var> if_then(Var condition, const BranchBody& then_body, const BranchBody& else_body = nullptr);
  /// for_loop() without carried values: for what is done to memory.
  void for_each(Operand lo, Operand hi, Operand step, const std::function<void(Var index)>& body);
  /// if_then() without results: for what is done to memory. Either body may be empty.
  void when(Var condition, const std::function<void()>& then_body, const std::function<void()>& else_body = nullptr);
  /// while (condition(carried)) carried = body(carried). Returns the carried values for which the condition is false.
  /// Requires: `condition` returns an i1 scalar; `body` one value of the same type for each of `inits`.
  std::vector<Var> while_loop(std::vector<Var> inits, const std::function<Var(std::vector<Var>)>& condition,
                              const std::function<std::vector<Var>(std::vector<Var>)>& body);
  /// A promise to the backend that the i1 scalar is true. A false scalar leaves undefined how the kernel behaves.
  void assume(Var condition);

  // Creation. Tiles have 1 to 3 dimensions, positive sizes, and at most 2^24 elements.

  /// A constant scalar of `dtype`.
  /// Errors:   compile_failed where an integer dtype meets a fraction, or a number that does not fit.
  Var constant(DType dtype, std::variant<int64_t, double> value);
  /// A tile of `shape` with `value` everywhere. Errors: as constant().
  Var full(std::vector<int64_t> shape, double value, DType dtype = DType::f32);
  /// A tile of `shape` and of the scalar's dtype with the scalar everywhere.
  Var full(std::vector<int64_t> shape, Var scalar);
  /// 0, 1, ... n - 1; i32 [n].
  Var iota(int64_t n);
  /// Random numbers in [0, 1), one for each counter; the same seed and counter give the same number.
  /// Shapes:   seed i64 scalar, counters i32 tile -> f32 tile of the counters' shape.
  /// Source:   Philox 4x32-10, see jit/codegen/math.h.
  Var rand(Operand seed, Var counters);

  // Shapes. Operands and results are tiles of one dtype.

  /// Inserts a dimension of size 1 before `axis`. Shapes: [m, n] with axis 1 -> [m, 1, n]; axis is 0 to the rank.
  /// Errors:   compile_failed on a tile of rank 3.
  Var expand(Var tile, int axis);
  /// Repeats along dimensions of size 1 until the shape is `shape`. Shapes: [m, 1] -> [m, n]; the rank stays.
  /// Errors:   compile_failed where another size changes.
  Var broadcast(Var tile, std::vector<int64_t> shape);
  /// The same elements, in row-major order, in another shape. Errors: compile_failed where their number changes.
  Var reshape(Var tile, std::vector<int64_t> shape);
  /// Dimension i of the result is dimension perm[i] of the operand. Shapes: [m, n] -> [n, m] without `perm`.
  /// Requires: `perm` names every dimension once.
  Var trans(Var tile, std::vector<int64_t> perm = {1, 0});
  /// Elements of even and of odd index along the last dimension. Shapes: [m, 2 n] -> [m, n] and [m, n].
  /// Errors:   compile_failed where the last dimension is odd.
  std::pair<Var, Var> split(Var tile);
  /// The inverse of split(). Shapes: [m, n] and [m, n] -> [m, 2 n].
  Var join(Var even, Var odd);
  /// `left`, then `right`, along the last dimension. Shapes: [m, a] and [m, b] -> [m, a + b].
  Var concat(Var left, Var right);

  // Arithmetic, for scalars and tiles alike. Operators on Var cover + - * / % < <= > >= and unary -. Sides are fitted
  // to each other as the head of this file says; after that their types are equal. f16 and bf16 are computed in f32,
  // and each result is rounded.

  /// An operation of one operand; the type stays. neg, abs: numbers. bit_not: integers and i1. exp2, log2, sqrt, rsqrt,
  /// rcp, tanh, erf, sin, cos, floor: floats.
  /// Errors:   compile_failed on another dtype. Backends refuse exp2, log2, tanh, erf, sin and cos of f64.
  Var unary(ir::OpKind kind, Var a);
  /// An operation of two operands; the type stays. add, sub, mul, div, min, max: numbers. rem, shl, shr: integers.
  /// bit_and, bit_or, bit_xor: integers and i1. pow: floats, a >= 0.
  /// Integers: div truncates, rem has the sign of the dividend, shr is arithmetic. min and max of floats give either
  /// operand where one is NaN. Constant i64 scalars are folded, so that static sizes stay visible.
  /// Errors:   compile_failed on another dtype, on two types that cannot be fitted, on two literals that are not both
  ///           integers.
  Var binary(ir::OpKind kind, Operand a, Operand b);
  /// i1 of the operands' shape. Errors: as binary(); two literals are always an error.
  Var compare(Compare predicate, Operand a, Operand b);
  /// `a` where `condition` holds, else `b`.
  /// Shapes:   condition i1: a scalar, or a tile that fits the sides. The sides may be views of equal rank and dtype;
  ///           the condition is then a scalar, and the result keeps the facts that hold for both.
  Var select(Var condition, Operand a, Operand b);
  /// a b + c, of numbers; types and errors as binary().
  Var fma(Var a, Operand b, Operand c);
  /// Converts the values; floats are truncated to integers. Returns `a` itself where the dtype stays.
  Var cast(Var a, DType dtype);
  /// The same bits as another dtype of the same width; neither is i1.
  Var bitcast(Var a, DType dtype);
  /// The smaller of a and b; dtypes and errors as binary().
  Var min(Operand a, Operand b) { return binary(ir::OpKind::min, a, b); }
  /// The larger of a and b; dtypes and errors as binary().
  Var max(Operand a, Operand b) { return binary(ir::OpKind::max, a, b); }
  /// a and b, of i1. Integers: bitwise.
  Var logical_and(Var a, Var b) { return binary(ir::OpKind::bit_and, a, b); }
  /// a / b, rounded up. Requires: integers, a >= 0, b > 0.
  Var cdiv(Operand a, Operand b);

  // Compositions of the above, of floats; the type stays. f64 is refused as in unary().

  Var exp(Var a);        ///< e^a
  Var log(Var a);        ///< natural logarithm
  Var sigmoid(Var a);    ///< 1 / (1 + e^-a)
  Var silu(Var a);       ///< a sigmoid(a)
  Var gelu(Var a);       ///< a/2 (1 + erf(a / sqrt 2))
  Var gelu_tanh(Var a);  ///< the tanh approximation

  // Reductions of a tile along `axis`. The axis is dropped: [m, n] with axis 1 -> [m]; [m] with axis 0 -> a scalar.

  /// reduce() of kind "sum".
  Var sum(Var tile, int axis);
  /// reduce() of kind "max".
  Var reduce_max(Var tile, int axis);
  /// `kind`: "sum", "max", "min" or "prod" of numbers, "any" of i1. The dtype stays; f16 and bf16 are accumulated in
  /// f32. Errors: compile_failed on another kind or dtype, and on an axis that the tile does not have.
  Var reduce(Var tile, int axis, std::string kind);
  /// The extremum of numbers, and the i32 index of the first element that is equal to it. `kind`: "max" or "min".
  std::pair<Var, Var> argreduce(Var tile, int axis, std::string kind);
  /// Element i is the reduction of elements 0 to i; the shape stays. `kind`: "sum" or "max", of numbers.
  Var scan(Var tile, int axis, std::string kind);

  // Matrix product.

  /// c + a b, accumulated in f32.
  /// Shapes:   a [m, k], b [k, n], both f32, bf16 or f16; c [m, n] f32.
  /// `precision`: "native" or "tf32". With "tf32" GPUs round operands of f32 to ten bits of mantissa; CPUs do not.
  /// Errors:   compile_failed on other shapes or dtypes.
  Var dot(Var a, Var b, Var c, std::string precision = "native");

  // Views. Facts about sizes and alignment are kept as far as they surely hold.

  /// The run-time size along `axis`; i64.
  Var size(Var view, int axis);
  /// The address of the first element, i64, to be compared: whether two views are one.
  Var address(Var view);
  /// A part of a view: the same rank and strides, its own sizes; accesses are checked against these. Sizes are static
  /// where they are constants. Shapes: one offset and one size for each dimension, i64.
  /// Requires: offset >= 0 and offset + size <= the view's size, or size 0. No check is made when the kernel runs.
  Var slice(Var view, std::vector<Operand> offsets, std::vector<Operand> sizes);
  /// The view without `axis`, at `index` of it. Without the last axis the result is not contiguous.
  /// Requires: a view of rank 2 or more; 0 <= index < size. The index is not checked when the kernel runs.
  Var at(Var view, int axis, Operand index);
  /// A dense view of memory that other programs or ranks write while the kernel runs; `address` is an i64 scalar, and
  /// aligned as align_rows() asks. Never noalias. Shapes: 1 to 4 sizes, i64; static where they are constants.
  Var view_at(Var address, DType dtype, std::vector<Operand> sizes);

  // Memory. A view of rank r takes r offsets, i64. A tile has the view's rank and dtype. An index is outside of the
  // view where it is negative, or not below the run-time size.

  /// The tile of `shape` whose first element is at `offsets`. Elements outside of the view are `fill`.
  /// Shapes:   a view of rank 1 to 3; `shape` has the same rank.
  /// Errors:   compile_failed on a fraction as the fill of integers.
  Var load(Var view, std::vector<Operand> offsets, std::vector<int64_t> shape, double fill = 0.0);
  /// The element at `offsets`. Requires: the element is inside of the view. No check is made when the kernel runs.
  Var load_scalar(Var view, std::vector<Operand> offsets);
  /// Writes the tile with its first element at `offsets`. Elements outside of the view are not written.
  void store(Var view, std::vector<Operand> offsets, Var tile);
  /// Writes the element at `offsets`. A literal takes the view's dtype. Requires: as load_scalar().
  void store_scalar(Var view, std::vector<Operand> offsets, Operand scalar);
  /// Adds the tile to the view, with its first element at `offsets`. Elements outside of the view are left alone. The
  /// addition is not atomic between programs.
  /// Errors:   compile_failed on i1.
  void store_add(Var view, std::vector<Operand> offsets, Var tile);
  /// Row i of the result is row rows[i] of the view, from `column` on. Elements outside of the view are `fill`.
  /// Shapes:   view of rank 2, rows [m] i32 or i64, column i64 -> [m, num_columns].
  /// Errors:   as load().
  Var gather(Var view, Var rows, Operand column, int64_t num_columns, double fill = 0.0);
  /// Row i of `tile` goes to row rows[i] of the view, from `column` on. Elements outside of the view are not written.
  /// Shapes:   view of rank 2, rows [m] i32 or i64, column i64, tile [m, n].
  void scatter(Var view, Var rows, Operand column, Var tile);
  /// A hint that the element at `offsets` is read soon. An element outside of the view does no harm.
  void prefetch(Var view, std::vector<Operand> offsets);

  // Synchronisation, by one element of a view. The element is i32 or i64 where no other dtype is named, and inside of
  // the view. Values are scalars of the view's dtype; a literal takes it. `scope` "cta", "gpu" or "sys": the block of
  // threads, the device, or all devices and hosts. `order` "relaxed", "acquire", "release" or "acq_rel".

  /// Changes the element in one step and returns its old value. `kind`: "add", "max", "min" or "exchange".
  /// Errors:   compile_failed on dtypes other than i32, i64, f32 and f64; GPUs have no f64 here.
  Var atomic(std::string kind, Var view, std::vector<Operand> offsets, Operand value, std::string order = "acq_rel",
             std::string scope = "gpu");
  /// Compare and swap: writes `desired` where the element is `expected`; returns the old value in both cases.
  Var cas(Var view, std::vector<Operand> offsets, Operand expected, Operand desired, std::string order = "acq_rel",
          std::string scope = "gpu");
  /// The element. `order`: "relaxed" or "acquire".
  Var atomic_load(Var view, std::vector<Operand> offsets, std::string order = "acquire", std::string scope = "gpu");
  /// Waits until the element is `value` or more, with acquire order and without a timeout.
  void wait_ge(Var view, std::vector<Operand> offsets, Operand value, std::string scope = "gpu");
  /// Waits for another rank: until the flag is `expected`, with acquire order, or the wait gives up. Returns a
  /// channel::Outcome (i64). Shapes: flags i64, expected i64 scalar, block [n] i64: the channel's control block.
  Var await(Var flags, std::vector<Operand> offsets, Operand expected, Var block);
  /// Nanoseconds (i64), to be stored: threads of a GPU's block see different ones. CPUs call the function whose address
  /// is the element of `functions` (i64): channel::clock_function of a channel's control block.
  Var clock(Var functions, std::vector<Operand> offsets);
  /// Writes ("set") or adds ("add") `value` with release order.
  void signal(std::string kind, Var view, std::vector<Operand> offsets, Operand value, std::string scope = "gpu");
  /// Orders the accesses before it against those after it, with acquire and release order.
  void fence(std::string scope = "gpu");
  /// Overlap of launches, on Hopper; elsewhere it does nothing. "wait": until the launch before has ended. "launch":
  /// the launch behind may start.
  void griddep(std::string kind);

  // Debugging. The interpreter of the tests (tests/support/references/interpreter.h) runs both; backends drop them.

  /// Stops with `message` where the i1 scalar is false.
  void assert_true(Var condition, std::string message);
  /// Prints `message` and the scalar.
  void print(Var scalar, std::string message);

  /// Verifies and returns the function; the builder is empty afterwards. Errors: compile_failed.
  std::unique_ptr<ir::Function> finish();

 private:
  ir::Function& function();
  Var emit(ir::OpKind kind, std::vector<ir::Value*> operands, const ir::Type& type, ir::Attributes attributes = {});
  void emit_effect(ir::OpKind kind, std::vector<ir::Value*> operands, ir::Attributes attributes = {});
  ir::Value* as_index(const Operand& operand);
  Var as_like(const Operand& operand, const ir::Type& type);
  std::vector<ir::Value*> unify(std::initializer_list<Operand> operands, const ir::Type& type);
  void append_indices(std::vector<ir::Value*>& operands, const std::vector<Operand>& indices);
  template <class Body>
  void in_block(ir::Block* block, Body body);

  std::unique_ptr<ir::Function> function_;
  ir::Block* block_;
  int row_alignment_ = 1;
};

// Operators: binary(), unary() and compare() of the operand's builder. A literal on the left is a double; next to
// integers it must be a whole number. Errors: compile_failed on a default-constructed Var.

Var operator+(Var a, Operand b);
Var operator-(Var a, Operand b);
Var operator*(Var a, Operand b);
Var operator/(Var a, Operand b);
Var operator%(Var a, Operand b);
Var operator-(Var a);
Var operator<(Var a, Operand b);
Var operator<=(Var a, Operand b);
Var operator>(Var a, Operand b);
Var operator>=(Var a, Operand b);
Var operator+(double a, Var b);
Var operator-(double a, Var b);
Var operator*(double a, Var b);
Var operator/(double a, Var b);

}  // namespace seqtile
