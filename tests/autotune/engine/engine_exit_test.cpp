// tests/autotune/engine/engine_exit_test.cpp -- processes that exit while their threads are inside the library.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include "seqtile/engine.h"
#include "seqtile/stores.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;

namespace {

/// Runs the helper. Returns its standard error, and "exit 7" or "signal 11".
std::string outcome_of(const test::TempFolder& folder, const std::string& how) {
  const std::string said = folder.file("said");
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDERR_FILENO);
    setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
    setenv("SEQTILE_CACHE_DIR", folder.path().c_str(), 1);
    unsetenv("SEQTILE_WORKER");
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a process that never ends dies with the test, which ctest ends
    execl(SEQTILE_EXIT_HELPER, "exit_helper", folder.path().c_str(), how.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  std::ifstream file(said);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text + (WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                                   : "signal " + std::to_string(WTERMSIG(status)));
}

template <class Registry>
concept Opens = requires(Registry&& registry) {
  Engine::open(EngineOptions{}, std::forward<Registry>(registry));
};
static_assert(Opens<const autotune::Registry&>);
static_assert(Opens<autotune::Registry>, "the engine keeps a registry that is given away");
static_assert(!Opens<const autotune::Registry>, "a temporary registry that is not given away does not compile");

}  // namespace

TEST_CASE("engine: a process that exits while its threads are inside calls ends with its own code",
          "[autotune][engine]") {
  for (const char* how : {"exit", "return", "thread", "statics", "compile", "first_compile", "background", "tune",
                          "statics_background"}) {
    const test::TempFolder folder;
    // The file exists, so that the engine logs nothing about it.
    cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
    for (int run = 0; run < 8; ++run) {
      INFO(how << ", run " << run);
      REQUIRE(outcome_of(folder, how) == "exit 7");
    }
    const auto store = cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
    CHECK(store->check().ok());
  }
}
