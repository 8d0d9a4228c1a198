// jit/runtime/cuda/peer_memory.h -- memory of a GPU that kernels of other GPUs reach, in this process and in others.
// SPDX-License-Identifier: Apache-2.0
//
// The allocations are plain: neither peers nor other processes can reach memory of a pool (cuda_memory.h).
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "jit/runtime/cuda/cuda_context.h"

namespace seqtile::cuda {

/// PCI bus, "0000:3b:00.0": it names a GPU in all processes, however CUDA_VISIBLE_DEVICES numbers the GPUs.
std::string bus_id(const Context& context);
/// Errors: unsupported where this process does not see that GPU, or `own` cannot reach its memory.
void check_reaches(const Context& own, const std::string& peer_bus);
/// Kernels of `own` reach the plain allocations of `peer`, a context of this process, from here on.
void enable_peer_access(const Context& own, CUcontext peer);

/// A block of zeros, ready when it is constructed.
class PeerBlock {
 public:
  /// Errors: out_of_resources.
  PeerBlock(std::shared_ptr<const Context> context, size_t bytes);
  PeerBlock(const PeerBlock&) = delete;
  PeerBlock& operator=(const PeerBlock&) = delete;
  ~PeerBlock();
  CUdeviceptr address() const { return address_; }
  CUipcMemHandle handle() const;  ///< for other processes
  /// Keeps the memory until the process ends, as other processes may still have it open.
  void abandon() { address_ = 0; }

 private:
  std::shared_ptr<const Context> context_;
  CUdeviceptr address_ = 0;
};

/// A block of another process, open on the GPU of `context`. Its owner frees it when all have closed it.
class OpenedBlock {
 public:
  OpenedBlock(std::shared_ptr<const Context> context, const CUipcMemHandle& handle);
  OpenedBlock(OpenedBlock&& other) noexcept;
  OpenedBlock& operator=(OpenedBlock&&) = delete;
  ~OpenedBlock();
  CUdeviceptr address() const { return address_; }

 private:
  std::shared_ptr<const Context> context_;
  CUdeviceptr address_ = 0;
};

}  // namespace seqtile::cuda
