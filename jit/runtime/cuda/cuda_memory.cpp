// jit/runtime/cuda/cuda_memory.cpp -- see cuda_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_memory.h"

#include <bit>

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

CUdeviceptr address(const void* pointer) { return std::bit_cast<CUdeviceptr>(pointer); }

}  // namespace

CudaMemory::CudaMemory(const Context& context) : context_(context) {
  const Context::Current current(context_);
  const Driver& driver = context_.driver();
  int has_pools = 0;
  context_.check(driver.cuDeviceGetAttribute(&has_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, context_.device()),
                 "ask for memory pools");
  if (!has_pools) return;
  CUmemPoolProps properties;
  properties.location.id = context_.device();
  context_.check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "make a stream");
  const CUresult made = driver.cuMemPoolCreate(&pool_, &properties);
  if (made != CUDA_SUCCESS) {
    driver.cuStreamDestroy(stream_);
    context_.fail(made, "make a memory pool");
  }
  uint64_t keep_all = UINT64_MAX;
  driver.cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_all);
}

CudaMemory::~CudaMemory() {
  if (context_.is_lost()) return;  // everything went with the context
  // As with one that is lost now, or a driver that ends with the process.
  try {
    const Context::Current current(context_);
    free_waiting();
    if (stream_) context_.driver().cuStreamDestroy(stream_);
    if (pool_) context_.driver().cuMemPoolDestroy(pool_);
  } catch (const Error&) {
  }
}

void* CudaMemory::allocate(size_t bytes) {
  const Context::Current current(context_);
  free_waiting();
  const Driver& driver = context_.driver();
  CUdeviceptr pointer = 0;
  const size_t size = bytes > 0 ? bytes : 1;
  CUresult result = CUDA_SUCCESS;
  if (pool_) {
    result = driver.cuMemAllocFromPoolAsync(&pointer, size, pool_, stream_);
    if (result == CUDA_SUCCESS) result = driver.cuStreamSynchronize(stream_);
  } else {
    result = driver.cuMemAlloc(&pointer, size);
  }
  if (result != CUDA_SUCCESS) fail_allocation(result, bytes);
  return std::bit_cast<void*>(pointer);
}

void CudaMemory::fail_allocation(CUresult result, size_t bytes) {
  std::string what = fmt::format("allocate {} bytes", bytes);
  size_t free = 0, total = 0;
  // An earlier launch's fault may be told here too, which is none of the memory's.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && context_.driver().cuMemGetInfo(&free, &total) == CUDA_SUCCESS)
    what += fmt::format(" ({} of {} are free)", free, total);
  context_.fail(result, what);
}

bool CudaMemory::free_now(CUdeviceptr pointer) noexcept {
  const Driver& driver = context_.driver();
  // Launches on any stream may use the memory; their faults are for synchronize() to tell. While a stream captures, the
  // context cannot be waited for.
  constexpr CUresult kFirstOfCapture = 900, kLastOfCapture = 908;
  const CUresult waited = driver.cuCtxSynchronize();
  if (waited >= kFirstOfCapture && waited <= kLastOfCapture) return false;
  if (pool_) driver.cuMemFreeAsync(pointer, stream_);
  else driver.cuMemFree(pointer);
  return true;
}

void CudaMemory::free_waiting() noexcept {
  const std::lock_guard lock(mutex_);
  while (!waiting_.empty() && free_now(waiting_.back())) waiting_.pop_back();
}

void CudaMemory::free(void* pointer) noexcept {
  if (!pointer || context_.is_lost()) return;
  try {
    const Context::Current current(context_);
    if (free_now(address(pointer))) return;
    const std::lock_guard lock(mutex_);
    waiting_.push_back(address(pointer));
  } catch (const std::exception&) {
    // Lost meanwhile, and the memory with it; or not even room for the note, and the memory goes with the pool.
  }
}

void CudaMemory::copy(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Context::Current current(context_);
  context_.check(context_.driver().cuMemcpyAsync(address(to), address(from), bytes, driver_stream(stream)), "copy");
}

void CudaMemory::fill(void* pointer, uint8_t byte, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Context::Current current(context_);
  context_.check(context_.driver().cuMemsetD8Async(address(pointer), byte, bytes, driver_stream(stream)), "fill");
}

}  // namespace seqtile::cuda
