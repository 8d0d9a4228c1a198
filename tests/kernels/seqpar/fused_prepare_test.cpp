// tests/kernels/seqpar/fused_prepare_test.cpp -- agreement of the ranks before they serve a fused operation.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/sharded_layers.h"

#include "kernels/seqpar/prepare.h"

using namespace seqtile;
using namespace seqtile::testing;

TEST_CASE("fused prepare: static arguments that differ are one line on every rank", "[seqpar]") {
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
  refused("a fused operation: k is 25 on rank 1 and 24 on rank 0", [](Op& op) { op.linear.k = 25; });
  refused("a fused operation: dtype is bf16 on rank 1 and f32 on rank 0",
          [](Op& op) { op.linear.dtype = DType::bf16; });
  refused("a fused operation: bias is 1 on rank 1 and 0 on rank 0", [](Op& op) { op.linear.bias = true; });
  refused("a fused operation: weights is 2 on rank 1 and 1 on rank 0", [](Op& op) { op.linear.n2 = 8; });
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

TEST_CASE("fused prepare: what does not suit the channel is one line on every rank", "[seqpar]") {
  const Home home;
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      const auto engine = home.engine(fabric);
      Channel channel(fabric, kCapacity);
      const auto prepare = [&](const kernels::seqpar::Ranks& ranks) {
        kernels::seqpar::prepare_on_all(*engine, up_op(fabric).workload(ranks), FusedAllgatherAndLinear::kShares,
                                        channel, 0);
      };
      require_error("rank 0: fused_allgather_and_linear: world_size is 3, the channel's fabric has 2 ranks", [&] {
        prepare({3, kind});
      });
      require_error(fmt::format("fabric is sim:sm_90a, the channel's is {}", kind), [&] {
        prepare({2, "sim:sm_90a"});
      });
      require(channel.options().staging_bytes == 0, "nothing was reserved for what was refused");
      const FusedHandle up(*engine, up_op(fabric), channel);
      const int64_t needed = channel.options().staging_bytes;
      require(needed > 0, "the channel has room for what was prepared");
      const FusedHandle down(*engine, down_op(fabric), channel);
      require(channel.options().staging_bytes >= needed, "it does not shrink");
    }));
}

namespace {

int64_t chunk_rows(const Handle& handle) { return handle.explain(100).config.get_int("chunk_rows"); }

}  // namespace

TEST_CASE("fused prepare: a channel that grows has room for longer calls of what was prepared", "[seqpar]") {
  const Home home;
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      const auto engine = home.engine(fabric);
      Channel channel(fabric, {.capacity = 10});
      const FusedHandle up(*engine, up_op(fabric), channel);
      const int64_t staging = channel.options().staging_bytes, length = 500;
      channel.reserve({.capacity = length});
      require(channel.options().staging_bytes > staging, "staging grows with the capacity");
      const int64_t rows = first_of(fabric.rank() + 1, length, 2) - first_of(fabric.rank(), length, 2);
      const Matrix x(1, 0, rows, 0, kHidden), w(2, 0, up_op(fabric).linear.n, 0, kHidden),
          y(length, up_op(fabric).linear.n);
      for (int i = 0; i < 2; ++i) up({.x = x.tensor, .w = w.tensor, .y = y.tensor}, length);
      channel.check();
      require(!is_nan(y.tensor), "every row has come");
      fabric.all_gather("");
    }));
}

TEST_CASE("fused prepare: tuning caches that differ serve right results, by rank 0's chunks", "[seqpar]") {
  const Home home;
  for (const char* kind : kKinds)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      const std::string own = fmt::format("{}{}.db", kind, fabric.rank());
      const int64_t chunk = fabric.rank() == 0 ? 64 : 256;
      home.store_choice(own, up_op(fabric).workload(kernels::seqpar::ranks_of(fabric)), chunk);
      Layers layers(home, fabric, own, MissPolicy::nearest);
      require(chunk_rows(layers.up.handle()) == 64, "rank 0 decides");
      require(layers.up.handle().explain(100).origin == (fabric.rank() == 0 ? "tuned" : "given"), "and it is said");
      for (uint32_t seed = 0; seed < 20; ++seed) layers.check(seed * 7, seed);

      home.store_choice(own, up_op(fabric).workload(kernels::seqpar::ranks_of(fabric)), 256 + 64 - chunk);
      home.store_choice(own, down_op(fabric).workload(kernels::seqpar::ranks_of(fabric)), chunk);
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

TEST_CASE("fused prepare: engines with other limits serve and refuse the same lengths", "[seqpar]") {
  const Home home;
  check_none(on_ranks("threads", 2, [&](Fabric& fabric) {
    EngineOptions options = home.options("none.db", MissPolicy::nearest);
    options.max_length = fabric.rank() == 0 ? 64 : 40;
    const auto engine = Engine::open(options, home.registry, fabric);
    Channel channel(fabric, channel_for(fabric));
    const FusedHandle up(*engine, up_op(fabric), channel);
    const auto call = [&](int64_t length) {
      const Matrix x(1, 0, first_of(fabric.rank() + 1, length, 2) - first_of(fabric.rank(), length, 2), 0, kHidden);
      const Matrix w(2, 0, up_op(fabric).linear.n, 0, kHidden), y(length, up_op(fabric).linear.n);
      up({.x = x.tensor, .w = w.tensor, .y = y.tensor}, length);
      require(!is_nan(y.tensor), "no NaN");
    };
    call(60);
    require_error("length 100", [&] { call(100); });
    call(64);
    fabric.all_gather("");
  }));
}

TEST_CASE("fused prepare: a length that rank 0 has no plan for is refused on every rank", "[seqpar]") {
  const Home home;
  setenv("SEQTILE_WORKER", "/proc/self/exe", 1);  // never started
  for (const MissPolicy policy : {MissPolicy::strict, MissPolicy::tune})
    check_none(on_ranks("threads", 2, [&](Fabric& fabric) {
      const std::string own = fmt::format("{}-{}.db", static_cast<int>(policy), fabric.rank());
      if (fabric.rank() == 1) home.store_choice(own, up_op(fabric).workload(kernels::seqpar::ranks_of(fabric)), 64);
      Layers layers(home, fabric, own, policy);
      require_error("fused_allgather_and_linear at length 30", [&] { layers.run_up(30, 1); });
      require(layers.channel.epoch() == 0, "nothing was launched");
      require(layers.engine->counters().tunings == 0, "nothing was tuned");
      fabric.all_gather("");
    }));
}
