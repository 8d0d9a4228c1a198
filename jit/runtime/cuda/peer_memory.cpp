// jit/runtime/cuda/peer_memory.cpp -- see peer_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/peer_memory.h"

#include <utility>

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

/// In destructors: a context that is lost has taken everything with it.
template <class Call>
void try_in(const Context& context, Call&& call) noexcept {
  try {
    const Context::Current current(context);
    call();
  } catch (const Error&) {
  }
}

}  // namespace

std::string bus_id(const Context& context) {
  char bus[32] = "";
  context.check(context.driver().cuDeviceGetPCIBusId(bus, sizeof bus, context.device()), "ask for its bus");
  return bus;
}

void check_reaches(const Context& own, const std::string& peer_bus) {
  CUdevice peer = 0;
  if (own.driver().cuDeviceGetByPCIBusId(&peer, peer_bus.c_str()) != CUDA_SUCCESS)
    throw Error(ErrorCode::unsupported,
                fmt::format("{} does not see the GPU {} of another rank; let CUDA_VISIBLE_DEVICES name the GPUs of all "
                            "ranks",
                            own.name(), peer_bus));
  int can_access = 0;
  own.check(own.driver().cuDeviceCanAccessPeer(&can_access, own.device(), peer), "ask for peer access");
  if (!can_access)
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{} ({}) cannot reach the memory of the GPU {}; use GPUs that NVLink or one PCIe root joins "
                    "(nvidia-smi topo -p2p r shows them)",
                    own.name(), bus_id(own), peer_bus));
}

void enable_peer_access(const Context& own, CUcontext peer) {
  const Context::Current current(own);
  const CUresult result = own.driver().cuCtxEnablePeerAccess(peer, 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) own.check(result, "enable peer access");
}

PeerBlock::PeerBlock(std::shared_ptr<const Context> context, size_t bytes) : context_(std::move(context)) {
  const Context::Current current(*context_);
  const Driver& driver = context_->driver();
  context_->check(driver.cuMemAlloc(&address_, bytes > 0 ? bytes : 1),
                  fmt::format("allocate {} bytes for all ranks", bytes));
  CUresult filled = driver.cuMemsetD8Async(address_, 0, bytes, nullptr);
  if (filled == CUDA_SUCCESS) filled = driver.cuStreamSynchronize(nullptr);
  if (filled == CUDA_SUCCESS) return;
  driver.cuMemFree(address_);
  context_->fail(filled, "fill");
}

PeerBlock::~PeerBlock() {
  if (address_ != 0) try_in(*context_, [&] { context_->driver().cuMemFree(address_); });
}

CUipcMemHandle PeerBlock::handle() const {
  const Context::Current current(*context_);
  CUipcMemHandle handle;
  context_->check(context_->driver().cuIpcGetMemHandle(&handle, address_), "share memory with other processes");
  return handle;
}

OpenedBlock::OpenedBlock(std::shared_ptr<const Context> context, const CUipcMemHandle& handle)
    : context_(std::move(context)) {
  const Context::Current current(*context_);
  context_->check(context_->driver().cuIpcOpenMemHandle(&address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                  "open the memory of another process");
}

OpenedBlock::OpenedBlock(OpenedBlock&& other) noexcept
    : context_(std::move(other.context_)), address_(std::exchange(other.address_, 0)) {}

OpenedBlock::~OpenedBlock() {
  if (address_ != 0) try_in(*context_, [&] { context_->driver().cuIpcCloseMemHandle(address_); });
}

}  // namespace seqtile::cuda
