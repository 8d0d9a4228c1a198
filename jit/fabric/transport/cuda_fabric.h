// jit/fabric/transport/cuda_fabric.h -- ranks on several GPUs of one machine, which reach each other's memory.
// SPDX-License-Identifier: Apache-2.0
//
// Not proven yet: it has run against a library that plays the driver, never on a machine with several GPUs.
#pragma once
#include <memory>

#include "jit/fabric/core/fabric.h"

namespace seqtile {

/// Collective: gives each rank of `hosts` (threads of a process, or processes, also those of MPI) a GPU of its own;
/// this rank gets cuda:`gpu`. Threads reach peers by peer access, processes by CUDA's memory handles. The kind names
/// the code, "cuda:sm_90a". Kernels wait for each other, so no two ranks share a GPU. If a process dies, its peers
/// learn it from the channel's deadline.
/// Errors, on all ranks alike: driver (there is none, or no such GPU), unsupported (GPUs that cannot reach each other,
/// some ranks in one process and some not), invalid_argument (GPUs of different kinds, two ranks on one).
std::unique_ptr<Fabric> make_cuda_fabric(std::unique_ptr<Fabric> hosts, int gpu);

}  // namespace seqtile
