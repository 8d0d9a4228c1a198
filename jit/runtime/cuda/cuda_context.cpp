// jit/runtime/cuda/cuda_context.cpp -- see cuda_context.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_context.h"

#include <utility>

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

struct ErrorRow {
  CUresult result;
  ErrorCode code;
  bool ends_context;
  const char* advice;
};

constexpr const char* kFreeMemory = "free memory of the GPU, or use smaller tensors";
constexpr const char* kKernelFault = "the kernel is at fault: run it on sim: to see where";
constexpr const char* kHardware = "see dmesg and nvidia-smi";

/// Numbers of CUresult. A result that is not listed is an error of the one call alone.
constexpr ErrorRow kErrors[] = {
    {2, ErrorCode::out_of_resources, false, kFreeMemory},                                // OUT_OF_MEMORY
    {46, ErrorCode::driver, false, "another process has it for itself"},                 // DEVICE_UNAVAILABLE
    {200, ErrorCode::compile_failed, false, nullptr},                                    // INVALID_IMAGE
    {209, ErrorCode::compile_failed, false, "it is for another GPU; compile it again"},  // NO_BINARY_FOR_GPU
    {214, ErrorCode::driver, true, kHardware},                                           // ECC_UNCORRECTABLE
    {218, ErrorCode::compile_failed, false, nullptr},                                    // INVALID_PTX
    {220, ErrorCode::driver, true, kHardware},                                           // NVLINK_UNCORRECTABLE
    {221, ErrorCode::compile_failed, false, "the driver's PTX compiler is missing; install a CUDA toolkit for ptxas"},
    {222, ErrorCode::compile_failed, false, "update the driver, or install a CUDA toolkit for ptxas"},
    {223, ErrorCode::compile_failed, false, "install a CUDA toolkit for ptxas"},    // JIT_COMPILATION_DISABLED
    {226, ErrorCode::driver, true, kHardware},                                      // CONTAINED
    {700, ErrorCode::driver, true, kKernelFault},                                   // ILLEGAL_ADDRESS
    {701, ErrorCode::out_of_resources, false, "use fewer warps or smaller tiles"},  // LAUNCH_OUT_OF_RESOURCES
    {702, ErrorCode::timeout, true, "the display's watchdog ended the kernel"},     // LAUNCH_TIMEOUT
    {709, ErrorCode::driver, true, nullptr},                                        // CONTEXT_IS_DESTROYED
    {710, ErrorCode::driver, true, kKernelFault},                                   // ASSERT
    {714, ErrorCode::driver, true, kKernelFault},                                   // HARDWARE_STACK_ERROR
    {715, ErrorCode::driver, true, kKernelFault},                                   // ILLEGAL_INSTRUCTION
    {716, ErrorCode::driver, true, kKernelFault},                                   // MISALIGNED_ADDRESS
    {717, ErrorCode::driver, true, kKernelFault},                                   // INVALID_ADDRESS_SPACE
    {718, ErrorCode::driver, true, kKernelFault},                                   // INVALID_PC
    {719, ErrorCode::driver, true, kKernelFault},                                   // LAUNCH_FAILED
    {720, ErrorCode::out_of_resources, false, "launch fewer programs at once"},     // COOPERATIVE_LAUNCH_TOO_LARGE
    {810, ErrorCode::driver, true, "the MPS server ended this client"},             // MPS_CLIENT_TERMINATED
    {912, ErrorCode::out_of_resources, false, "use a smaller cluster"},             // INVALID_CLUSTER_SIZE
    {999, ErrorCode::driver, true, kHardware},                                      // UNKNOWN
};

const ErrorRow* row_of(CUresult result) {
  for (const ErrorRow& row : kErrors)
    if (row.result == result) return &row;
  return nullptr;
}

}  // namespace

ErrorCode error_code_of(CUresult result) {
  const ErrorRow* row = row_of(result);
  return row ? row->code : ErrorCode::driver;
}

Context::Context(std::shared_ptr<const Driver> driver, int ordinal)
    : driver_(std::move(driver)), name_(fmt::format("cuda:{}", ordinal)) {
  check(driver_->cuDeviceGet(&device_, ordinal), "find it");
  check(driver_->cuDevicePrimaryCtxRetain(&context_, device_), "make its context");
}

Context::~Context() { driver_->cuDevicePrimaryCtxRelease(device_); }

void Context::fail(CUresult result, std::string_view what) const {
  const ErrorRow* row = row_of(result);
  std::string message = fmt::format("{}: {}: {}", name_, what, driver_->describe(result));
  if (row && row->advice) message += fmt::format("; {}", row->advice);
  if (row && row->ends_context) {
    const std::lock_guard lock(mutex_);
    if (!is_lost_.exchange(true)) first_report_ = message;
    message += "; the device is lost to this process, start a new one";
  }
  throw Error(row ? row->code : ErrorCode::driver, message);
}

Context::Current::Current(const Context& context) {
  if (context.is_lost()) {
    const std::lock_guard lock(context.mutex_);
    throw Error(ErrorCode::driver,
                fmt::format("{} is lost to this process, start a new one; the first error was \"{}\"", context.name_,
                            context.first_report_));
  }
  CUcontext current = nullptr;
  context.check(context.driver_->cuCtxGetCurrent(&current), "ask for the current context");
  if (current == context.context_) return;
  context.check(context.driver_->cuCtxPushCurrent(context.context_), "make its context current");
  pushed_ = &context;
}

Context::Current::~Current() {
  CUcontext popped = nullptr;
  if (pushed_) pushed_->driver_->cuCtxPopCurrent(&popped);
}

}  // namespace seqtile::cuda
