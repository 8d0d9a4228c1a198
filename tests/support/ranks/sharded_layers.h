// tests/support/ranks/sharded_layers.h -- two layers of a model on all ranks, with expected results.
// SPDX-License-Identifier: Apache-2.0
//
// The layers are cut over the ranks by the floor rule, so that most shares are ragged. An operand is 0 or 1 and a
// function of its place, so that each rank knows the expected results.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "autotune/keys.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/seqpar.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/ranks/sharded_rows.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {

using kernels::seqpar::FusedAllgatherAndLinear;
using kernels::seqpar::FusedHandle;
using kernels::seqpar::FusedLinearAndReducescatter;

constexpr int64_t kHidden = 24, kWide = 50, kCapacity = 150;

inline int64_t first_of(int rank, int64_t size, int ranks) { return rank * size / ranks; }

inline float operand(uint32_t seed, int64_t row, int64_t column) {
  uint64_t mixed = (seed * 1'000'003ull + static_cast<uint64_t>(row)) * 1'000'003ull + static_cast<uint64_t>(column);
  mixed *= 0x9e3779b97f4a7c15;
  return (mixed >> 40) % 4 == 0 ? 1 : 0;
}

constexpr uint32_t kUpSeed = 1, kDownSeed = 2;

/// Rows and columns [first, last) of a matrix of operands, or memory for a result.
struct Matrix {
  Matrix(int64_t rows, int64_t columns) : tensor(make_tensor(nullptr, DType::f32, {rows, columns})) {
    values.assign(static_cast<size_t>(rows * columns) + 1, NAN);
    tensor.data = values.data();
  }
  Matrix(uint32_t seed, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns)
      : Matrix(rows, columns) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        at(row, column) = operand(seed, first_row + row, first_column + column);
  }
  float& at(int64_t row, int64_t column) { return values[static_cast<size_t>(row * tensor.sizes[1] + column)]; }
  std::vector<float> values;
  Tensor tensor;
};

inline FusedAllgatherAndLinear up_op(Fabric& fabric) {
  const int rank = fabric.rank(), ranks = fabric.world_size();
  return {{.n = first_of(rank + 1, kWide, ranks) - first_of(rank, kWide, ranks), .k = kHidden}};
}

inline FusedLinearAndReducescatter down_op(Fabric& fabric) { return {{.n = kHidden, .k = up_op(fabric).linear.n}}; }

inline ChannelOptions channel_for(Fabric& fabric, int64_t capacity = kCapacity) {
  const kernels::seqpar::Ranks ranks = kernels::seqpar::ranks_of(fabric);
  return kernels::seqpar::channel_options(kernels::make_registry(),
                                          {up_op(fabric).workload(ranks), down_op(fabric).workload(ranks)}, capacity);
}

/// The files of engines.
struct Home {
  EngineOptions options(const std::string& cache, MissPolicy policy) const {
    EngineOptions options;
    options.threads = 1;
    options.cache = folder.file(cache);
    options.artifacts = artifacts;
    options.policy = policy;
    options.max_length = 512;
    return options;
  }
  std::unique_ptr<Engine> engine(Fabric& fabric, const std::string& cache = "tuning.db",
                                 MissPolicy policy = MissPolicy::nearest) const {
    return Engine::open(options(cache, policy), registry, fabric);
  }
  /// Stores one record with such chunks in the cache; under `nearest` it serves all buckets.
  void store_choice(const std::string& cache, const autotune::Workload& given, int64_t chunk_rows) const {
    const autotune::OpDef& op = registry.find(given.operation);
    const autotune::Workload workload = op.normalize(given);
    const autotune::Config usual = op.default_config(workload, 64, device->target());
    const int64_t block = workload.fields.contains("transport") ? usual.get_int("block_m") : 1;
    const auto is_chosen = [&](const autotune::Config& config) {
      return config.get_int("chunk_rows") == (chunk_rows + block - 1) / block * block;
    };
    const std::vector<autotune::Config> space = op.config_space(workload, 64, device->target()).enumerate();
    const auto chosen = std::ranges::find_if(space, is_chosen);
    if (chosen == space.end()) throw Error(ErrorCode::invalid_argument, "no configuration has such chunks");
    const autotune::Config config = *chosen;
    const autotune::Bucket bucket = autotune::bucket(100);
    const cache::KeyedRecord record{autotune::make_key(op, workload, device->info(), autotune::TuneOptions{}.policy),
                                    {.bucket_version = autotune::kBucketVersion,
                                     .lo = bucket.lo,
                                     .hi = bucket.hi,
                                     .origin = cache::Origin::tuned,
                                     .config_json = config.json(),
                                     .space_hash = std::string(64, '0'),
                                     .measured_length = bucket.hi}};
    const auto store = cache::TuningStore::open(folder.file(cache), cache::OpenMode::read_write);
    if (!store->publish_all({record})) throw Error(ErrorCode::io, "a record was not stored");
  }
  test::TempFolder folder;
  const std::string artifacts = testing::shared_artifacts();  // made before ranks have threads
  const autotune::Registry registry = kernels::make_registry();
  const std::shared_ptr<Device> device = make_cpu_device(1);
};

