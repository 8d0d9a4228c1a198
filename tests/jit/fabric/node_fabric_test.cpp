// tests/jit/fabric/node_fabric_test.cpp -- ranks of several nodes: texts, rows with their flags, ranks that are gone.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/node_fabric.h"

#include <catch2/catch.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "jit/abi/channel_block.h"
#include "jit/abi/proxy_queue_block.h"
#include "jit/fabric/transport/cuda_memory_link.h"
#include "seqtile/error.h"
#include "tests/support/ranks/node_ranks.h"
#include "tests/support/ranks/ranks.h"

using namespace seqtile;
using namespace seqtile::testing;
using namespace std::chrono_literals;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::wrong_result, what);
}

void require_error(const std::string& part, const std::function<void()>& work) {
  std::string error = "nothing was thrown";
  try {
    work();
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  require(error.find(part) != std::string::npos && error.find('\n') == std::string::npos, error);
}

void check_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

int64_t load(uint64_t address) {
  return std::atomic_ref<int64_t>(*reinterpret_cast<int64_t*>(address)).load(std::memory_order_acquire);
}

/// Within two minutes.
bool comes(uint64_t address, int64_t value) {
  const auto end = std::chrono::steady_clock::now() + 2min;
  while (load(address) != value && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return load(address) == value;
}

/// The buffers of a channel for `world_size` ranks with one flag of each parity.
struct Buffers {
  explicit Buffers(Fabric& fabric, int64_t staging_bytes = 4096)
      : staging(fabric.allocate(static_cast<size_t>(staging_bytes))),
        flags(fabric.allocate(static_cast<size_t>(2 * fabric.world_size() * channel::kFlagBytes))),
        abort(fabric.allocate(channel::kFlagBytes)),
        queue(fabric.open_proxy_queue(*staging, *flags, *abort)) {
    fabric.all_gather("");
  }

  /// Publishes an entry in the way of a kernel.
  void publish(const std::array<int64_t, proxy_queue::num_entry_words - 1>& values) {
    auto* words = reinterpret_cast<int64_t*>(queue->address());
    const int64_t number = words[0]++;
    int64_t* entry = words + proxy_queue::num_entry_words * (1 + number % queue->num_entries());
    std::ranges::copy(values, entry + proxy_queue::peer);
    std::atomic_ref<int64_t>(entry[proxy_queue::ready]).store(number + 1, std::memory_order_release);
  }

  /// Publishes 3 rows of 5 bytes, 16 bytes apart, from byte 100 on.
  void publish(int rank, int64_t flag) { publish({rank, 100, 3, 5, 16, 32, flag}); }

  std::unique_ptr<SymmetricMemory> staging, flags, abort;
  std::unique_ptr<ProxyQueue> queue;
};

}  // namespace

TEST_CASE("node fabric: texts of any size meet in the order of the ranks", "[fabric]") {
  for (const int world_size : {1, 2, 3, 5})
    for (const bool is_around : {false, true})
      check_none(on_threads(make_node_ranks(world_size, {.num_nodes = 3, .is_around = is_around}), [&](Fabric& fabric) {
        require(fabric.world_size() == world_size, "all ranks");
        require(fabric.kind() == "threads", "that of a node's ranks");
        for (int meeting = 0; meeting < 20; ++meeting) {
          const auto text_of = [&](int rank) {
            return std::string(static_cast<size_t>(rank * meeting * 1000), static_cast<char>('a' + rank)) + "!";
          };
          const std::vector<std::string> all = fabric.all_gather(text_of(fabric.rank()));
          for (int rank = 0; rank < world_size; ++rank)
            require(all[static_cast<size_t>(rank)] == text_of(rank), "text");
        }
      }));
}

TEST_CASE("node fabric: rows come with their flag and nothing beside them; an abort word comes too", "[fabric]") {
  for (const uint32_t seed : {1u, 2u})
    check_none(on_threads(make_node_ranks(3, {.seed = seed}), [&](Fabric& fabric) {
      Buffers buffers(fabric);
      if (fabric.rank() == 2) {
        require(buffers.queue->remote_ranks() == 3, "ranks 0 and 1 are on the other node");
        for (int64_t turn = 1; turn <= 50; ++turn) {
          for (int rank = 0; rank < 2; ++rank) {
            auto* send_buffer = reinterpret_cast<char*>(buffers.staging->address(rank));
            std::memset(send_buffer, static_cast<int>(turn), 4096);
            buffers.publish(rank, turn);
          }
          fabric.all_gather("");
        }
        std::atomic_ref<int64_t>(*reinterpret_cast<int64_t*>(buffers.abort->address(1))).store(3);
        fabric.all_gather("");
        return;
      }
      const auto* staging = reinterpret_cast<const char*>(buffers.staging->address(fabric.rank()));
      for (int64_t turn = 1; turn <= 50; ++turn) {
        require(comes(buffers.flags->address(fabric.rank()) + 32, turn), "the flag");
        for (int byte = 0; byte < 4096; ++byte) {
          const int in_row = (byte - 100) % 16, row = (byte - 100) / 16;
          const bool is_sent = byte >= 100 && row < 3 && in_row < 5;
          require(staging[byte] == (is_sent ? turn : 0), "byte " + std::to_string(byte));
        }
        fabric.all_gather("");
      }
      require(fabric.rank() == 0 || comes(buffers.abort->address(1), 3), "the abort word");
      fabric.all_gather("");
      require(fabric.rank() == 1 || load(buffers.abort->address(0)) == 0, "an abort word that no rank has sent");
    }));
}

TEST_CASE("node fabric: more rows than a message takes come whole before their flag", "[fabric]") {
  constexpr int64_t kRows = 20'000, kRowBytes = 1024, kPitch = 1100;
  check_none(on_threads(make_node_ranks(2), [&](Fabric& fabric) {
    Buffers buffers(fabric, kRows * kPitch);
    const auto value = [](int64_t row, int64_t byte) { return static_cast<char>(row * 7 + byte); };
    auto* rows = reinterpret_cast<char*>(buffers.staging->address(1));
    if (fabric.rank() == 0) {
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t byte = 0; byte < kRowBytes; ++byte) rows[row * kPitch + byte] = value(row, byte);
      buffers.publish({1, 0, kRows, kRowBytes, kPitch, 32, 1});
    } else {
      require(comes(buffers.flags->address(1) + 32, 1), "the flag");
      bool are_right = true;
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t byte = 0; byte < kPitch; ++byte)
          are_right &= rows[row * kPitch + byte] == (byte < kRowBytes ? value(row, byte) : 0);
      require(are_right, "the rows");
    }
    fabric.all_gather("");
  }));
}

