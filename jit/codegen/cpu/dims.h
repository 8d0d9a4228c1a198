// jit/codegen/cpu/dims.h -- which dimensions of which tiles run together, and how far each must really be computed.
// SPDX-License-Identifier: Apache-2.0
//
// Dimensions that an element-wise operation, a product or a loop ties to each other form one class. If nothing in a
// class is reduced over, elements beyond the bounds of every store of the class are never observed, so loops over it
// stop there: a tile of 64 rows at the end of a 70-row tensor computes 6 of them. A reduced dimension is computed whole
// ("out of range" reads the fill value, which the reduction sees).
#pragma once
#include <map>
#include <vector>

#include "seqtile/ir.h"

namespace seqtile::cpu {

/// A store writes elements [offset, offset + extent) of `view`'s `axis`, as far as the view has them. If the offset is
/// negative, the tile's first elements are out of range; this bound does not say so.
struct StoreBound {
  const ir::Value* view;
  int axis;
  const ir::Value* offset;
  int64_t extent;
};

struct DimClass {
  bool whole = false;  ///< reduced over, or reached by an operation that needs every element
  std::vector<StoreBound> stores;
};

class DimClasses {
 public:
  explicit DimClasses(const ir::Function& function);
  const DimClass& of(const ir::Value* tile, int dim) const;

 private:
  using Key = std::pair<const ir::Value*, int>;
  int find(const Key& key) const;
  int node(const Key& key);
  void join(const ir::Value* a, int dim_a, const ir::Value* b, int dim_b);
  void join_all(const ir::Value* a, const ir::Value* b);
  void mark_whole(const ir::Value* tile, int dim);
  void visit(const ir::Block& block);
  void visit(const ir::Op& op);
  void visit_shape(const ir::Op& op);
  void visit_memory(const ir::Op& op);
  void visit_control(const ir::Op& op);

  std::map<Key, int> nodes_;
  mutable std::vector<int> parent_;
  std::map<int, DimClass> classes_;
};

/// Largest known divisor of an i64 scalar (0 for the constant zero: divisible by everything).
int64_t known_divisor(const ir::Value* scalar);
/// Whether an i64 scalar is known to be 0 or more in `where`, whatever the launch.
bool is_never_negative(const ir::Value* scalar, const ir::Block* where);
/// Whether two i64 scalars are one IR value, or constants of equal value.
bool is_same_scalar(const ir::Value* a, const ir::Value* b);
/// The value of an integer constant.
std::optional<int64_t> constant_int(const ir::Value* scalar);
/// True when [offset, offset + extent) lies in [0, size) for every iteration that reaches it.
bool in_range(const ir::Value* offset, int64_t extent, int64_t size);

/// Whether `op` reads memory where it is evaluated: load and gather.
bool is_read(const ir::Op& op);
/// The tile operands that an element-wise evaluation of `op` reads.
std::vector<const ir::Value*> tile_operands(const ir::Op& op);
/// Sizes of all dimensions but the last.
std::vector<int64_t> outer_dims(const ir::Type& type);

}  // namespace seqtile::cpu
