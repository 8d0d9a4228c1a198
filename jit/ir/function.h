// jit/ir/function.h -- values, operations, blocks and functions of the tile IR.
// SPDX-License-Identifier: Apache-2.0
//
// SSA over structured regions: a block is a list of operations, control operations own nested blocks, there is no CFG.
// A Function owns everything inside it; pointers into it stay valid until the function is destroyed (operations
// taken out of a block remain owned). Not thread-safe; one function belongs to one thread at a time.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "jit/ir/types.h"

namespace seqtile::ir {

enum class OpKind : uint8_t {
#define SEQTILE_OP(name, group, operands, results, regions, effects) name,
#include "jit/ir/ops.def"
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
