// jit/runtime/cuda/cuda_context.h -- one GPU's primary context, and what its errors mean.
// SPDX-License-Identifier: Apache-2.0
//
// The primary context is the one that other libraries of the process use too (PyTorch, cuBLAS), so that memory and
// streams can be exchanged with them. Some errors (an illegal address, a launch that failed) end a context: every later
// call gives the same error until the process ends. The context remembers the first of these, so that the report names
// the call that found it and not the hundred that follow. Thread-safe.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "jit/runtime/cuda/cuda_driver.h"
#include "seqtile/device.h"
#include "seqtile/error.h"

namespace seqtile::cuda {

inline CUstream driver_stream(Stream stream) { return static_cast<CUstream>(stream.handle); }

class Context {
 public:
  /// Errors: driver.
  Context(std::shared_ptr<const Driver> driver, int ordinal);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Driver& driver() const { return *driver_; }
  CUdevice device() const { return device_; }
  CUcontext handle() const { return context_; }
  const std::string& name() const { return name_; }  ///< "cuda:0"

  /// Throws for everything but success; `what` says what was tried ("cuda:0: WHAT: CUDA_ERROR_...").
  void check(CUresult result, std::string_view what) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(result, what);
  }
  [[noreturn]] void fail(CUresult result, std::string_view what) const;
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }

  /// Makes the context current on this thread for as long as the object lives, then restores the previous one.
  /// Errors: driver, when the device was lost.
  class Current {
   public:
    explicit Current(const Context& context);
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current();

   private:
    const Context* pushed_ = nullptr;
  };

 private:
  std::shared_ptr<const Driver> driver_;
  std::string name_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  mutable std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_;          ///< guards the member below
  mutable std::string first_report_;  ///< report of the error that ended the context
};

/// The ErrorCode that stands for `result`; `driver` where the table has no other.
ErrorCode error_code_of(CUresult result);

}  // namespace seqtile::cuda
