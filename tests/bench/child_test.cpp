// tests/bench/child_test.cpp -- a peer's process runs only while it works on a command, and ends with its owner.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/child.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace seqtile::bench {
namespace {

/// A peer that answers with its process ids, and then spins together with a process of its own.
constexpr const char* kSpinner = R"(
import json, os, sys, threading
other = os.fork()
if other == 0:
    while os.getppid() != 1:
        pass
    os._exit(0)
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print(json.dumps({"pids": [os.getpid(), other]}), flush=True)
for line in sys.stdin:
    print(json.dumps({"echo": json.loads(line)}), flush=True)
os.kill(other, 9)
os._exit(0)
)";

/// The state of a process, 'T' if it is stopped; '-' if there is none.
char state_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return '-';
  return text[text.rfind(')') + 2];
}

/// Waits for a state, because a signal takes effect only when the kernel next looks at the process.
bool becomes(int pid, char state) {
  for (int i = 0; i < 3000 && state_of(pid) != state; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return state_of(pid) == state;
}

}  // namespace

TEST_CASE("child: stands still between commands, with all that it has started", "[bench]") {
  const auto script = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "spinning_peer.py";
  std::ofstream(script) << kSpinner;
  std::vector<int> pids;
  {
    Child child("python3", "spinning_peer.py");
    pids = child.receive().at("pids").get<std::vector<int>>();
    for (int round = 0; round < 3; ++round) {
      for (const int pid : pids) CHECK(becomes(pid, 'T'));
      CHECK(child.ask({{"round", round}}).at("echo").at("round") == round);
    }
  }
  CHECK(state_of(pids[0]) == '-');
  CHECK((becomes(pids[1], '-') || becomes(pids[1], 'Z')));  // no process may be there to collect it
  std::filesystem::remove(script);
}

}  // namespace seqtile::bench
