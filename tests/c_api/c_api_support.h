// tests/c_api/c_api_support.h -- owners of the C interface's objects, and DLPack tensors over vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "seqtile.h"

namespace seqtile::test {

template <auto kRelease>
struct Released {
  template <class T>
  void operator()(T* object) const {
    kRelease(object);
  }
};
using EnginePtr = std::unique_ptr<seqtile_engine, Released<seqtile_engine_release>>;
using OpPtr = std::unique_ptr<seqtile_op, Released<seqtile_op_release>>;
using FabricPtr = std::unique_ptr<seqtile_fabric, Released<seqtile_fabric_release>>;
using ChannelPtr = std::unique_ptr<seqtile_channel, Released<seqtile_channel_release>>;

/// A DLPack tensor with a shape and strides of its own. Without strides it is dense.
struct Dl {
  std::vector<int64_t> shape, strides;
  DLTensor tensor{};

  Dl(void* data, DLDataType dtype, std::vector<int64_t> sizes, std::vector<int64_t> steps = {})
      : shape(std::move(sizes)), strides(std::move(steps)) {
    tensor.data = data;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = dtype;
    tensor.shape = shape.data();
    tensor.strides = strides.empty() ? nullptr : strides.data();
  }
  Dl(const Dl&) = delete;
  operator const DLTensor*() const { return &tensor; }
};

constexpr DLDataType kF32{kDLFloat, 32, 1}, kBf16{kDLBfloat, 16, 1}, kF16{kDLFloat, 16, 1}, kI32{kDLInt, 32, 1};

inline std::string text_of(char* text) {
  const std::string copy = text ? text : "";
  seqtile_text_free(text);
  return copy;
}

}  // namespace seqtile::test
