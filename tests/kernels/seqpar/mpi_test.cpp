// tests/kernels/seqpar/mpi_test.cpp -- ranks that mpirun starts: mpirun -n 3 mpi_tests "[mpi]"
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/mpi_fabric.h"

#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <thread>
#include <unistd.h>

#include "jit/fabric/transport/node_fabric.h"
#include "tests/support/ranks/sharded_layers.h"

using namespace seqtile;
using namespace seqtile::testing;
using namespace std::chrono_literals;

TEST_CASE("mpi: two layers on the ranks that were started are exact", "[.][mpi]") {
  const auto fabric = join_mpi_fabric();
  REQUIRE(fabric->world_size() > 1);
  CHECK(fabric->kind() == "processes");
  CHECK(!fabric::has_several_nodes(*fabric));
  const Home home;
  warm_up(home, fabric->world_size());
  Layers layers(home, *fabric);
  uint32_t seed = 0;
  for (const int64_t length : {0, 1, 2, 17, 64, 150, 3}) CHECK_NOTHROW(layers.check(length, seed += 2));
  CHECK(layers.channel.epoch() == 14);
  fabric->all_gather("");
}

TEST_CASE("mpi: two layers on nodes of two ranks are exact, and again after a call that differs", "[.][mpi_nodes]") {
  const auto fabric = join_mpi_fabric(1, 60s, 2);
  REQUIRE(fabric->world_size() > 2);
  CHECK(fabric->kind() == "processes");
  CHECK(fabric::has_several_nodes(*fabric));
  const Home home;
  warm_up(home, fabric->world_size());
  Layers layers(home, *fabric);
  uint32_t seed = 0;
  const auto check_layers = [&] {
    for (int round = 0; round < 8; ++round)
      for (const int64_t length : {0, 1, 2, 17, 64, 150, 3}) CHECK_NOTHROW(layers.check(length, seed += 2));
  };
  check_layers();
  CHECK(layers.channel.epoch() == 112);
  fabric->all_gather("");  // else a rank that is late in a right call could see the wrong call behind it
  CHECK(layers.run_up(fabric->rank() == 1 ? 40 : 41, 1) == "NaN");
  CHECK(layers.run_down(17, 2) == "NaN");
  CHECK(layers.channel.abort_record().has_value());
  layers.channel.reset();
  CHECK(!layers.channel.abort_record());
  check_layers();
  fabric->all_gather("");
}

// mpirun needs an option to leave the other ranks alive. They end here, because MPI_Finalize would wait for the dead
// rank.
TEST_CASE("mpi: a rank that is killed is a record and NaN on its node and on the other", "[.][mpi_death]") {
  const auto fabric = join_mpi_fabric(1, 60s, 2);
  const Home home;
  warm_up(home, fabric->world_size());
  Layers layers(home, *fabric);
  for (uint32_t epoch = 0; epoch < 20; ++epoch) layers.check(epoch * 7, epoch);
  fabric->all_gather("");  // the data of rank 3 has arrived
  if (fabric->rank() == 3) kill(getpid(), SIGKILL);
  std::string problem;
  for (uint32_t epoch = 0; problem.empty(); ++epoch) problem = layers.run_up(60, epoch);
  require(problem == "NaN" && layers.run_down(60, 1) == "NaN", "right, then NaN: " + problem);
  require_death(layers.channel.abort_record());
  fmt::print("rank {} knows\n", fabric->rank());
  std::fflush(stdout);
  std::this_thread::sleep_for(500ms);  // a proxy thread still has to tell the other ranks
  _exit(0);
}

TEST_CASE("mpi: nodes need an MPI that threads may call", "[.][mpi_level]") {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  CHECK_THROWS_WITH(join_mpi_fabric(1, 60s, 1),
                    Catch::Contains("start it with MPI_Init_thread and MPI_THREAD_MULTIPLE"));
  {
    const auto fabric = join_mpi_fabric();  // one node takes any MPI
    CHECK(fabric->all_gather("a").size() == 2);
  }
  MPI_Finalize();
}
