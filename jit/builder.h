// jit/builder.h -- write a tile kernel in C++ so that it reads like its algorithm.
// SPDX-License-Identifier: Apache-2.0
//
// A Var is a handle on a value of the function under construction; operators on it append operations. Scalars are
// stretched to the tile on the other side and literals take the dtype of the other side; nothing else is implicit.
// A kernel is one *program*: it is run once for every point of a grid that the operation's definition computes from
// the run-time length. Indices and sizes are i64 scalars.
//
//   Var x = b.view("x", DType::f32, {kDynamic, k}), w = b.view("w", DType::f32, {n, k}), y = ...;
//   Var row = b.program_id(0) * block_m, col = b.program_id(1) * block_n;
//   Var acc = b.for_loop(0, k, block_k, {b.full({block_m, block_n}, 0.0)}, [&](Var kk, std::vector<Var> carried) {
//     return std::vector{b.dot(b.load(x, {row, kk}, {block_m, block_k}),
//                              b.trans(b.load(w, {col, kk}, {block_n, block_k})), carried[0])};
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

#include "jit/ir/function.h"

namespace seqtile {

using ir::kDynamic;

class KernelBuilder;

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

/// A Var, or a literal that becomes a constant of the dtype the context asks for.
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

struct ViewFacts {
  bool contiguous = true;  ///< innermost stride is 1; checked when the kernel is called
  int alignment = 0;       ///< bytes; 0: the element size, or what align_rows() has asked for
  bool noalias = false;    ///< promised by the caller of the kernel
};

enum class Compare { eq, ne, lt, le, gt, ge };

class KernelBuilder {
 public:
  /// `name` is the kernel's symbol in IR, dumps, profiles and the cache.
  explicit KernelBuilder(std::string name);

  /// Views made from here on promise that their base and rows are aligned to up to `bytes`: as far as their static row
  /// size allows. GPUs need it for wide accesses; whoever launches the kernel checks it.
  void align_rows(int bytes) { row_alignment_ = bytes; }
  /// Whether align_rows() has been called: a kernel for GPUs.
  bool is_for_gpu() const { return row_alignment_ > 1; }
  /// Facts about how a program is run, for example {num_warps}. {in_order}: programs start in the order of the grid,
  /// and all that have started go on, so that one may await what an earlier one has signalled. {ranks_in_launch}: on a
  /// GPU as many ranks share a launch.
  void schedule(ir::Attributes attributes);

  // parameters, in the order of the operation's argument schema
  Var view(std::string name, DType dtype, std::initializer_list<int64_t> sizes, ViewFacts facts = {}) {
    return view(std::move(name), dtype, std::span(sizes.begin(), sizes.size()), facts);
  }
  Var view(std::string name, DType dtype, std::span<const int64_t> sizes, ViewFacts facts = {});
  Var scalar(std::string name, DType dtype = DType::i64);

  // control
  Var program_id(int axis);
  Var num_programs(int axis);
  using LoopBody = std::function<std::vector<Var>(Var index, std::vector<Var> carried)>;
  /// for (index = lo; index < hi; index += step). Returns the carried values after the last iteration.
  std::vector<Var> for_loop(Operand lo, Operand hi, Operand step, std::vector<Var> inits, const LoopBody& body,
                            ir::Attributes schedule = {});
  using BranchBody = std::function<std::vector<Var>()>;
  std::vector<Var> if_then(Var condition, const BranchBody& then_body, const BranchBody& else_body = nullptr);
  /// The same without results: for what is done to memory.
  void for_each(Operand lo, Operand hi, Operand step, const std::function<void(Var index)>& body);
  void when(Var condition, const std::function<void()>& then_body, const std::function<void()>& else_body = nullptr);
  /// `condition` returns an i1 scalar; `body` the next carried values.
  std::vector<Var> while_loop(std::vector<Var> inits, const std::function<Var(std::vector<Var>)>& condition,
                              const std::function<std::vector<Var>(std::vector<Var>)>& body);
  void assume(Var condition);

  // create
  Var constant(DType dtype, std::variant<int64_t, double> value);
  Var full(std::vector<int64_t> shape, double value, DType dtype = DType::f32);
  Var full(std::vector<int64_t> shape, Var scalar);
  Var iota(int64_t n);
  Var rand(Operand seed, Var counters);

