// tests/support/fakes/toy_ops.h -- operations whose candidates misbehave on purpose, each in another way.
// SPDX-License-Identifier: Apache-2.0
//
// "toy_add": y [length, n] = x [length, n] + 1, f32. The field "forms" lists the forms in the space; the first form is
// the default. A form has block = 4 and 16 rows a program, unless its name ends with a block of its own ("wrong/4").
//   plain         right                          slow         right, a thousand times over
//   segfault      writes far away                hang         never ends
//   oob           writes past the last row       under        writes before the first row
//   wrong         adds 1.5                       unwritten    leaves the last column out
//   infinite      gives infinities
//   dirty         leaves its workspace changed and uses it: the second call differs
//   wrong_tail    wrong only above 256 rows      no_verify    tile IR that does not verify
//   build_abort   the builder calls abort()      build_hang   the builder never returns
//   build_memory  the builder wants all memory   build_throw  the builder throws
//
// "toy_ranks": the same on several ranks. Rank 1 may misbehave when all ranks run together; a process without peers is
// rank 0.
//   together      right                          late         rank 1 does its work 100,000 times over
//   dies          rank 1 writes far away         stays        rank 1 never ends
#pragma once
#include <string>

#include "seqtile/op.h"

namespace seqtile::test {

autotune::OpDef toy_add_op(int64_t version = 1);
autotune::OpDef toy_ranks_op();
autotune::Registry toy_registry();  ///< both operations
autotune::Workload toy_add(const std::string& forms, int64_t n = 32);
autotune::Workload toy_ranks(const std::string& forms, const std::string& fabric, int world_size = 2);

}  // namespace seqtile::test
