// tests/kernels/seqpar/mpi_test.cpp -- ranks that mpirun starts: mpirun -n 3 mpi_tests "[mpi]"
// SPDX-License-Identifier: Apache-2.0
#include "jit/mpi_fabric.h"
#include "tests/support/sharded_layers.h"

using namespace seqtile;
using namespace seqtile::testing;

TEST_CASE("mpi: two layers on the ranks that were started are exact", "[.][mpi]") {
  const auto fabric = join_mpi_fabric();
  REQUIRE(fabric->world_size() > 1);
  CHECK(fabric->kind() == "processes");
  const Home home;
  warm_up(home, fabric->world_size());
  Layers layers(home, *fabric);
  uint32_t seed = 0;
  for (const int64_t length : {0, 1, 2, 17, 64, 150, 3}) CHECK_NOTHROW(layers.check(length, seed += 2));
  CHECK(layers.channel.epoch() == 14);
  fabric->all_gather("");
}