  // shape
  Var expand(Var tile, int axis);
  Var broadcast(Var tile, std::vector<int64_t> shape);
  Var reshape(Var tile, std::vector<int64_t> shape);
  Var trans(Var tile, std::vector<int64_t> perm = {1, 0});
  std::pair<Var, Var> split(Var tile);
  Var join(Var even, Var odd);
  Var concat(Var left, Var right);

  // arithmetic (operators on Var cover + - * / % < <= > >= and unary -)
  Var unary(ir::OpKind kind, Var a);
  Var binary(ir::OpKind kind, Operand a, Operand b);
  Var compare(Compare predicate, Operand a, Operand b);
  Var select(Var condition, Operand a, Operand b);
  Var fma(Var a, Operand b, Operand c);
  Var cast(Var a, DType dtype);
  Var bitcast(Var a, DType dtype);
  Var min(Operand a, Operand b) { return binary(ir::OpKind::min, a, b); }
  Var max(Operand a, Operand b) { return binary(ir::OpKind::max, a, b); }
  Var logical_and(Var a, Var b) { return binary(ir::OpKind::bit_and, a, b); }
  Var cdiv(Operand a, Operand b);

  // compositions
  Var exp(Var a);
  Var log(Var a);
  Var sigmoid(Var a);
  Var silu(Var a);
  Var gelu(Var a);       ///< x/2 (1 + erf(x / sqrt 2))
  Var gelu_tanh(Var a);  ///< the tanh approximation

  // reduce
  Var sum(Var tile, int axis);
  Var reduce_max(Var tile, int axis);
  Var reduce(Var tile, int axis, std::string kind);
  std::pair<Var, Var> argreduce(Var tile, int axis, std::string kind);
  Var scan(Var tile, int axis, std::string kind);

  /// c + a b, accumulated in f32. a [m, k], b [k, n] of one dtype, c [m, n] f32. Precision "tf32": on GPUs operands of
  /// f32 are rounded to ten bits of mantissa.
  Var dot(Var a, Var b, Var c, std::string precision = "native");

  // memory
  Var size(Var view, int axis);
  /// i64, of the first element: whether two views are one.
  Var address(Var view);
  Var slice(Var view, std::vector<Operand> offsets, std::vector<Operand> sizes);
  Var at(Var view, int axis, Operand index);
  /// A dense view of memory that other programs or ranks write while the kernel runs; `address` is an i64 scalar, and
  /// aligned as align_rows() asks. Never noalias.
  Var view_at(Var address, DType dtype, std::vector<Operand> sizes);
  Var load(Var view, std::vector<Operand> offsets, std::vector<int64_t> shape, double fill = 0.0);
  Var load_scalar(Var view, std::vector<Operand> offsets);
  void store(Var view, std::vector<Operand> offsets, Var tile);
  void store_scalar(Var view, std::vector<Operand> offsets, Operand scalar);
  void store_add(Var view, std::vector<Operand> offsets, Var tile);
  Var gather(Var view, Var rows, Operand column, int64_t num_columns, double fill = 0.0);
  void scatter(Var view, Var rows, Operand column, Var tile);
  void prefetch(Var view, std::vector<Operand> offsets);

  // synchronisation
  Var atomic(std::string kind, Var view, std::vector<Operand> offsets, Operand value, std::string order = "acq_rel",
             std::string scope = "gpu");
  Var cas(Var view, std::vector<Operand> offsets, Operand expected, Operand desired, std::string order = "acq_rel",
          std::string scope = "gpu");
  Var atomic_load(Var view, std::vector<Operand> offsets, std::string order = "acquire", std::string scope = "gpu");
  void wait_ge(Var view, std::vector<Operand> offsets, Operand value, std::string scope = "gpu");
  /// Waits for another rank: until the flag is `expected`, with acquire order, or the wait gives up. Returns a
  /// channel::Outcome. `block` is the channel's control block.
  Var await(Var flags, std::vector<Operand> offsets, Operand expected, Var block);
  /// Nanoseconds, to be stored: threads of a GPU's block see different ones. CPUs call the function whose address is
  /// the element of `functions`: channel::clock_function of a channel's control block.
  Var clock(Var functions, std::vector<Operand> offsets);
  void signal(std::string kind, Var view, std::vector<Operand> offsets, Operand value, std::string scope = "gpu");
  void fence(std::string scope = "gpu");
  void griddep(std::string kind);

  // debug
  void assert_true(Var condition, std::string message);
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
