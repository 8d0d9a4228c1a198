// tests/support/main.cpp -- Catch2's main, compiled once; each test program has its own locks for tuning.
// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <cstdlib>

#include "tests/support/temp_folder.h"

int main(int argc, char** argv) {
  const seqtile::test::TempFolder locks;
  setenv("SEQTILE_LOCK_DIR", locks.path().c_str(), 0);
  return Catch::Session().run(argc, argv);
}
