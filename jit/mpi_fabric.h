// jit/mpi_fabric.h -- ranks that mpirun has started, on one machine: mpirun -n 4 ./server
// SPDX-License-Identifier: Apache-2.0
//
// In a library of its own, seqtile_mpi, which is built where MPI is found: the others need none. MPI brings the ranks
// together; from then on they are processes like any other (Fabric::kind() "processes"), and kernels do not use it.
#pragma once
#include <chrono>
#include <memory>

#include "jit/fabric.h"

namespace seqtile {

/// Collective over MPI_COMM_WORLD: this process's end of a fabric of all its ranks, numbered as MPI numbers them.
/// Starts MPI where nobody has, and then ends it with the process; whoever has started it ends it himself.
/// Errors, one line on every rank: invalid_argument (more than 16 ranks), unsupported (ranks on several machines, or
/// one that may not open what rank 0 shares), and those of join_process_fabric().
std::unique_ptr<Fabric> join_mpi_fabric(int num_threads = 1,
                                        std::chrono::nanoseconds timeout = std::chrono::seconds(60));

}  // namespace seqtile
