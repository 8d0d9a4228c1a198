// jit/runtime/cuda/cuda_streams.h -- streams, events and graphs of one GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "jit/runtime/cuda/cuda_context.h"
#include "seqtile/device.h"

namespace seqtile::cuda {

/// The default order is the driver's default stream.
class CudaStreams final : public DeviceStreams {
 public:
  explicit CudaStreams(const Context& context) : context_(context) {}
  Stream create() override;
  void destroy(Stream stream) noexcept override;
  void synchronize(Stream stream) override;
  std::unique_ptr<Event> create_event() override;
  void begin_capture(Stream stream) override;
  std::unique_ptr<Graph> end_capture(Stream stream) override;

 private:
  const Context& context_;
};

}  // namespace seqtile::cuda
