// jit/analysis/streams.h -- loads of a loop that may be fetched iterations ahead, because only products read them.
// SPDX-License-Identifier: Apache-2.0
//
// A stream is a load in a loop's body whose tile is used by products of that body alone and whose address follows from
// the loop's index and values from outside. A pipelined loop copies its streams to shared memory while earlier
// iterations compute. Nothing in the loop may write or synchronise, so the copies may be early. An analysis: the IR
// stays as it is.
#pragma once
#include <unordered_map>
#include <vector>

#include "seqtile/ir.h"

namespace seqtile::codegen {

/// Every use of every value of a function.
using Users = std::unordered_map<const ir::Value*, std::vector<const ir::Op*>>;
Users users_of(const ir::Function& function);

/// The operand of `dot` as it lies in memory, without its transposition.
const ir::Value* stored_operand(const ir::Op& dot, size_t operand);
/// Whether an operand is the transpose of a tile.
bool is_transposed(const ir::Value* tile);

/// Whether the function says that every element of `tile` is 0.
bool is_zero(const ir::Value* tile);
/// Whether `tile` is computed from `source` element by element.
bool follows_from(const ir::Value* tile, const ir::Value* source);

struct Stream {
  const ir::Op* load;
  const ir::Op* dot;  ///< the first product that reads it
  size_t operand;     ///< 0: a, 1: b
};
struct StreamedLoop {
  const ir::Op* loop;
  std::vector<Stream> streams;
  /// Loop-invariant tiles that products of the body read: worth keeping in shared memory.
  std::vector<Stream> residents;       ///< `load` is the operation that defines the tile, of any kind
  std::vector<const ir::Op*> indices;  ///< operations of the body that the streams' addresses are computed by, in order
};

/// The loop's streams; none where a part of it forbids early copies.
StreamedLoop find_streams(const ir::Op& loop, const Users& users);

}  // namespace seqtile::codegen
