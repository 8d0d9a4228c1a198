// bench/peers/openmp.h -- the OpenMP pool that peers in this process share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace seqtile::bench {

/// Ends the idle threads of the pool, which would spin for more work beside others' measurements; the next parallel
/// region makes them anew, in a peer's warm-up. Does nothing where no OpenMP runtime is loaded.
void end_openmp_threads();

}  // namespace seqtile::bench
