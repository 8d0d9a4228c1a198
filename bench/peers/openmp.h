// bench/peers/openmp.h -- the OpenMP thread pool that peers in this process share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace seqtile::bench {

/// Ends the pool's idle threads, which would spin for more work beside the measurements of others. The next parallel
/// region makes them again, in a peer's warm-up. Does nothing if no OpenMP runtime is loaded.
void end_openmp_threads();

}  // namespace seqtile::bench
