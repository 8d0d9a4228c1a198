// tests/kernels/seqpar/fused_ranks_test.cpp -- ranks that agree, differ, straggle, die and start anew.
// SPDX-License-Identifier: Apache-2.0
//
// Two layers of a model, cut over the ranks by the floor rule, so that most shares are ragged. Operands are 0 or 1 and
// a function of their place: every rank knows what must come out.
#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "autotune/tuner.h"
#include "cache/tuning_store.h"
#include "jit/error.h"
#include "kernels/registry.h"
#include "kernels/seqpar/fused_handle.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqpar::FusedAllgatherAndLinear;
using seqpar::FusedHandle;
using seqpar::FusedLinearAndReducescatter;
using seqtile::testing::on_ranks;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kHidden = 24, kWide = 50, kCapacity = 150;

int64_t first_of(int rank, int64_t size, int ranks) { return rank * size / ranks; }

float operand(uint32_t seed, int64_t row, int64_t column) {
  uint64_t mixed = (seed * 1'000'003ull + static_cast<uint64_t>(row)) * 1'000'003ull + static_cast<uint64_t>(column);
  mixed *= 0x9e3779b97f4a7c15;
  return (mixed >> 40) % 4 == 0 ? 1 : 0;
}

constexpr uint32_t kUpSeed = 1, kDownSeed = 2;

/// Rows and columns [first, last) of a matrix of operands, or room for one.
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
  bool is_nan() const {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
  }
  std::vector<float> values;
  Tensor tensor;
};

FusedAllgatherAndLinear up_op(Fabric& fabric) {
  const int rank = fabric.rank(), ranks = fabric.world_size();
  return {.world_size = ranks,
          .n = first_of(rank + 1, kWide, ranks) - first_of(rank, kWide, ranks),
          .k = kHidden,
          .fabric = fabric.kind()};
}

FusedLinearAndReducescatter down_op(Fabric& fabric) {
  return {.world_size = fabric.world_size(), .n = kHidden, .k = up_op(fabric).n, .fabric = fabric.kind()};
}

ChannelOptions channel_for(Fabric& fabric, int64_t capacity = kCapacity) {
  ChannelOptions options = seqpar::channel_options({up_op(fabric).workload(), down_op(fabric).workload()}, capacity);
  options.deadline = 20s;
  return options;
}

/// Where engines keep their files.
struct Home {
  Home() { setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1); }
  EngineOptions options(const std::string& cache = "tuning.db", MissPolicy policy = MissPolicy::nearest) const {
    EngineOptions options;
    options.threads = 1;
    options.cache = folder.file(cache);
    options.artifacts = folder.file("artifacts.db");
    options.policy = policy;
    options.max_length = 512;
    return options;
  }
  std::unique_ptr<Engine> engine(Fabric& fabric, const std::string& cache = "tuning.db",
                                 MissPolicy policy = MissPolicy::nearest) const {
    return Engine::open(options(cache, policy), registry, fabric);
  }
  /// The cache's record of one bucket, which serves all of them under `nearest`.
  void store_choice(const std::string& cache, const autotune::Workload& given, int64_t chunk_rows) const {
    const autotune::OpDef& op = registry.find(given.operation);
    const autotune::Workload workload = op.normalize(given);
    autotune::Config config = op.default_config(workload, 64, device->target());
    const int64_t block = given.operation == "fused_linear_and_reducescatter" ? config.get_int("block_m") : 1;
    config.set("chunk_rows", (chunk_rows + block - 1) / block * block);
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
  seqtile::test::TempFolder folder;
  const autotune::Registry registry = make_registry();
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
        width_(up_op(fabric).n),
        engine(home.engine(fabric, cache, policy)),
        channel(fabric, channel_for(fabric)),
        up(*engine, up_op(fabric), channel),
        down(*engine, down_op(fabric), channel),
        up_weight_(kUpSeed, first_, width_, 0, kHidden),
        down_weight_(kDownSeed, 0, kHidden, first_, width_) {}

  /// What is wrong with the result, or "NaN", or "".
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
  /// Right results from both. Errors: wrong_result.
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
    if (y.tensor.num_elements() > 0 && y.is_nan()) return "NaN";
    for (int64_t row = 0; row < y.tensor.sizes[0]; ++row)
      for (int64_t column = 0; column < y.tensor.sizes[1]; ++column)
        if (y.at(row, column) != wanted(row, column))
          return fmt::format("[{}, {}] is {}, not {}", row, column, y.at(row, column), wanted(row, column));
    return "";
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

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::wrong_result, what);
}