TEST_CASE("node fabric: what is sent before memory goes arrives, what comes after that is dropped", "[fabric]") {
  check_none(on_threads(make_node_ranks(2), [&](Fabric& fabric) {
    for (int generation = 0; generation < 30; ++generation) {
      auto old = std::make_unique<Buffers>(fabric);
      if (fabric.rank() == 0) {
        old->publish(1, 7);
        // No third entry: the queue has room for both parities of the flag.
        if (generation % 2) old->publish(1, 8);
        old.reset();
      } else {
        if (generation % 2 == 0) require(comes(old->flags->address(1) + 32, 7), "the flag");
        old.reset();  // in odd generations perhaps before the entry came
      }
      Buffers renewed(fabric);
      std::this_thread::sleep_for(1ms);
      require(load(renewed.flags->address(1) + 32) == 0, "a flag of the generation before");
      fabric.all_gather("");
    }
  }));
}

TEST_CASE("node fabric: who waits for a rank that has left, or whose node is gone, is told", "[fabric]") {
  check_none(on_ranks("nodes", 3, [](Fabric& fabric) {
    if (fabric.rank() < 2) require_error("waited for, and has left", [&] { fabric.all_gather(""); });
  }));
  std::atomic<bool> is_gone{false};
  NodeOptions options{.heartbeat_timeout = 1s};
  options.is_cut_off = [&](int rank) { return rank == 2 && is_gone; };
  check_none(on_threads(make_node_ranks(3, options), [&](Fabric& fabric) {
    try {
      fabric.all_gather("");
      if (fabric.rank() == 2) is_gone = true;
      while (true) fabric.all_gather("");
    } catch (const Error& error) {  // a rank of the own node throws it if that rank has seen the loss first
      require(error.code() == ErrorCode::aborted, error.what());
    }
  }));
}

TEST_CASE("node fabric: silent for less than the time that is given is not dead", "[fabric]") {
  check_none(on_threads(make_node_ranks(2, {.heartbeat_timeout = 2s}), [](Fabric& fabric) {
    if (fabric.rank() == 1) std::this_thread::sleep_for(2500ms);  // its thread goes on saying that it lives
    fabric.all_gather("");
  }));
}

TEST_CASE("node fabric: GPUs, and going on without a rank, are refused in one line", "[fabric]") {
  require_error("ranks of several nodes run on CPUs, not on sim:sm_80; use GPUs of one machine", [] {
    fabric::make_node_fabric(std::move(make_sim_fabric("sm_80", 1)[0]), nullptr, 0, {0, 1});
  });
  auto ranks = make_node_ranks(2);
  CHECK_THROWS_WITH(survivors_of(*ranks[0]),
                    "ranks of several nodes do not go on without one that has died; start all anew");
  CHECK_THROWS_WITH(fabric::make_cuda_fabric(nullptr, std::move(ranks[0]), 0),
                    "a fabric of GPUs: its ranks are on several nodes; use GPUs of one machine, or ranks on CPUs");
}
