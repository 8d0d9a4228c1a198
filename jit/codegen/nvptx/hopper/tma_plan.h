// jit/codegen/nvptx/hopper/tma_plan.h -- which loop of a function takes Hopper's form: copies by TMA, products by
// wgmma.
// SPDX-License-Identifier: Apache-2.0
//
// The form needs tiles that the instructions take as they are: 16-bit elements, rows of the result in whole warp
// groups, views whose rows start at multiples of 16 bytes and are whole in their innermost dimension. Every other loop
// keeps the portable form, and `refusal` says why. A tile lies in shared memory as panels: all rows of 32, 64 or 128
// neighbouring bytes, swizzled, one panel after the other; one TMA copy moves one panel. No LLVM here.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "jit/analysis/streams.h"
#include "seqtile/device.h"
#include "seqtile/target.h"

namespace seqtile::nvptx {

/// A warp group: four warps, 64 rows of a wgmma.
constexpr int kGroupWarps = 4;

/// A tile that TMA moves between shared memory and a view.
struct TmaTile {
  int64_t rows = 0, columns = 0;
  int64_t panel_bytes = 0;               ///< 32, 64 or 128
  std::map<const ir::Value*, int> maps;  ///< the tensor map of each parameter that the view may belong to
};

struct TmaStream : TmaTile {
  codegen::Stream stream;
  int group = 0;           ///< streams of a group arrive together: the same products read them
  bool is_shared = false;  ///< all blocks of a cluster read the same tile: each block copies a part to all of them
};

struct TmaPlan {
  const ir::Op* loop = nullptr;  ///< null: `refusal` says why
  std::string refusal;
  codegen::StreamedLoop found;
  std::vector<TmaStream> streams;
  int num_groups = 0;
  int cluster = 1;  ///< blocks along axis 0 that share streams
  /// True where all programs do the same work: a block takes several programs in turn, and copies the next program's
  /// operands while this program's results are written. Else the GPU hands programs out to blocks that are ready.
  bool is_persistent = false;
  const ir::Op* store = nullptr;  ///< the store of the results that TMA does; null: threads store the results
  TmaTile stored;
  std::vector<TensorMapSpec> maps;
};

/// Bytes of a panel of a tile whose rows have `row_bytes`: the widest that divides them; 0: none does.
int64_t panel_bytes_of(int64_t row_bytes);

/// `num_warps`: the warps that compute. `cluster`: blocks of a cluster, which is formed only if they can share a
/// stream.
TmaPlan plan_tma(const ir::Function& function, const Target& target, const codegen::Users& users, int num_warps,
                 int cluster = 1);

}  // namespace seqtile::nvptx
