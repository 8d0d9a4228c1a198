// include/seqtile/mpi_fabric.h -- ranks that mpirun has started, on one or several machines: mpirun -n 4 ./server
// SPDX-License-Identifier: Apache-2.0
//
// This header belongs to a library of its own, seqtile_mpi, which is built where MPI is found; the other libraries need
// no MPI. MPI brings the ranks together. From then on ranks of one node are processes like any other (Fabric::kind()
// "processes"). Between nodes a thread of each rank carries, over MPI, what kernels send; kernels do not use MPI.
#pragma once
#include <chrono>
#include <memory>

#include "seqtile/fabric.h"

namespace seqtile {

/// Collective over MPI_COMM_WORLD: this process's end of a fabric of all its ranks, numbered as MPI numbers them.
/// Starts MPI where it has not been started, and then ends it with the process; a caller that has started MPI ends it.
/// `ranks_per_node`: for tests, ranks of one machine behave as if they were on nodes of at most so many ranks; 0: they
/// do not. Errors, one line on every rank: invalid_argument (more than 16 ranks), unsupported (a rank that may not open
/// the memory that its node's first rank shares; several nodes where MPI was started without MPI_THREAD_MULTIPLE), and
/// the errors of join_process_fabric().
std::unique_ptr<Fabric> join_mpi_fabric(int num_threads = 1,
                                        std::chrono::nanoseconds timeout = std::chrono::seconds(60),
                                        int ranks_per_node = 0);

/// For a program that also runs where there is no MPI: it opens the library kMpiLibrary when it needs MPI, and finds
/// join_mpi_fabric() there under the name kMpiJoinSymbol.
using JoinMpiFabric = decltype(&join_mpi_fabric);
inline constexpr const char* kMpiLibrary = "libseqtile_mpi.so.0";
inline constexpr const char* kMpiJoinSymbol = "seqtile_join_mpi_fabric";

}  // namespace seqtile
