// jit/fabric/transport/mpi_link.h -- messages between ranks that mpirun has started; a part of seqtile_mpi.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "jit/fabric/transport/node_link.h"

namespace seqtile::fabric {

/// Collective over MPI_COMM_WORLD: makes a link with a communicator of its own. Needs MPI_THREAD_MULTIPLE. The link
/// ends when MPI ends, if that is earlier: MPI_Finalize then finds no operation of the link under way.
std::unique_ptr<NodeLink> make_mpi_link();

}  // namespace seqtile::fabric
