// jit/fabric/mpi_link.h -- messages between ranks that mpirun has started; a part of seqtile_mpi.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "jit/fabric/node_link.h"

namespace seqtile::fabric {

/// Collective over MPI_COMM_WORLD, of which it makes a communicator of its own. Needs MPI_THREAD_MULTIPLE. It ends
/// early where MPI does: MPI_Finalize then finds nobody at work.
std::unique_ptr<NodeLink> make_mpi_link();

}  // namespace seqtile::fabric
