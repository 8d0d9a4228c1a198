// kernels/seqpar/exchange/ranks.h -- the ranks that an operation runs on.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "autotune/fields.h"
#include "jit/fabric/core/fabric.h"

namespace seqtile::kernels::seqpar {

/// The number of ranks and the kind of fabric that joins them; both are part of the key.
struct Ranks {
  int world_size = 1;
  std::string fabric = "threads";  ///< Fabric::kind()

  void add_to(autotune::Fields& fields) const {
    fields.set("world_size", int64_t{world_size});
    fields.set("fabric", fabric);
  }
};

inline Ranks ranks_of(const Fabric& fabric) { return {fabric.world_size(), fabric.kind()}; }

}  // namespace seqtile::kernels::seqpar
