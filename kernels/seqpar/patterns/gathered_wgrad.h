// kernels/seqpar/patterns/gathered_wgrad.h -- dw = dy^T x, summed over all ranks' rows, where one of both is cut over
// the ranks.
// SPDX-License-Identifier: Apache-2.0
//
// A tile is summed over the rows of one rank after the other, from the own tensor or from the staging: own rows first,
// then those of rank + 1, ... It awaits the rows of a rank when it gets there, all of them; what comes first does not
// change the order, so it does not change the bits.
#pragma once
#include <vector>

#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "seqtile/ops/linear.h"

namespace seqtile::kernels::seqpar {

struct WgradOperands {
  Var cut;                 ///< [own rows, columns], which the exchange's phase 0 gathers
  std::vector<Var> whole;  ///< [length, columns], one for each gradient
  std::vector<Var> before, dw;
};

struct GatheredWgrad {
  KernelBuilder& b;
  Exchange& ex;
  const std::vector<LinearWgrad> gradients;
  const linear_op::Tile& t;
  const int64_t chunk_rows;
  const bool cuts_dy;  ///< dy is the operand that is cut, of a single gradient; else x, which all gradients share
  const WgradOperands operands;

  /// One tile of one of the gradients: the steps of the role "use".
  void compute(Var tile);
};

/// Tiles of all gradients.
int64_t num_wgrad_tiles(const std::vector<LinearWgrad>& gradients, const linear_op::Tile& tile);

}  // namespace seqtile::kernels::seqpar
