// tests/support/fakes/fake_cuda_driver.cpp -- a shared library in the role of libcuda.so.1; see fake_cuda_driver.h.
// SPDX-License-Identifier: Apache-2.0
#define FAKE_CUDA_DRIVER ""
#include "tests/support/fakes/fake_cuda_driver.h"

#include <cstring>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "jit/runtime/cuda/cuda_types.h"

using namespace seqtile::cuda;
using seqtile::test::FakeCudaState;
using seqtile::test::FakeLaunch;

namespace {

struct Node {
  int type;
};
struct FakeGraph {
  std::vector<Node> nodes;
};
struct FakeStream {
  FakeGraph* capture = nullptr;
};

struct Fake : FakeCudaState {
  std::map<std::string, int> calls;
  CUresult ended_by = CUDA_SUCCESS;
};

/// The current context of a thread, and the context below it on the thread's stack.
thread_local CUcontext current = nullptr, below = nullptr;

/// The mutex of all calls, because ranks that are threads share the library.
std::recursive_mutex& all_calls() {
  static std::recursive_mutex mutex;
  return mutex;
}

Fake& fake() {
  static Fake state;
  return state;
}

std::map<std::string, std::string> settings() {
  std::map<std::string, std::string> found;
  const char* text = std::getenv("FAKE_CUDA");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) found[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return found;
}

int setting(const char* name, int otherwise) {
  const auto all = settings();
  const auto found = all.find(name);
  return found == all.end() ? otherwise : std::atoi(found->second.c_str());
}

/// Counts a call. Returns the error that FAKE_CUDA asks for.
CUresult enter(const char* name) {
  const std::lock_guard lock(all_calls());
  const int number = ++fake().calls[name];
  if (fake().ended_by) return fake().ended_by;
  const auto all = settings();
  auto found = all.find(name + ("@" + std::to_string(number)));
  if (found == all.end()) found = all.find(name);
  if (found == all.end()) return CUDA_SUCCESS;
  const CUresult result = std::atoi(found->second.c_str());
  if (result >= 700 && result < 720 && result != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES &&
      result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    fake().ended_by = result;
  return result;
}

FakeStream* stream_of(CUstream stream) { return reinterpret_cast<FakeStream*>(stream); }

/// Records the work if the stream is being captured. Returns true if it was recorded.
bool capture(CUstream stream, int type) {
  if (!stream || !stream_of(stream)->capture) return false;
  stream_of(stream)->capture->nodes.push_back({type});
  return true;
}

template <class Handle, class Object = int>
CUresult make(Handle* handle, int& live) {
  *handle = reinterpret_cast<Handle>(new Object{});
  ++live;
  return CUDA_SUCCESS;
}

template <class Object = int, class Handle>
CUresult destroy(Handle handle, int& live) {
  delete reinterpret_cast<Object*>(handle);
  --live;
  return CUDA_SUCCESS;
}

/// Bytes of each parameter of the last module's kernel, as its PTX declares them, followed by the parameters that a
/// test adds.
std::vector<size_t> parameter_bytes() {
  std::vector<size_t> bytes;
  std::istringstream lines(fake().image.substr(0, fake().image.find('{')));
  for (std::string line; std::getline(lines, line);) {
    if (line.find(".param ") == std::string::npos) continue;
    const size_t array = line.find('[');
    bytes.push_back(array == std::string::npos ? 8 : static_cast<size_t>(std::atoi(line.c_str() + array + 1)));
  }
  for (int i = 0; i < setting("more_slots", 0); ++i) bytes.push_back(8);
  for (int i = 0; i < setting("maps", 0); ++i) bytes.push_back(sizeof(CUtensorMap));
  return bytes;
}

FakeLaunch launch_of(const CUlaunchConfig& config, void** parameters) {
  FakeLaunch launch{{config.gridDimX, config.gridDimY, config.gridDimZ},
                    config.blockDimX,
                    config.sharedMemBytes,
                    config.hStream,
                    {},
                    {},
                    1};
  for (const size_t bytes : parameter_bytes()) {
    const auto* from = static_cast<const unsigned char*>(*parameters++);
    launch.parameters.insert(launch.parameters.end(), from, from + bytes);
  }
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    launch.attributes.push_back(config.attrs[i].id);
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      launch.cluster = config.attrs[i].value.clusterDim.x;
  }
  return launch;
}

}  // namespace

#define LOCK() const std::lock_guard lock(all_calls())
#define ENTER(name) \
  LOCK();           \
  if (const CUresult told = enter(name)) return told

