// include/seqtile/ir.h -- types, values and operations of the tile IR.
// SPDX-License-Identifier: Apache-2.0
//
// A tile is an immutable value of rank 1..3 with a static shape. A view is a typed window on memory: base pointer,
// run-time sizes and strides, and the facts known at compile time: sizes that are static (kDynamic where not), whether
// the innermost dimension is contiguous, the alignment of every row start in bytes, whether it aliases another view.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "seqtile/tensor.h"

namespace seqtile::ir {

constexpr int64_t kDynamic = -1;
constexpr int kMaxTileRank = 3;
constexpr int kMaxViewRank = 4;

enum class TypeKind : uint8_t { scalar, tile, view };

struct Type {
  TypeKind kind = TypeKind::scalar;
  DType dtype = DType::i64;
  int rank = 0;                               ///< 0 for scalars
  std::array<int64_t, kMaxViewRank> shape{};  ///< tile: static sizes; view: static sizes or kDynamic
  bool contiguous = false;                    ///< view: the innermost stride is 1
  bool noalias = false;                       ///< view: no other view of the function reaches the same memory
  int alignment = 1;                          ///< view: bytes; holds for the base and every stride but the innermost

  bool operator==(const Type&) const = default;
  bool is_scalar() const { return kind == TypeKind::scalar; }
  bool is_tile() const { return kind == TypeKind::tile; }
  bool is_view() const { return kind == TypeKind::view; }
  std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(rank)}; }
  /// Elements of a tile (1 for a scalar).
  int64_t num_elements() const {
    int64_t count = 1;
    for (const int64_t size : dims()) count *= size;
    return count;
  }
};

inline Type scalar_type(DType dtype) { return {TypeKind::scalar, dtype}; }

inline Type tile_type(std::span<const int64_t> shape, DType dtype) {
  Type type{TypeKind::tile, dtype, static_cast<int>(shape.size())};
  for (size_t i = 0; i < shape.size() && i < kMaxViewRank; ++i) type.shape[i] = shape[i];
  return type;
}
inline Type tile_type(std::initializer_list<int64_t> shape, DType dtype) {
  return tile_type(std::span<const int64_t>(shape.begin(), shape.size()), dtype);
}

/// `i64`, `tile<[64, 32], f32>`, `view<[?, 4096], bf16, contiguous, align 64, noalias>`.
std::string to_string(const Type& type);

// A Function holds blocks of operations on values, in SSA over structured regions: a block is a list of operations,
// control operations own nested blocks, there is no CFG. A Function owns everything inside it; pointers into it stay
// valid until the function is destroyed (operations taken out of a block remain owned). Not thread-safe; one function
// belongs to one thread at a time.

enum class OpKind : uint8_t {
#define SEQTILE_OP(name, group, operands, results, regions, effects) name,
#include "seqtile/ops.def"
#undef SEQTILE_OP
};

enum class OpGroup : uint8_t { control, create, shape, unary, binary, reduce, dot, memory, sync, debug };
enum class OpEffects : uint8_t { pure, read, write, sync, control };

struct OpInfo {
  std::string_view name;
  OpGroup group;
  int num_operands;  ///< -1: variable
  int num_results;   ///< -1: variable
  int num_regions;
  OpEffects effects;
};

/// The row of ops.def for `kind`.
const OpInfo& op_info(OpKind kind);
/// The kind with this mnemonic, or nothing.
std::optional<OpKind> parse_op_kind(std::string_view name);

struct Op;
struct Block;

/// An operation's result, or a block's argument (`def == nullptr`).
struct Value {
  Type type;
  int id = 0;  ///< unique in the function; the printer's %id
  Op* def = nullptr;
  int index = 0;           ///< position among the results of `def`, or among the arguments of `block`
  Block* block = nullptr;  ///< the block whose argument this is
};

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

struct Op {
  OpKind kind;
  std::vector<Value*> operands;
  std::vector<Value*> results;
  Attributes attributes;
  std::vector<Block*> regions;
  Block* parent = nullptr;

  const OpInfo& info() const { return op_info(kind); }
  /// The attribute, or `fallback` where it is absent or of another type.
  int64_t int_attr(std::string_view name, int64_t fallback = 0) const;
  double float_attr(std::string_view name, double fallback = 0) const;
  std::string_view string_attr(std::string_view name, std::string_view fallback = "") const;
};

struct Block {
  std::vector<Value*> arguments;
  std::vector<Op*> ops;
  Op* parent = nullptr;  ///< the operation that owns this region; nullptr for a function's body

  /// The operands of the yield that ends the block (empty for a function's body).
  const std::vector<Value*>& yielded() const;
};

class Function {
 public:
  explicit Function(std::string name);
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  const std::string& name() const { return name_; }
  Block& body() { return *body_; }
  const Block& body() const { return *body_; }
  /// Names of the parameters (the body's arguments), in order.
  const std::vector<std::string>& param_names() const { return param_names_; }
  /// Facts about how a program is run, for backends that ask: {num_warps} of a GPU's block of threads.
  Attributes attributes;

  Value* add_param(std::string name, const Type& type);
  Block* add_block(Op* parent);
  Value* add_block_argument(Block* block, const Type& type);
  /// Appends an operation with results of the given types to `block`.
  Op* append(Block* block, OpKind kind, std::vector<Value*> operands, std::vector<Type> result_types,
             Attributes attributes = {});
  /// Gives `value` the id that it has in a text; values made later get larger ones.
  void set_id(Value* value, int id);

 private:
  Value* new_value(const Type& type);

  std::string name_;
  std::vector<std::string> param_names_;
  std::deque<Value> values_;
  std::deque<Op> ops_;
  std::deque<Block> blocks_;
  int next_id_ = 0;
  Block* body_;
};

/// Slots (8 bytes each) that parameter values take in a launch's argument block, in parameter order: a view takes
/// 1 + 2 * rank (base, sizes, strides in elements), a scalar one.
int num_slots(const Type& type);
int num_slots(const Function& function);

/// Text of the function; parse() of it gives an equal function.
std::string print(const Function& function);
/// Throws Error compile_failed with line and column on text that is not tile IR.
std::unique_ptr<Function> parse(std::string_view text);
/// Throws Error compile_failed naming the operation and the rule that it breaks.
void verify(const Function& function);

}  // namespace seqtile::ir
