// jit/runtime/cuda/cuda_kernel.cpp -- see cuda_kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_kernel.h"

#include <algorithm>
#include <utility>

#include "jit/abi/cubin.h"

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

constexpr int64_t kPlainSharedBytes = 48 << 10;  // more needs to be asked for
constexpr uint32_t kPortableCluster = 8;         // likewise
constexpr size_t kMaxParameterBytes = 4096;

/// The driver's complaint about PTX on one line: its first line that says anything.
std::string first_line(const std::string& log) {
  const size_t start = log.find_first_not_of(" \n\r\t");
  if (start == std::string::npos) return {};
  return log.substr(start, std::min<size_t>(log.find('\n', start) - start, 300));
}

}  // namespace

CudaKernel::CudaKernel(const Context& context, const GpuFacts& facts, KernelBinary binary)
    : LoadedKernel(std::move(binary)), context_(context) {
  check_code(facts);
  const Context::Current current(context_);
  try {
    load_module();
    reserve_shared(facts);
    check_occupancy(facts);
  } catch (...) {
    if (module_) context_.driver().cuModuleUnload(module_);
    throw;
  }
}

CudaKernel::~CudaKernel() {
  if (context_.is_lost()) return;
  // A context that is lost between the two lines takes the module with it.
  try {
    const Context::Current current(context_);
    context_.driver().cuModuleUnload(module_);
  } catch (const Error&) {
  }
}

void CudaKernel::check_code(const GpuFacts& facts) const {
  const int sm = facts.compute_capability;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}, {} is an sm_{} ({}); compile it again",
                                                         binary_.symbol, what, context_.name(), sm, facts.name));
  };
  const size_t slots = num_launch_slots(binary_);
  // A map may need as much again to lie at a multiple of 64 bytes.
  const size_t map_bytes = binary_.gpu.tensor_maps.size() * (sizeof(CUtensorMap) + 64);
  if (8 * (slots + GpuGrid{}.programs.size()) + map_bytes > kMaxParameterBytes)
    throw Error(
        ErrorCode::unsupported,
        fmt::format("kernel {}: {} slots and {} tensor maps are more than the {} bytes of parameters that a GPU "
                    "takes",
                    binary_.symbol, slots, binary_.gpu.tensor_maps.size(), kMaxParameterBytes));
  // sm_90a code is for that GPU only; sm_80 PTX is for all from there on.
  const bool runs_here = binary_.target == "sm_90a" ? sm == 90 : binary_.target == "sm_80" && sm >= 80;
  if (!runs_here) refuse("code for " + binary_.target);
  if (binary_.stage == "ptx") return;
  if (binary_.stage != "cubin") refuse("stage " + binary_.stage + " is not code for a GPU");
  const auto made_for = cubin_sm(binary_.code);
  if (!made_for) refuse("a damaged cubin");
  // A cubin runs on later GPUs of the same major version.
  if (*made_for / 10 != sm / 10 || *made_for > sm) refuse(fmt::format("a cubin for sm_{}", *made_for));
}

void CudaKernel::load_module() {
  std::string image(reinterpret_cast<const char*>(binary_.code.data()), binary_.code.size());  // ends in a 0 byte
  std::string log(4096, '\0');
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  const CUresult result = context_.driver().cuModuleLoadDataEx(&module_, image.c_str(), 2, options, values);
  if (result != CUDA_SUCCESS) {
    const std::string complaint = first_line(log.c_str());
    context_.fail(result, fmt::format("load the {} of kernel {}{}{}", binary_.stage, binary_.symbol,
                                      complaint.empty() ? "" : ": ", complaint));
  }
  context_.check(context_.driver().cuModuleGetFunction(&function_, module_, binary_.symbol.c_str()),
                 "find kernel " + binary_.symbol + " in its code");
}