extern "C" {

void fake_cuda_reset() {
  fake() = Fake{};
  current = below = nullptr;
}
FakeCudaState* fake_cuda_state() { return &fake(); }
int fake_cuda_calls(const char* name) { return fake().calls[name]; }

CUresult cuDriverGetVersion(int* version) {
  *version = setting("version", 12080);
  return enter("cuDriverGetVersion");
}
CUresult cuInit(unsigned) { return enter("cuInit"); }
CUresult cuGetErrorName(CUresult error, const char** text) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {100, "CUDA_ERROR_NO_DEVICE"},       {218, "CUDA_ERROR_INVALID_PTX"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {500, "CUDA_ERROR_NOT_FOUND"},       {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  const auto found = names.find(error);
  *text = found == names.end() ? nullptr : found->second;
  return *text ? CUDA_SUCCESS : 1;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "words of the driver";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  *count = setting("gpus", 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER("cuDeviceGet");
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  ENTER("cuDeviceGetName");
  const auto all = settings();
  const auto found = all.find("name");
  std::string text = found == all.end() ? "Fake_GPU" : found->second;
  for (char& c : text) c = c == '_' ? ' ' : c;
  std::strncpy(name, text.c_str(), static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* bus, int length, CUdevice device) {
  ENTER("cuDeviceGetPCIBusId");
  std::snprintf(bus, static_cast<size_t>(length), "0000:%02x:00.0", 0x3b + static_cast<unsigned>(device));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* bus) {
  ENTER("cuDeviceGetByPCIBusId");
  unsigned number = 0;
  std::sscanf(bus, "0000:%02x:00.0", &number);
  *device = static_cast<CUdevice>(number) - 0x3b;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice peer) {
  ENTER("cuDeviceCanAccessPeer");
  *can = peer != setting("island", -1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  ENTER("cuDeviceGetAttribute");
  const int sm = setting("sm", 90);
  const std::map<int, int> values = {{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
                                     {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
                                     {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
                                     {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
                                     {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 60 << 20},
                                     {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                                     {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, sm / 10},
                                     {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, sm % 10},
                                     {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
                                     {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
                                     {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
                                     {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, setting("pools", 1)}};
  const auto found = values.find(attribute);
  if (found == values.end()) return 1;
  *value = found->second;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  ENTER("cuDeviceTotalMem");
  *bytes = size_t{140} << 30;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain");
  *context = reinterpret_cast<CUcontext>(uintptr_t{0x1000} + device);
  ++fake().live_contexts;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  LOCK();
  --fake().live_contexts;
  return enter("cuDevicePrimaryCtxRelease");
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  LOCK();
  *context = current;
  return enter("cuCtxGetCurrent");
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  LOCK();
  below = current;
  current = context;
  ++fake().pushed_contexts;
  return enter("cuCtxPushCurrent");
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  LOCK();
  *context = current;
  current = below;
  --fake().pushed_contexts;
  return enter("cuCtxPopCurrent");
}
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) {
  ENTER("cuCtxEnablePeerAccess");
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  LOCK();
  return enter("cuCtxSynchronize");
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = 12345;
  *total = 67890;
  return enter("cuMemGetInfo");
}
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  ENTER("cuMemAlloc");
  *pointer = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  ++fake().live_blocks;
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  LOCK();
  std::free(reinterpret_cast<void*>(pointer));
  --fake().live_blocks;
  return enter("cuMemFree");
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  ENTER("cuIpcGetMemHandle");
  std::memcpy(handle->reserved, &pointer, sizeof pointer);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned) {
  ENTER("cuIpcOpenMemHandle");
  std::memcpy(pointer, handle.reserved, sizeof *pointer);
  ++fake().live_opened;
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr) {
  LOCK();
  --fake().live_opened;
  return enter("cuIpcCloseMemHandle");
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps*) {
  ENTER("cuMemPoolCreate");
  return make(pool, fake().live_pools);
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  LOCK();
  enter("cuMemPoolDestroy");
  return destroy(pool, fake().live_pools);
}
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void*) {
  LOCK();
  return enter("cuMemPoolSetAttribute");
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool, CUstream) {
  ENTER("cuMemAllocFromPoolAsync");
  return cuMemAlloc_v2(pointer, bytes);
}
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream) {
  LOCK();
  enter("cuMemFreeAsync");
  return cuMemFree_v2(pointer);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyAsync");
  if (!capture(stream, 1)) std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char byte, size_t bytes, CUstream stream) {
  ENTER("cuMemsetD8Async");
  if (!capture(stream, 2)) std::memset(reinterpret_cast<void*>(pointer), byte, bytes);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  ENTER("cuStreamCreate");
  return make<CUstream, FakeStream>(stream, fake().live_streams);
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  LOCK();
  enter("cuStreamDestroy");
  return destroy<FakeStream>(stream, fake().live_streams);
}
CUresult cuStreamSynchronize(CUstream) {
  LOCK();
  return enter("cuStreamSynchronize");
}
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return enter("cuStreamWaitEvent"); }
CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  ENTER("cuStreamIsCapturing");
  *status = stream_of(stream)->capture ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  ENTER("cuStreamBeginCapture");
  stream_of(stream)->capture = new FakeGraph;
  ++fake().live_graphs;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ENTER("cuStreamEndCapture");
  *graph = reinterpret_cast<CUgraph>(std::exchange(stream_of(stream)->capture, nullptr));
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate");
  return make(event, fake().live_events);
}
CUresult cuEventDestroy_v2(CUevent event) {
  enter("cuEventDestroy");
  return destroy(event, fake().live_events);
}
CUresult cuEventRecord(CUevent, CUstream) { return enter("cuEventRecord"); }
CUresult cuEventSynchronize(CUevent) { return enter("cuEventSynchronize"); }
CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) {
  *ms = 1.5f;
  return enter("cuEventElapsedTime");
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph, unsigned long long) {
  ENTER("cuGraphInstantiate");
  return make(executable, fake().live_executables);
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) { return enter("cuGraphLaunch"); }
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  ENTER("cuGraphGetNodes");
  auto& list = reinterpret_cast<FakeGraph*>(graph)->nodes;
  for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(&list[i]);
  *count = list.size();
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  ENTER("cuGraphNodeGetType");
  *type = reinterpret_cast<Node*>(node)->type;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  enter("cuGraphExecDestroy");
  return destroy(executable, fake().live_executables);
}
CUresult cuGraphDestroy(CUgraph graph) {
  enter("cuGraphDestroy");
  return destroy<FakeGraph>(graph, fake().live_graphs);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int* options, void** values) {
  fake().image = static_cast<const char*>(image);
  if (const CUresult told = enter("cuModuleLoadDataEx")) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        std::strcpy(static_cast<char*>(values[i]), "\nptxas application ptx input, line 7; fatal : odd\nmore\n");
    return told;
  }
  return make(module, fake().live_modules);
}
CUresult cuModuleUnload(CUmodule module) {
  enter("cuModuleUnload");
  return destroy(module, fake().live_modules);
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char*) {
  ENTER("cuModuleGetFunction");
  *function = reinterpret_cast<CUfunction>(module);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 128 : setting("static_shared", 0);
  return enter("cuFuncGetAttribute");
}
CUresult cuFuncSetAttribute(CUfunction, int attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) fake().dynamic_shared_limit = value;
  return enter("cuFuncSetAttribute");
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = setting("blocks", 2);
  return enter("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
  ENTER("cuLaunchKernelEx");
  fake().launches.push_back(launch_of(*config, parameters));
  capture(config->hStream, CU_GRAPH_NODE_TYPE_KERNEL);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void**, void**) {
  ENTER("cuLaunchKernel");
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, int type, uint32_t rank, void* base, const uint64_t* sizes,
                                const uint64_t* stride_bytes, const uint32_t* box, const uint32_t*, int, int swizzle,
                                int, int) {
  ENTER("cuTensorMapEncodeTiled");
  *map = {{static_cast<uint64_t>(type), rank, reinterpret_cast<uint64_t>(base), sizes[0], sizes[1],
           rank > 1 ? stride_bytes[0] : 0, box[0], box[1], static_cast<uint64_t>(swizzle)}};
  return CUDA_SUCCESS;
}

// NVML lies in the same library: "sm_clock=1755 reasons=12" sets its values, "nvml=0" lets it fail.
int nvmlInit_v2() { return setting("nvml", 1) ? 0 : 999; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** gpu) {
  *gpu = nullptr;
  return std::strcmp(bus, "0000:3b:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? static_cast<unsigned>(setting("sm_clock", 1980)) : 2619;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1980;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 312'400;
  return setting("power", 1) ? 0 : 3;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = static_cast<unsigned long long>(setting("reasons", 1));
  return 0;
}

}  // extern "C"