/// Usable in a forked rank, whose checks nobody sees.
void require_error(const std::string& part, const std::function<void()>& work) {
  std::string error = "nothing was thrown";
  try {
    work();
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  require(error.find(part) != std::string::npos, error + ", not " + part);
  require(error.find('\n') == std::string::npos, "more than a line: " + error);
}

void check_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

/// Every rank says this in one line.
void check_all(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) {
    CHECK_THAT(error, Catch::Contains(part));
    CHECK(error.find('\n') == std::string::npos);
  }
}

constexpr const char* kKinds[] = {"threads", "processes"};

/// Compiles what `ranks` ranks need, one configuration each, so that they load it.
void warm_up(const Home& home, int ranks) {
  const auto fabrics = make_thread_fabric(ranks);
  const auto warm_up = [&](auto op, const char* kind) {
    op.fabric = kind;
    home.store_choice("tuning.db", op.workload(), 64);
    home.engine(*fabrics[0])->prepare(op.workload());
  };
  for (const auto& fabric : fabrics)
    for (const char* kind : kKinds) warm_up(up_op(*fabric), kind), warm_up(down_op(*fabric), kind);
}

}  // namespace

TEST_CASE("fused ranks: 1,000 epochs of mixed operations and lengths, with stragglers", "[seqpar]") {
  const Home home;
  for (const int ranks : {2, 3}) {
    warm_up(home, ranks);
    for (const char* kind : kKinds)
      check_none(on_ranks(kind, ranks, [&](Fabric& fabric) {
        Layers layers(home, fabric);
        std::mt19937 random(9), own(static_cast<uint32_t>(fabric.rank()));
        for (uint32_t epoch = 0; epoch < 1000; ++epoch) {
          const auto length = static_cast<int64_t>(random() % (random() % 8 == 0 ? kCapacity : 6));
          if (own() % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
          const bool is_up = random() % 2;
          const std::string problem = is_up ? layers.run_up(length, epoch) : layers.run_down(length, epoch);
          if (problem.empty()) continue;
          const auto record = layers.channel.abort_record();
          throw Error(ErrorCode::wrong_result,
                      fmt::format("epoch {}, length {}: {} {}", epoch, length, problem, record ? record->text() : ""));
        }
        require(layers.channel.epoch() == 1000, "a thousand launches");
        fabric.all_gather("");
      }));
  }
}

TEST_CASE("fused ranks: static arguments that differ are one line on every rank", "[seqpar]") {
  const Home home;
  const auto refused = [&](const std::string& part, const std::function<void(FusedAllgatherAndLinear&)>& change) {
    for (const char* kind : kKinds)
      check_all(on_ranks(kind, 3,
                         [&](Fabric& fabric) {
                           const auto engine = home.engine(fabric, "tuning.db", MissPolicy::strict);
                           Channel channel(fabric, channel_for(fabric));
                           FusedAllgatherAndLinear op = up_op(fabric);
                           if (fabric.rank() == 1) change(op);
                           const FusedHandle handle(*engine, op, channel);
                         }),
                part);
  };
  using Op = FusedAllgatherAndLinear;
  refused("a fused operation: k is 25 on rank 1 and 24 on rank 0", [](Op& op) { op.k = 25; });
  refused("a fused operation: dtype is bf16 on rank 1 and f32 on rank 0", [](Op& op) { op.dtype = DType::bf16; });
  refused("a fused operation: bias is 1 on rank 1 and 0 on rank 0", [](Op& op) { op.bias = true; });
  refused("a fused operation: weights is 2 on rank 1 and 1 on rank 0", [](Op& op) { op.n2 = 8; });
  refused("a fused operation: world_size is 2 on rank 1 and 3 on rank 0", [](Op& op) { op.world_size = 2; });
  refused("a fused operation: fabric is sim:sm_80 on rank 1", [](Op& op) { op.fabric = "sim:sm_80"; });
  for (const char* kind : kKinds)
    check_all(on_ranks(kind, 2,
                       [&](Fabric& fabric) {
                         const auto engine = home.engine(fabric, "tuning.db", MissPolicy::strict);
                         Channel channel(fabric, channel_for(fabric));
                         if (fabric.rank() == 0) FusedHandle(*engine, up_op(fabric), channel);
                         else FusedHandle(*engine, down_op(fabric), channel);
                       }),
              "operation is fused_linear_and_reducescatter on rank 1 and fused_allgather_and_linear on rank 0");
}

TEST_CASE("fused ranks: what does not suit the channel is one line on every rank", "[seqpar]") {
  const Home home;
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      const auto engine = home.engine(fabric);
      const auto prepare = [&](const FusedAllgatherAndLinear& op, const ChannelOptions& options) {
        Channel channel(fabric, options);
        const FusedHandle handle(*engine, op, channel);
      };
      const auto needed = channel_for(fabric);
      FusedAllgatherAndLinear op = up_op(fabric);
      op.world_size = 3;
      require_error("rank 0: fused_allgather_and_linear: world_size is 3, the channel's fabric has 2 ranks",
                    [&] { prepare(op, needed); });
      op = up_op(fabric);
      op.fabric = "sim:sm_90a";
      require_error(fmt::format("fabric is sim:sm_90a, the channel's is {}", kind), [&] { prepare(op, needed); });
      require_error("rank 0: fused_allgather_and_linear: it needs",
                    [&] { prepare(up_op(fabric), {.capacity = kCapacity, .staging_bytes = 100}); });
    }));
}