void CudaKernel::check_occupancy(const GpuFacts& facts) {
  const Driver& driver = context_.driver();
  int blocks = 0, registers = 0;
  context_.check(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                     &blocks, function_, static_cast<int>(binary_.gpu.threads), binary_.gpu.shared_bytes),
                 "ask how many blocks fit");
  resident_blocks_ = int64_t{blocks} * facts.num_multiprocessors;
  if (blocks > 0) return;
  driver.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function_);
  throw Error(ErrorCode::out_of_resources,
              fmt::format("kernel {}: {} threads of {} registers and {} B of shared memory do not fit a multiprocessor "
                          "of {} ({} registers); use fewer warps or smaller tiles",
                          binary_.symbol, binary_.gpu.threads, registers, binary_.gpu.shared_bytes, context_.name(),
                          facts.registers_per_multiprocessor));
}

void CudaKernel::reserve_shared(const GpuFacts& facts) const {
  int fixed = 0;
  const Driver& driver = context_.driver();
  driver.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_);
  const int64_t bytes = fixed + int64_t{binary_.gpu.shared_bytes};
  if (bytes > facts.shared_bytes_per_block)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("kernel {}: a block needs {} B of shared memory, {} ({}) allows {} B; use smaller tiles or "
                            "fewer stages",
                            binary_.symbol, bytes, context_.name(), facts.name, facts.shared_bytes_per_block));
  if (bytes > kPlainSharedBytes)
    context_.check(driver.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(binary_.gpu.shared_bytes)),
                   "ask for the shared memory of kernel " + binary_.symbol);
  const auto& cluster = binary_.gpu.cluster;
  if (cluster[0] * cluster[1] * cluster[2] > kPortableCluster)
    context_.check(driver.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                   "ask for the cluster of kernel " + binary_.symbol);
}

void CudaKernel::launch(const Grid& grid, std::span<const uint64_t> slots, Stream stream) const {
  check_slots(binary_, slots);
  GpuGrid launched = gpu_grid(binary_, grid, resident_blocks_, context_.name());
  if (launched.is_empty()) return;
  const Context::Current current(context_);
  CUtensorMap maps[kMaxParameterBytes / sizeof(CUtensorMap)];
  void* parameters[kMaxParameterBytes / sizeof(uint64_t)];
  size_t count = 0;
  for (const uint64_t& slot : takes_table(binary_.gpu) ? slots.first(1) : slots)
    parameters[count++] = const_cast<uint64_t*>(&slot);
  if (takes_grid(binary_.gpu))
    for (auto& side : launched.programs) parameters[count++] = &side;
  for (size_t i = 0; i < binary_.gpu.tensor_maps.size(); ++i) {
    maps[i] = tensor_map(context_, binary_.gpu.tensor_maps[i], slots);
    parameters[count++] = &maps[i];
  }
  submit(launched, parameters, stream);
}

// Each parameter has its own address: as one block, tensor maps would have to lie where ptxas puts them, which is at
// multiples of 64 bytes of its constant bank and not of the block.
void CudaKernel::submit(const GpuGrid& launched, void** parameters, Stream stream) const {
  const auto& cluster = binary_.gpu.cluster;
  CUlaunchAttribute attributes[2] = {};
  unsigned num_attributes = 0;
  if (cluster[0] * cluster[1] * cluster[2] > 1) {
    attributes[num_attributes].value.clusterDim = {cluster[0], cluster[1], cluster[2]};
    attributes[num_attributes++].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  }
  if (binary_.gpu.is_cooperative) {
    attributes[num_attributes].value.cooperative = 1;
    attributes[num_attributes++].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  }
  CUlaunchConfig config{launched.blocks[0],       launched.blocks[1],    launched.blocks[2], binary_.gpu.threads, 1, 1,
                        binary_.gpu.shared_bytes, driver_stream(stream), attributes,         num_attributes};
  const CUresult result = context_.driver().cuLaunchKernelEx(&config, function_, parameters, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    context_.fail(result, "launch kernel " + binary_.symbol);
}

}  // namespace seqtile::cuda
