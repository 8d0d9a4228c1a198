// tests/jit/fabric/fabric_test.cpp -- ranks that meet, stay away or die; channels that start anew and grow.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/fabric.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>
#include <unistd.h>

#include <fmt/format.h>

#include "jit/base/machine_memory.h"
#include "seqtile/error.h"
#include "tests/support/ranks/ranks.h"

using namespace seqtile;
using seqtile::testing::on_processes;
using seqtile::testing::on_ranks;
using seqtile::testing::Signal;
using namespace std::chrono_literals;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::wrong_result, what);
}

/// Usable in a forked rank, where Catch2's checks are lost.
void require_error(const std::string& part, const std::function<void()>& work) {
  std::string error = "nothing was thrown";
  try {
    work();
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  require(error.find(part) != std::string::npos, error);
}

std::string joined(Fabric& fabric, const std::string& mine) {
  std::string all;
  for (const std::string& text : fabric.all_gather(mine)) all += text;
  return all;
}

/// All ranks report this part, or no error if it is empty.
void check_all(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) {
    if (part.empty()) CHECK(error == "");
    else CHECK_THAT(error, Catch::Contains(part));
    CHECK(error.find('\n') == std::string::npos);
  }
}

/// Names of the shared memory of this machine and process. A world must not add to them.
std::vector<std::string> shared_memory() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.push_back(entry.path());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.find("memfd") != std::string::npos) names.push_back(target);
  }
  return names;
}

}  // namespace

TEST_CASE("fabric: worlds of no ranks or too many are refused", "[fabric]") {
  for (const int size : {-1, 0, 17}) {
    const std::string wanted = fmt::format("a fabric of {} ranks: from 1 to 16 are possible", size);
    CHECK_THROWS_WITH(make_thread_fabric(size), wanted);
    CHECK_THROWS_WITH(make_sim_fabric("sm_80", size), wanted);
    CHECK_THROWS_WITH(make_process_world(size), wanted);
  }
}

TEST_CASE("fabric: a process that never starts is named to the others in time", "[fabric]") {
  const auto errors = on_processes(4, [](int world, int rank) {
    if (rank == 1 || rank == 3) return;
    join_process_fabric(world, rank, 1, 2s);
  });
  for (const size_t rank : {0, 2})
    CHECK(errors[rank] == fmt::format("process fabric: rank {} waited 2 s for ranks 1, 3 to join; start all ranks, "
                                      "or give a longer timeout",
                                      rank));
}

TEST_CASE("fabric: ranks that are taken, too large or of no world are refused", "[fabric]") {
  const int world = make_process_world(1);
  CHECK_THROWS_WITH(join_process_fabric(world, 1), Catch::Contains("rank 1 of 1: ranks are 0 to 0"));
  CHECK_THROWS_WITH(join_process_fabric(STDIN_FILENO, 0), Catch::Contains("not a file of this version's fabric"));
  CHECK_THROWS_WITH(join_process_fabric(-1, 0), Catch::Contains("descriptor -1"));
  const auto fabric = join_process_fabric(world, 0);
  CHECK_THROWS_WITH(join_process_fabric(world, 0), Catch::Contains("rank 0 is process"));
  close(world);
}

TEST_CASE("fabric: those that outlive a rank go on without it, as often as that happens", "[fabric]") {
  const auto before = shared_memory();
  const auto errors = on_ranks("processes", 4, [](Fabric& all) {
    const int rank = all.rank();
    const auto buffer = all.allocate(5000);
    if (rank == 1) _exit(9);
    require_error("a rank has died", [&] { all.all_gather(""); });
    const auto three = survivors_of(all);
    require(three->world_size() == 3 && three->rank() == (rank > 1 ? rank - 1 : 0), "ranks are numbered anew");
    require(&three->device() == &all.device(), "the device stays");
    require(joined(*three, std::to_string(rank)) == "023", "three ranks meet");
    const auto memory = three->allocate(100);
    auto* next = reinterpret_cast<int*>(memory->address((three->rank() + 1) % 3));
    require(*next == 0, "memory is new");
    *next = rank;
    require(joined(*three, ".") == "...", "three ranks meet again");
    require(*reinterpret_cast<int*>(memory->address(three->rank())) == (rank == 0   ? 3
                                                                        : rank == 2 ? 0
                                                                                    : 2),
            "memory is shared");
    if (rank == 3) _exit(9);
    const auto two = survivors_of(*three);
    require(joined(*two, std::to_string(rank)) == "02", "two ranks meet");
  });
  CHECK(errors == std::vector<std::string>{"", "ended with status 0x900", "", "ended with status 0x900"});
  CHECK(shared_memory() == before);
}

