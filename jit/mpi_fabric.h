// jit/mpi_fabric.h -- ranks that mpirun has started: mpirun -n 4 ./server
// SPDX-License-Identifier: Apache-2.0
//
// In a library of its own, seqtile_mpi, which is built where MPI is found: the others need none. MPI brings the ranks
// together; those of one node are from then on processes like any other (Fabric::kind() "processes"). Between nodes a
// thread of each rank carries what kernels send over MPI; kernels do not use it.
#pragma once
#include <chrono>
#include <memory>

#include "jit/fabric.h"

namespace seqtile {

/// Collective over MPI_COMM_WORLD: this process's end of a fabric of all its ranks, numbered as MPI numbers them.
/// Starts MPI where nobody has, and then ends it with the process; whoever has started it ends it himself.
/// `ranks_per_node`: ranks of one machine behave as if they were on nodes of at most so many, for tests; 0: they do
/// not. Errors, one line on every rank: invalid_argument (more than 16 ranks), unsupported (a rank that may not open
/// what its node's first one shares; several nodes where MPI was started without MPI_THREAD_MULTIPLE), and those of
/// join_process_fabric().
std::unique_ptr<Fabric> join_mpi_fabric(int num_threads = 1,
                                        std::chrono::nanoseconds timeout = std::chrono::seconds(60),
                                        int ranks_per_node = 0);

/// A program that also runs where there is no MPI opens this library when it needs it; the function's address stands
/// there under this name.
using JoinMpiFabric = decltype(&join_mpi_fabric);
inline constexpr const char* kMpiLibrary = "libseqtile_mpi.so.0";
inline constexpr const char* kMpiJoinSymbol = "seqtile_join_mpi_fabric";

}  // namespace seqtile
