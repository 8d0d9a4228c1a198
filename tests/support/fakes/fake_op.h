// tests/support/fakes/fake_op.h -- a small operation, and an engine with a fake device, compiler and tuner.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "autotune/engine/engine_parts.h"
#include "tests/cache/support.h"
#include "tests/support/fakes/fake_device.h"

namespace seqtile::test {

/// "scale_rows": y [length, n] = factor * x [length, n] + row, with the configurations block = 4, 8, 16, 32, 64.
autotune::OpDef scale_rows_op();
autotune::Workload scale_rows(int64_t n = 4);

/// The buffers of one call, filled and checked.
struct ScaleCall {
  explicit ScaleCall(int64_t length, int64_t n = 4);
  std::vector<Tensor> tensors();
  bool is_right(int64_t factor) const;

  int64_t length, n;
  std::vector<float> x, y;
};

/// The fakes of an engine, and their counters.
struct FakeWorld {
  FakeWorld();
  /// Opens an engine over this world's files. The engine owns the device; `device` points at the last device made.
  std::unique_ptr<Engine> open(MissPolicy policy, int64_t max_length = 0);
  EngineOptions options(MissPolicy policy) const;
  autotune::EngineParts parts();
  /// Stores a decision for the bucket of `length` under the key that the engine will ask for.
  void record(int64_t length, int64_t block, cache::Origin origin = cache::Origin::tuned, const std::string& file = "");
  cache::TuningKey key();

  TempFolder folder;
  autotune::Registry registry;
  autotune::Workload workload = scale_rows();
  std::string cache, artifacts;
  DeviceInfo info = FakeDevice().info_;
  int threads = 2;
  FakeDevice* device = nullptr;

  std::atomic<int64_t> compilations{0}, tune_calls{0};
  std::atomic<bool> tuner_fails{false}, compiler_fails{false};
  std::atomic<bool> tuner_waits{false};  ///< the tuner waits until this is cleared or the tuning is interrupted
  std::atomic<int> tune_delay_ms{0};
  std::vector<autotune::Bucket> tuned;  ///< guarded by mutex
  std::mutex mutex;
};

}  // namespace seqtile::test