TEST_CASE("fabric: who waits for a rank that has left is told", "[fabric]") {
  const Signal is_told;
  const auto errors = on_processes(3, [&](int world, int rank) {
    auto fabric = join_process_fabric(world, rank);
    if (rank != 1) {
      require_error("waits for rank 1, which has left", [&] { fabric->all_gather(""); });
      is_told.give();
      const auto two = survivors_of(*fabric);
      require(joined(*two, std::to_string(rank)) == "02", "two go on");
      return;
    }
    fabric.reset();
    for (int peer = 0; peer < 2; ++peer) is_told.wait();
  });
  check_all(errors, "");
  for (const std::string& error : on_ranks("threads", 2, [](Fabric& fabric) {
         if (fabric.rank() == 0) require_error("has left", [&] { fabric.all_gather(""); });
       }))
    CHECK(error == "");
}

TEST_CASE("fabric: who waits for a rank longer than the timeout names it", "[fabric]") {
  for (const char* kind : {"threads", "processes", "nodes"}) {
    INFO(kind);
    const Signal has_given_up;
    const auto errors = on_ranks(kind, 2, [&](Fabric& fabric) {
      fabric.set_timeout(fabric.rank() == 0 ? 200ms : 600'000ms);
      if (fabric.rank() == 1) {
        has_given_up.wait();
        fabric.all_gather("");  // rank 0 has come to this one
      }
      try {
        fabric.all_gather("");
      } catch (const Error&) {
        if (fabric.rank() == 0) has_given_up.give();
        throw;
      }
    });
    CHECK_THAT(errors[0], Catch::Contains("rank 1") && Catch::Contains("see what keeps it, or wait longer"));
    CHECK_THAT(errors[1], Catch::Contains("has left"));
  }
}

TEST_CASE("fabric: memory of processes is there again when it has been given back", "[fabric]") {
  const auto machine = static_cast<size_t>(machine_bytes());
  check_all(on_ranks("processes", 2,
                     [&](Fabric& fabric) {
                       for (int i = 0; i < 5; ++i) fabric.allocate(machine / 5);
                       const auto kept = fabric.allocate(machine / 5);
                       require_error("are more than this machine's", [&] { fabric.allocate(machine / 3); });
                     }),
            "");
}

// A peer reads pulled rows in place, perhaps after their rank has ended its last launch.
TEST_CASE("fabric: what a rank has written stays when it lets the memory go before its peers", "[fabric]") {
  for (const char* kind : {"threads", "processes"})
    check_all(on_ranks(kind, 3,
                       [](Fabric& fabric) {
                         auto memory = fabric.allocate(1 << 20);
                         const auto part_of = [&](int rank) {
                           return reinterpret_cast<int*>(memory->address(rank)) + (1 << 17);
                         };
                         *part_of(fabric.rank()) = 7 + fabric.rank();
                         fabric.all_gather("");
                         if (fabric.rank() != 1) memory.reset();
                         fabric.all_gather("");
                         if (fabric.rank() != 1) return;
                         for (int rank = 0; rank < 3; ++rank)
                           if (*part_of(rank) != 7 + rank) throw Error(ErrorCode::internal, "the rank's data is gone");
                       }),
              "");
}

TEST_CASE("fabric: a rank that lives but does not come to the survivors is named", "[fabric]") {
  const Signal has_given_up;
  const auto errors = on_ranks("processes", 3, [&](Fabric& fabric) {
    if (fabric.rank() == 0) _exit(9);
    if (fabric.rank() == 2) return has_given_up.wait();
    try {
      survivors_of(fabric, 200ms);
    } catch (const Error&) {
      has_given_up.give();
      throw;
    }
  });
  CHECK_THAT(errors[1], Catch::Contains("rank 1 waited 0.2 s for rank 2 to go on without those that have died"));
  for (const std::string& error : on_ranks("threads", 2, [](Fabric& fabric) { survivors_of(fabric); }))
    CHECK_THAT(error, Catch::Contains("ranks of kind threads do not die alone"));
}

TEST_CASE("channel: options that no channel can have, or that differ, are one line on every rank", "[fabric]") {
  for (const char* kind : {"threads", "processes", "nodes"}) {
    check_all(on_ranks(kind, 3,
                       [](Fabric& fabric) {
                         Channel(fabric, {.capacity = fabric.rank() == 2 ? 64 : 32, .staging_bytes = 100});
                       }),
              "a channel: capacity is 64 on rank 2 and 32 on rank 0; give all ranks the same");
    check_all(on_ranks(kind, 3, [](Fabric& fabric) { Channel(fabric, {.capacity = 32, .staging_bytes = -1}); }),
              "a channel with -1 bytes of staging: from 0 to 1099511627776 are possible; give it another capacity");
  }
}

TEST_CASE("channel: it grows, starts anew, and goes on counting", "[fabric]") {
  for (const char* kind : {"threads", "processes", "nodes"})
    check_all(on_ranks(kind, 2,
                       [](Fabric& fabric) {
                         Channel channel(fabric, {.capacity = 8, .staging_bytes = 1000, .first_epoch = 41});
                         channel.reserve({.capacity = 4, .staging_bytes = 5000, .flags_per_source = 3});
                         require(channel.options().capacity == 8, "nothing shrinks");
                         require(channel.options().flags_per_source == 3, "there are more flags");
                         require(channel.staging_bytes() >= 10000, "there is more staging");
                         require(channel.epoch() == 41, "epochs go on");
                         if (fabric.rank() == 1) channel.note_capture();
                         require_error("rank 1: a channel of which a graph was captured does not grow",
                                       [&] { channel.reserve({.capacity = 9}); });
                         channel.reset();
                         require(channel.epoch() == 41 && channel.options().capacity == 8, "epochs go on after reset");
                         const bool is_last = fabric.rank() == 1;
                         require_error("capacity is 90 on rank 1 and 80 on rank 0",
                                       [&] { channel.reserve({.capacity = is_last ? 90 : 80}); });
                         require(channel.options().capacity == 8, "nothing has changed");
                       }),
              "");
}

TEST_CASE(
    "fabric: who is in a collective call gets its texts, and nobody enters the next one behind a rank that leaves",
    "[fabric]") {
  for (int i = 0; i < 300; ++i) {
    auto fabrics = make_thread_fabric(3);
    std::vector<std::string> second(3);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const std::string mine = std::to_string(rank);
        try {
          second[rank] = fabrics[rank]->all_gather(mine) == std::vector<std::string>{"0", "1", "2"} ? "met" : "wrong";
          if (rank == 0) return fabrics[0].reset();
          fabrics[rank]->all_gather("again");
          second[rank] = "entered";
        } catch (const Error& error) {
          second[rank] += error.code() == ErrorCode::aborted ? ", refused" : error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    REQUIRE(second == std::vector<std::string>{"met", "met, refused", "met, refused"});
  }
}

TEST_CASE("channel: timeouts and sizes that would overflow are refused, and a growth that fails changes nothing",
          "[fabric]") {
  const auto fabrics = make_thread_fabric(1);
  CHECK_THROWS_WITH(Channel(*fabrics[0], {.capacity = 8, .timeout = std::chrono::nanoseconds(-1)}),
                    Catch::Contains("a timeout of -1 ns: it may not be negative"));
  CHECK_THROWS_WITH(Channel(*fabrics[0], {.capacity = 8, .staging_bytes = INT64_MAX}),
                    Catch::Contains("bytes of staging: from 0 to 1099511627776 are possible"));
  CHECK_THROWS_WITH(Channel(*fabrics[0], {.capacity = 8, .flags_per_source = int64_t{1} << 59}),
                    Catch::Contains("flags of each rank: from 1 to"));
  for (const std::string& error : on_ranks("processes", 2, [](Fabric& fabric) {
         Channel channel(fabric, {.capacity = 8, .staging_bytes = 1024});
         const uint64_t before = channel.staging_address();
         std::string refusal;
         try {
           channel.reserve({.capacity = 16, .staging_bytes = int64_t{1} << 39});  // 1 TiB per rank
         } catch (const Error& thrown) {
           refusal = thrown.what();
         }
         if (refusal.find("are more than this machine's") == std::string::npos)
           throw Error(ErrorCode::wrong_result, "refused with: " + refusal);
         if (channel.options().capacity != 8 || channel.staging_address() != before)
           throw Error(ErrorCode::wrong_result, "the channel has changed");
         channel.reserve({.capacity = 16, .staging_bytes = 2048});
         if (channel.options().capacity != 16)
           throw Error(ErrorCode::wrong_result, "the channel does not grow any more");
         fabric.all_gather("");
       }))
    CHECK(error == "");
}

TEST_CASE("channel: it serves one stream", "[fabric]") {
  const auto fabrics = make_thread_fabric(1);
  Channel channel(*fabrics[0], {.capacity = 8});
  int stream = 0;
  channel.check_stream({&stream});
  channel.note_stream({});
  channel.check_stream({});
  CHECK_THROWS_WITH(channel.check_stream({&stream}),
                    Catch::Contains("a channel serves one stream, make another for the second"));
  channel.reset();
  CHECK_NOTHROW(channel.check_stream({&stream}));
}
