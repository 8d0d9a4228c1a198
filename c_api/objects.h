// c_api/objects.h -- the objects behind the C interface's pointers: counted references to objects of the library.
// SPDX-License-Identifier: Apache-2.0
//
// Members are in the order in which they need each other, so that the last one is destroyed first. The members of an
// object never change, so that any thread may use it; counts are atomic.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "c_api/status.h"
#include "seqtile.h"
#include "seqtile/engine.h"
#include "seqtile/fabric.h"
#include "seqtile/seqpar.h"

namespace seqtile::c_api {

/// References of the program; objects of the interface keep each other by shared pointers instead.
class Counted {
 public:
  void retain() { count_.fetch_add(1, std::memory_order_relaxed); }
  /// Returns whether this was the last one.
  bool release() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  std::atomic<int64_t> count_{1};
};

template <class Object>
void retain(Object* object) {
  if (object) object->retain();
}

template <class Object>
void release(Object* object) {
  if (object && object->release()) delete object;
}

/// Creates an object of what `make` returns for an output pointer, which is null where `make` throws.
template <class Object, class Make>
void give(Object** out, const char* name, Make&& make) {
  Object*& place = required(out, name);
  place = nullptr;
  place = new Object(make());
}

/// In the place of a GPU's number: tensors are in the host's memory; on a device whose memory no DLTensor can name.
inline constexpr int kHost = -1, kNoGpu = -2;

struct EngineParts {
  std::shared_ptr<Fabric> fabric;      ///< null where no fabric gives the device
  std::shared_ptr<Executor> executor;  ///< null where the device has a pool of its own
  std::shared_ptr<Engine> engine;
  int gpu = kHost;  ///< whose memory tensors are in
};

struct ChannelParts {
  std::shared_ptr<Fabric> fabric;
  std::shared_ptr<Channel> channel;
};

/// The dimension of a call's tensors that says the length: its size is the length + `less`.
struct LengthPlace {
  size_t tensor = 0, dim = 0;
  int64_t less = 0;
};

struct OpParts {
  EngineParts engine;
  std::optional<ChannelParts> channel;
  std::variant<Handle, kernels::seqpar::RankHandle> handle;
  std::span<const autotune::ArgSpec> args;  ///< that the caller gives; of the handle's schema
  std::optional<LengthPlace> length;        ///< absent: the caller says it
  int gpu = kHost;                          ///< as EngineParts::gpu

  const Handle& plain() const {
    if (const auto* fused = std::get_if<kernels::seqpar::RankHandle>(&handle)) return fused->handle();
    return std::get<Handle>(handle);
  }
};

}  // namespace seqtile::c_api

struct seqtile_fabric : seqtile::c_api::Counted {
  seqtile_fabric(std::shared_ptr<seqtile::Fabric> fabric, int threads_of_rank)
      : it(std::move(fabric)), threads(threads_of_rank) {}
  const std::shared_ptr<seqtile::Fabric> it;
  const int threads;  ///< of the rank's device
};

struct seqtile_channel : seqtile::c_api::Counted {
  explicit seqtile_channel(seqtile::c_api::ChannelParts parts) : it(std::move(parts)) {}
  const seqtile::c_api::ChannelParts it;
};

struct seqtile_engine : seqtile::c_api::Counted {
  explicit seqtile_engine(seqtile::c_api::EngineParts parts) : it(std::move(parts)) {}
  const seqtile::c_api::EngineParts it;
};

struct seqtile_op : seqtile::c_api::Counted {
  explicit seqtile_op(seqtile::c_api::OpParts parts) : it(std::move(parts)) {}
  const seqtile::c_api::OpParts it;
};