TEST_CASE("fused ranks: bad calls are refused alike and leave the ranks as they were; channels grow", "[seqpar]") {
  const Home home;
  warm_up(home, 2);
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      Layers layers(home, fabric);
      layers.check(20, 1);
      require_error("length 151 is above the channel's capacity 150; Channel::reserve() more",
                    [&] { layers.run_up(151, 2); });
      layers.channel.reserve(channel_for(fabric, 300));
      layers.check(151, 3);
      layers.check(300, 4);
      int stream = 0;
      const Matrix x(3, 0, 1, 0, kHidden), w(4, 0, layers.up.handle().workload().fields.get_int("n"), 0, kHidden);
      Matrix y(2, w.tensor.sizes[0]);
      require_error("a channel serves one stream",
                    [&] { layers.up({.x = x.tensor, .w = w.tensor, .y = y.tensor}, 2, Stream{&stream}); });
      layers.check(20, 5);
      require(!layers.channel.abort_record(), "nobody has given up");
      fabric.all_gather("");
    }));
}

TEST_CASE("fused ranks: an order that differs is a record and NaN; reset() makes the channel usable", "[seqpar]") {
  const Home home;
  warm_up(home, 3);
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 3, [&](Fabric& fabric) {
      Layers layers(home, fabric);
      const FusedHandle twin(*layers.engine, up_op(fabric), layers.channel);  // only its number differs
      layers.check(40, 1);
      fabric.all_gather("");
      const int64_t rows = first_of(fabric.rank() + 1, 40, 3) - first_of(fabric.rank(), 40, 3);
      const Matrix x(3, 0, rows, 0, kHidden), w(4, 0, up_op(fabric).n, 0, kHidden);
      Matrix y(40, up_op(fabric).n);
      const FusedAllgatherAndLinear::Args args{.x = x.tensor, .w = w.tensor, .y = y.tensor};
      if (fabric.rank() == 1) twin(args, 40);
      else layers.up(args, 40);
      require(y.is_nan(), "never wrong data");
      require(layers.run_down(17, 2) == "NaN", "an aborted channel stays so");
      require(layers.channel.abort_record().has_value(), "every rank has a record");
      require_error("reset() makes it usable again", [&] { layers.channel.reserve(channel_for(fabric, 200)); });
      layers.channel.reset();
      require(!layers.channel.abort_record(), "nothing is aborted after reset()");
      for (uint32_t seed = 5; seed < 25; ++seed) layers.check(seed % 3 ? 40 : 0, seed);
      fabric.all_gather("");
    }));
}