/// Both layers on one rank.
class Layers {
 public:
  Layers(const Home& home, Fabric& fabric, const std::string& cache = "tuning.db",
         MissPolicy policy = MissPolicy::nearest)
      : rank_(fabric.rank()),
        ranks_(fabric.world_size()),
        first_(first_of(rank_, kWide, ranks_)),
        width_(up_op(fabric).linear.n),
        engine(home.engine(fabric, cache, policy)),
        channel(fabric, channel_for(fabric)),
        up(*engine, up_op(fabric), channel),
        down(*engine, down_op(fabric), channel),
        up_weight_(kUpSeed, first_, width_, 0, kHidden),
        down_weight_(kDownSeed, 0, kHidden, first_, width_) {}

  /// The fault of the result, "NaN", or "".
  std::string run_up(int64_t length, uint32_t seed) {
    const int64_t first = own_row(length, rank_), rows = own_row(length, rank_ + 1) - first;
    const Matrix x(seed, first, rows, 0, kHidden);
    Matrix y(length, width_);
    up({.x = x.tensor, .w = up_weight_.tensor, .y = y.tensor}, length);
    return compare(y, [&](int64_t row, int64_t column) {
      float sum = 0;
      for (int64_t i = 0; i < kHidden; ++i) sum += operand(seed, row, i) * up_weight_.at(column, i);
      return sum;
    });
  }
  std::string run_down(int64_t length, uint32_t seed) {
    const int64_t first = own_row(length, rank_), rows = own_row(length, rank_ + 1) - first;
    const Matrix x(seed, 0, length, first_, width_);
    Matrix y(rows, kHidden);
    down({.x = x.tensor, .w = down_weight_.tensor, .y = y.tensor}, length);
    return compare(y, [&](int64_t row, int64_t column) {
      float sum = 0;
      for (int64_t i = 0; i < kWide; ++i) sum += operand(seed, first + row, i) * operand(kDownSeed, column, i);
      return sum;
    });
  }
  /// Checks the results of both layers. Errors: wrong_result.
  void check(int64_t length, uint32_t seed) {
    std::string problem = run_up(length, seed);
    if (problem.empty()) problem = run_down(length, seed + 1);
    if (problem.empty()) return;
    if (const auto record = channel.abort_record()) problem += "; " + record->text();
    throw Error(ErrorCode::wrong_result, fmt::format("length {}, seed {}: {}", length, seed, problem));
  }

 private:
  int64_t own_row(int64_t length, int rank) const { return first_of(rank, length, ranks_); }

  template <class Wanted>
  std::string compare(Matrix& y, const Wanted& wanted) const {
    return y.tensor.num_elements() > 0 && is_nan(y.tensor) ? "NaN" : difference_from(wanted, y.tensor, "");
  }

  const int rank_, ranks_;
  const int64_t first_, width_;

 public:
  std::unique_ptr<Engine> engine;
  Channel channel;
  FusedHandle<FusedAllgatherAndLinear> up;
  FusedHandle<FusedLinearAndReducescatter> down;

 private:
  Matrix up_weight_, down_weight_;
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::wrong_result, what);
}

/// This rank or a peer has seen a death; no wait has lasted until the channel's timeout.
inline void require_death(const std::optional<AbortRecord>& record) {
  require(record.has_value(), "a record says why");
  require(record->kind == channel::peer_died || record->kind == channel::aborted, record->text());
}

/// Usable in a forked rank, whose checks nobody sees.
inline void require_error(const std::string& part, const std::function<void()>& work) {
  std::string error = "nothing was thrown";
  try {
    work();
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  require(error.find(part) != std::string::npos, error + ", not " + part);
  require(error.find('\n') == std::string::npos, "more than a line: " + error);
}

inline void check_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

/// Checks that all ranks report this in one line.
inline void check_all(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) {
    CHECK_THAT(error, Catch::Contains(part));
    CHECK(error.find('\n') == std::string::npos);
  }
}

inline constexpr const char* kKinds[] = {"threads", "processes"};
inline constexpr const char* kRanks[] = {"threads", "processes", "nodes"};  ///< for on_ranks()

/// Compiles one configuration of each kernel for `ranks` ranks, so that the ranks load it.
inline void warm_up(const Home& home, int ranks) {
  const auto fabrics = make_thread_fabric(ranks);
  const auto warm_up = [&](const auto& op, const char* kind) {
    const autotune::Workload workload = op.workload({ranks, kind});
    home.store_choice("tuning.db", workload, 64);
    home.engine(*fabrics[0])->prepare(workload);
  };
  for (const auto& fabric : fabrics)
    for (const char* kind : kKinds) warm_up(up_op(*fabric), kind), warm_up(down_op(*fabric), kind);
}

}  // namespace seqtile::testing
