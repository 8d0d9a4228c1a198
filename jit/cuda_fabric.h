// jit/cuda_fabric.h -- ranks on several GPUs of one machine, which reach each other's memory.
// SPDX-License-Identifier: Apache-2.0
//
// Not proven yet: it has run against a library that plays the driver, never on a machine with several GPUs.
#pragma once
#include <memory>

#include "jit/fabric.h"

namespace seqtile {

/// Collective: the ranks of `hosts` (threads of a process, or processes, also those of MPI) with a GPU of its own each,
/// this rank with cuda:`gpu`: by peer access between threads, by CUDA's memory handles between processes. The kind is
/// that of the code, "cuda:sm_90a". Kernels wait for each other, so no two ranks share a GPU. That a process has died,
/// its peers learn from the channel's deadline.
/// Errors, on all ranks alike: driver (there is none, or no such GPU), unsupported (GPUs that cannot reach each other,
/// some ranks in one process and some not), invalid_argument (GPUs of different kinds, two ranks on one).
std::unique_ptr<Fabric> make_cuda_fabric(std::unique_ptr<Fabric> hosts, int gpu);

}  // namespace seqtile