TEST_CASE("fused ranks: one of four is killed; the others know, start anew without it, and are right", "[seqpar]") {
  const Home home;
  for (const int ranks : {3, 4}) warm_up(home, ranks);
  for (const int victim : {0, 2}) {
    const auto errors = on_ranks("processes", 4, [&](Fabric& all) {
      Layers layers(home, all);
      for (uint32_t epoch = 0; epoch < 20; ++epoch) layers.check(epoch * 7, epoch);
      if (all.rank() == victim) {
        layers.run_up(60, 100);
        _exit(9);
      }
      const auto start = std::chrono::steady_clock::now();
      std::string problem = layers.run_up(60, 100);
      require(problem.empty() || problem == "NaN", "right or NaN: " + problem);
      require(layers.run_down(60, 101) == "NaN", "NaN when a rank has died");
      require(layers.run_up(60, 102) == "NaN", "NaN until the end");
      require(layers.channel.abort_record().has_value(), "a record says why");
      require(std::chrono::steady_clock::now() - start < 2s, "within two seconds");
      require_error("a rank has died", [&] { layers.channel.reset(); });
      const auto three = survivors_of(all);
      Layers smaller(home, *three);
      for (uint32_t epoch = 0; epoch < 20; ++epoch) smaller.check(epoch * 7, epoch);
      three->all_gather("");
    });
    for (int rank = 0; rank < 4; ++rank)
      CHECK(errors[static_cast<size_t>(rank)] == (rank == victim ? "ended with status 0x900" : ""));
  }
}

namespace {

int64_t chunk_rows(const Handle& handle) { return handle.explain(100).config.get_int("chunk_rows"); }

}  // namespace

TEST_CASE("fused ranks: tuning caches that differ serve right results, by rank 0's chunks", "[seqpar]") {
  const Home home;
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      const std::string own = fmt::format("{}{}.db", kind, fabric.rank());
      const int64_t chunk = fabric.rank() == 0 ? 64 : 256;
      home.store_choice(own, up_op(fabric).workload(), chunk);
      Layers layers(home, fabric, own, MissPolicy::nearest);
      require(chunk_rows(layers.up.handle()) == 64, "rank 0 decides");
      require(layers.up.handle().explain(100).origin == (fabric.rank() == 0 ? "tuned" : "given"), "and it is said");
      for (uint32_t seed = 0; seed < 20; ++seed) layers.check(seed * 7, seed);

      home.store_choice(own, up_op(fabric).workload(), 256 + 64 - chunk);
      home.store_choice(own, down_op(fabric).workload(), chunk);
      layers.engine->refresh();
      require(chunk_rows(layers.up.handle()) == 64, "a live handle stays as it is");
      layers.check(130, 1);
      layers.up.refresh(*layers.engine);
      layers.down.refresh(*layers.engine);
      require(chunk_rows(layers.up.handle()) == 256, "until all ranks take over what is stored");
      require(chunk_rows(layers.down.handle()) < 256, "from rank 0");
      for (uint32_t seed = 0; seed < 20; ++seed) layers.check(seed * 7, seed);
      fabric.all_gather("");
    }));
}

TEST_CASE("fused ranks: a length that rank 0 has no plan for is refused on every rank", "[seqpar]") {
  const Home home;
  for (const MissPolicy policy : {MissPolicy::strict, MissPolicy::tune})
    check_none(on_ranks("threads", 2, [&](Fabric& fabric) {
      const std::string own = fmt::format("{}-{}.db", static_cast<int>(policy), fabric.rank());
      if (fabric.rank() == 1) home.store_choice(own, up_op(fabric).workload(), 64);
      Layers layers(home, fabric, own, policy);
      require_error("fused_allgather_and_linear at length 30", [&] { layers.run_up(30, 1); });
      require(layers.channel.epoch() == 0, "nothing was launched");
      require(layers.engine->counters().tunings == 0, "nothing was tuned");
      fabric.all_gather("");
    }));
}
