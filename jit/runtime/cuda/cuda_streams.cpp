// jit/runtime/cuda/cuda_streams.cpp -- see cuda_streams.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_streams.h"

#include <vector>

namespace seqtile::cuda {
namespace {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const Context& context) : context_(context) {
    const Context::Current current(context_);
    context_.check(context_.driver().cuEventCreate(&event_, 0), "make an event");
  }
  ~CudaEvent() override {
    if (!context_.is_lost()) context_.driver().cuEventDestroy(event_);
  }
  void record(Stream stream) override {
    const Context::Current current(context_);
    context_.check(context_.driver().cuEventRecord(event_, driver_stream(stream)), "record an event");
    is_recorded_ = true;
  }
  void delay(Stream stream) override {
    if (!is_recorded_) return;
    const Context::Current current(context_);
    context_.check(context_.driver().cuStreamWaitEvent(driver_stream(stream), event_, 0), "delay a stream");
  }
  double us_since(const Event& earlier) override {
    const auto& first = static_cast<const CudaEvent&>(earlier);
    if (!first.is_recorded_ || !is_recorded_)
      throw Error(ErrorCode::invalid_argument, context_.name() + ": time between events of which one was not recorded");
    const Context::Current current(context_);
    float ms = 0;
    context_.check(context_.driver().cuEventSynchronize(first.event_), "wait for an event");
    context_.check(context_.driver().cuEventSynchronize(event_), "wait for an event");
    context_.check(context_.driver().cuEventElapsedTime(&ms, first.event_, event_), "take the time between events");
    return 1000.0 * ms;
  }

 private:
  const Context& context_;
  CUevent event_ = nullptr;
  bool is_recorded_ = false;
};

class CudaGraph final : public Graph {
 public:
  /// Owns `graph` from here on, whatever happens.
  CudaGraph(const Context& context, CUgraph graph) : context_(context), graph_(graph) {
    try {
      context_.check(context_.driver().cuGraphInstantiate(&executable_, graph_, 0), "make a captured graph executable");
      count_kernels();
    } catch (...) {
      release();
      throw;
    }
  }
  ~CudaGraph() override { release(); }
  void launch(Stream stream) override {
    const Context::Current current(context_);
    context_.check(context_.driver().cuGraphLaunch(executable_, driver_stream(stream)), "launch a graph");
  }
  int num_kernels() const override { return num_kernels_; }

 private:
  void release() {
    if (context_.is_lost()) return;
    if (executable_) context_.driver().cuGraphExecDestroy(executable_);
    context_.driver().cuGraphDestroy(graph_);
  }
  void count_kernels() {
    const Driver& driver = context_.driver();
    size_t count = 0;
    context_.check(driver.cuGraphGetNodes(graph_, nullptr, &count), "count the nodes of a graph");
    std::vector<CUgraphNode> nodes(count);
    if (count > 0) context_.check(driver.cuGraphGetNodes(graph_, nodes.data(), &count), "list the nodes of a graph");
    for (const CUgraphNode node : nodes) {
      int type = -1;
      context_.check(driver.cuGraphNodeGetType(node, &type), "look at a node of a graph");
      num_kernels_ += type == CU_GRAPH_NODE_TYPE_KERNEL;
    }
  }

  const Context& context_;
  CUgraph graph_;
  CUgraphExec executable_ = nullptr;
  int num_kernels_ = 0;
};

}  // namespace

Stream CudaStreams::create() {
  const Context::Current current(context_);
  CUstream stream = nullptr;
  context_.check(context_.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "make a stream");
  return {stream};
}

void CudaStreams::destroy(Stream stream) noexcept {
  if (stream.handle && !context_.is_lost()) context_.driver().cuStreamDestroy(driver_stream(stream));
}

void CudaStreams::synchronize(Stream stream) {
  const Context::Current current(context_);
  context_.check(context_.driver().cuStreamSynchronize(driver_stream(stream)), "wait for the work of a stream");
}

std::unique_ptr<Event> CudaStreams::create_event() { return std::make_unique<CudaEvent>(context_); }

void CudaStreams::begin_capture(Stream stream) {
  if (!stream.handle)
    throw Error(ErrorCode::invalid_argument,
                context_.name() + ": the default order cannot be captured; give a stream of create()");
  const Context::Current current(context_);
  const Driver& driver = context_.driver();
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  context_.check(driver.cuStreamIsCapturing(driver_stream(stream), &status), "look at a stream");
  if (status != CU_STREAM_CAPTURE_STATUS_NONE)
    throw Error(ErrorCode::invalid_argument, context_.name() + ": the stream is being captured already");
  context_.check(driver.cuStreamBeginCapture(driver_stream(stream), CU_STREAM_CAPTURE_MODE_RELAXED), "begin a capture");
}

std::unique_ptr<Graph> CudaStreams::end_capture(Stream stream) {
  const Context::Current current(context_);
  CUgraph graph = nullptr;
  context_.check(context_.driver().cuStreamEndCapture(driver_stream(stream), &graph), "end a capture");
  return std::make_unique<CudaGraph>(context_, graph);
}

}  // namespace seqtile::cuda
