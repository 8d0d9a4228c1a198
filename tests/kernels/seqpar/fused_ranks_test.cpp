// tests/kernels/seqpar/fused_ranks_test.cpp -- ranks that straggle, call wrongly, die and start anew.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>
#include <unistd.h>

#include "kernels/seqpar/prepare.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/ranks.h"
#include "tests/support/ranks/node_ranks.h"
#include "tests/support/ranks/sharded_layers.h"

using namespace seqtile;
using namespace seqtile::testing;
using kernels::seqpar::AllToAll;
using kernels::seqpar::channel_options;
using namespace std::chrono_literals;

TEST_CASE("fused ranks: 1,000 epochs of mixed operations and lengths, with stragglers", "[seqpar]") {
  const Home home;
  for (const int ranks : {2, 3}) {
    warm_up(home, ranks);
    for (const char* kind : kRanks)
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

TEST_CASE("fused ranks: bad calls are refused alike and leave the ranks as they were; channels grow", "[seqpar]") {
  const Home home;
  warm_up(home, 2);
  for (const char* kind : kRanks)
    check_none(on_ranks(kind, 2, [&](Fabric& fabric) {
      Layers layers(home, fabric);
      layers.check(20, 1);
      require_error("length 151 is above the channel's capacity 150; open the channel for more rows",
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

TEST_CASE("fused ranks: an all-to-all takes the rows and heads of its rank alone", "[seqpar]") {
  const Home home;
  check_none(on_ranks("threads", 2, [&](Fabric& fabric) {
    const auto engine = home.engine(fabric, "tuning.db", MissPolicy::fallback);
    const AllToAll op{.heads = 3, .head_dim = 4};
    Channel channel(fabric, 20);
    const FusedHandle to_heads(*engine, op, channel);
    const int64_t rows = fabric.rank() == 0 ? 3 : 4, columns = fabric.rank() == 0 ? 4 : 8;
    const auto call = [&](int64_t given_rows, int64_t given_columns) {
      const Matrix x(3, 0, given_rows, 0, 12);
      Matrix y(7, given_columns);
      to_heads({x.tensor, y.tensor}, 7);
    };
    const std::string rank = fmt::format("rank {} of 2 owns ", fabric.rank());
    require_error(fmt::format("all_to_all: argument 'x': {}{} of 7 rows, the tensor has 5", rank, rows),
                  [&] { call(5, columns); });
    require_error(fmt::format("all_to_all: argument 'y': {}{} columns, the tensor has 5", rank, columns),
                  [&] { call(rows, 5); });
    call(rows, columns);
    fabric.all_gather("");
  }));
}

TEST_CASE("fused ranks: an order that differs is a record and NaN; reset() makes the channel usable", "[seqpar]") {
  const Home home;
  warm_up(home, 3);
  for (const char* kind : kRanks)
    check_none(on_ranks(kind, 3, [&](Fabric& fabric) {
      Layers layers(home, fabric);
      const FusedHandle twin(*layers.engine, up_op(fabric), layers.channel);  // only the operation's number differs
      layers.check(40, 1);
      fabric.all_gather("");
      const int64_t rows = first_of(fabric.rank() + 1, 40, 3) - first_of(fabric.rank(), 40, 3);
      const Matrix x(3, 0, rows, 0, kHidden), w(4, 0, up_op(fabric).linear.n, 0, kHidden);
      Matrix y(40, up_op(fabric).linear.n);
      const FusedAllgatherAndLinear::Args args{.x = x.tensor, .w = w.tensor, .y = y.tensor};
      if (fabric.rank() == 1) twin(args, 40);
      else layers.up(args, 40);
      require(is_nan(y.tensor), "never wrong data");
      if (const auto record = layers.channel.abort_record(); record && record->operation != 0)
        require_error(fabric.rank() == 1 ? "operation 2, fused_allgather" : "operation 0, fused_allgather",
                      [&] { layers.channel.check(); });
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
      std::jthread killer;
      if (all.rank() == victim)
        killer = std::jthread([] {
          std::this_thread::sleep_for(10ms);
          kill(getpid(), SIGKILL);
        });
      std::string problem;
      for (uint32_t epoch = 0; problem.empty(); ++epoch)
        problem = epoch % 2 ? layers.run_up(60, epoch) : layers.run_down(60, epoch);
      require(problem == "NaN", "right, then NaN: " + problem);
      require(layers.run_up(60, 1) == "NaN", "NaN until the end");
      require_death(layers.channel.abort_record());
      require_error("a rank has died", [&] { layers.channel.reset(); });
      const auto three = survivors_of(all);
      Layers smaller(home, *three);
      for (uint32_t epoch = 0; epoch < 20; ++epoch) smaller.check(epoch * 7, epoch);
      three->all_gather("");
    });
    for (int rank = 0; rank < 4; ++rank)
      CHECK(errors[static_cast<size_t>(rank)] == (rank == victim ? "ended with status 0x9" : ""));
  }
}

TEST_CASE("fused ranks: a node that is gone is a record and NaN for the others", "[seqpar]") {
  const Home home;
  warm_up(home, 3);
  std::atomic<bool> is_gone{false};
  NodeOptions options{.heartbeat_timeout = 2s};
  options.is_cut_off = [&](int rank) { return rank == 2 && is_gone; };  // rank 2 is alone on its node
  check_none(on_threads(make_node_ranks(3, options), [&](Fabric& fabric) {
    Layers layers(home, fabric);
    for (uint32_t epoch = 0; epoch < 20; ++epoch) layers.check(epoch * 7, epoch);
    fabric.all_gather("");
    if (fabric.rank() == 2) is_gone = true;
    std::string problem;
    for (uint32_t epoch = 0; problem.empty(); ++epoch)
      problem = epoch % 2 ? layers.run_up(60, epoch) : layers.run_down(60, epoch);
    require(problem == "NaN", "right, then NaN: " + problem);
    require_death(layers.channel.abort_record());
    require_error("has died", [&] { layers.channel.reset(); });
  }));
}
