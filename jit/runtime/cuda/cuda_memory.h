// jit/runtime/cuda/cuda_memory.h -- memory of one GPU: a pool of our own that keeps what was freed.
// SPDX-License-Identifier: Apache-2.0
//
// Allocations come from a pool of the driver, which gives freed memory out again without asking the system; GPUs that
// have no pools get plain allocations. An allocation is ready when allocate() returns, for every stream.
#pragma once
#include <mutex>
#include <vector>

#include "jit/runtime/cuda/cuda_context.h"
#include "seqtile/device.h"

namespace seqtile::cuda {

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(const Context& context);
  ~CudaMemory() override;
  void* allocate(size_t bytes) override;
  void free(void* pointer) noexcept override;
  void copy(void* to, const void* from, size_t bytes, Stream stream) override;
  void fill(void* pointer, uint8_t byte, size_t bytes, Stream stream) override;
  bool is_host() const override { return false; }

 private:
  [[noreturn]] void fail_allocation(CUresult result, size_t bytes);
  bool free_now(CUdeviceptr pointer) noexcept;
  void free_waiting() noexcept;

  const Context& context_;
  CUmemoryPool pool_ = nullptr;
  CUstream stream_ = nullptr;         ///< allocates and frees, where there is a pool
  std::mutex mutex_;                  ///< guards the member below
  std::vector<CUdeviceptr> waiting_;  ///< freed while a capture did not let the context be waited for
};

}  // namespace seqtile::cuda
