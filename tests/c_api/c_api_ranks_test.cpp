// tests/c_api/c_api_ranks_test.cpp -- operations over ranks through the C interface.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/c_api/c_api_support.h"
#include "tests/support/temp_folder.h"

using namespace seqtile::test;

namespace {

/// Runs `body` for each rank on a thread of its own. A body returns "" or what went wrong.
std::vector<std::string> on_ranks(int world_size, const std::function<std::string(seqtile_fabric*, int)>& body) {
  std::vector<seqtile_fabric*> fabrics(static_cast<size_t>(world_size));
  REQUIRE(seqtile_fabric_open_threads(world_size, 1, fabrics.data()) == SEQTILE_OK);
  std::vector<std::string> problems(fabrics.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < fabrics.size(); ++r)
    threads.emplace_back([&, r] {
      const FabricPtr mine(fabrics[r]);
      problems[r] = body(mine.get(), static_cast<int>(r));
    });
  for (std::thread& thread : threads) thread.join();
  return problems;
}

struct Gathered {
  EnginePtr engine;
  ChannelPtr channel;
  OpPtr op;
};

/// An all_gather of rows of 4 on the rank's own stores; "" or what went wrong.
std::string open_gather(seqtile_fabric* fabric, const std::string& folder, Gathered& to) {
  const std::string options =
      R"({"cache": ")" + folder + R"(/tuning.db", "artifacts": ")" + folder + R"(/artifacts.db"})";
  seqtile_engine* engine = nullptr;
  seqtile_channel* channel = nullptr;
  seqtile_op* op = nullptr;
  if (seqtile_engine_open_on(options.c_str(), fabric, &engine)) return seqtile_last_error();
  to.engine.reset(engine);
  if (seqtile_channel_open(fabric, 64, 600, &channel)) return seqtile_last_error();
  to.channel.reset(channel);
  if (seqtile_engine_prepare_on(engine, "all_gather", R"({"n": 4})", channel, &op)) return seqtile_last_error();
  to.op.reset(op);
  return "";
}

/// Gathers `rows` rows whose elements are their places; "" or what went wrong.
std::string gather(const Gathered& gathered, int rank, int world_size, int64_t rows, int64_t length) {
  const int64_t first = rank * rows / world_size, own = (rank + 1) * rows / world_size - first;
  std::vector<float> x(static_cast<size_t>(own * 4)), y(static_cast<size_t>(rows * 4), -1);
  std::iota(x.begin(), x.end(), static_cast<float>(first * 4));
  const Dl dx(x.data(), kF32, {own, 4}), dy(y.data(), kF32, {rows, 4});
  const std::array<const DLTensor*, 2> tensors{dx, dy};
  if (seqtile_op_call(gathered.op.get(), tensors.data(), 2, length, nullptr)) return seqtile_last_error();
  if (seqtile_channel_check(gathered.channel.get())) return seqtile_last_error();
  for (size_t i = 0; i < y.size(); ++i)
    if (y[i] != static_cast<float>(i)) return "element " + std::to_string(i) + " is " + std::to_string(y[i]);
  return "";
}

/// A gather of one rank whose channel is no longer held; "" or what went wrong.
std::string gather_alone(const Gathered& gathered) {
  std::vector<float> x{1, 2, 3, 4}, y(4);
  const Dl dx(x.data(), kF32, {1, 4}), dy(y.data(), kF32, {1, 4});
  const std::array<const DLTensor*, 2> tensors{dx, dy};
  if (seqtile_op_call(gathered.op.get(), tensors.data(), 2, 1, nullptr)) return seqtile_last_error();
  return y == x ? "" : "the rows are not the rank's";
}

}  // namespace

TEST_CASE("ranks on threads gather their rows", "[fast]") {
  const TempFolder folder;
  for (const int world_size : {1, 2, 3}) {
    const auto problems = on_ranks(world_size, [&](seqtile_fabric* fabric, int rank) -> std::string {
      Gathered gathered;
      if (std::string problem = open_gather(fabric, folder.path(), gathered); !problem.empty()) return problem;
      gathered.engine.reset();  // the operation keeps its engine, its channel and the fabric
      for (const int64_t rows : {7, 0, 1, 64})
        if (std::string problem = gather(gathered, rank, world_size, rows, SEQTILE_LENGTH_OF_TENSORS); !problem.empty())
          return problem;
      return seqtile_channel_reset(gathered.channel.get()) ? seqtile_last_error()
                                                           : gather(gathered, rank, world_size, 5, 5);
    });
    for (const std::string& problem : problems) CHECK(problem == "");
  }
}

TEST_CASE("what an operation over ranks refuses", "[fast]") {
  const TempFolder folder;
  const auto problems = on_ranks(1, [&](seqtile_fabric* fabric, int) -> std::string {
    Gathered gathered;
    if (std::string problem = open_gather(fabric, folder.path(), gathered); !problem.empty()) return problem;
    char* text = nullptr;
    if (seqtile_fabric_describe(fabric, &text)) return seqtile_last_error();
    if (text_of(text) != R"({"kind":"threads","rank":0,"world_size":1})") return "describe of the fabric";
    if (seqtile_op_describe(gathered.op.get(), &text)) return seqtile_last_error();
    if (nlohmann::json::parse(text_of(text))["tensors"].size() != 2) return "describe of the operation";
    if (gather(gathered, 0, 1, 65, 65).find("above the channel's capacity 64") == std::string::npos) return "capacity";
    seqtile_channel* none = nullptr;
    if (seqtile_channel_open(fabric, 64, 0, &none) != SEQTILE_INVALID_ARGUMENT) return "no time was taken";
    seqtile_op* op = nullptr;
    if (seqtile_engine_prepare_on(gathered.engine.get(), "softmax", R"({"n": 4})", gathered.channel.get(), &op) !=
        SEQTILE_INVALID_ARGUMENT)
      return "an operation of one device was taken";
    if (seqtile_engine_prepare_on(gathered.engine.get(), "all_gather", R"({"n": 4, "world_size": 2})",
                                  gathered.channel.get(), &op) != SEQTILE_INVALID_ARGUMENT)
      return "another world size was taken";
    seqtile_engine* elsewhere = nullptr;
    if (seqtile_engine_open(R"({"threads": 1})", &elsewhere)) return seqtile_last_error();
    const EnginePtr other(elsewhere);
    if (seqtile_engine_prepare_on(elsewhere, "all_gather", R"({"n": 4})", gathered.channel.get(), &op) !=
        SEQTILE_INVALID_ARGUMENT)
      return "an engine of another device was taken";
    if (seqtile_engine_open_on(R"({"threads": 5})", fabric, &elsewhere) != SEQTILE_INVALID_ARGUMENT ||
        seqtile_engine_open_on(R"({"device": "cpu"})", fabric, &elsewhere) != SEQTILE_INVALID_ARGUMENT)
      return "options that are the fabric's were taken";
    gathered.channel.reset();  // the operation keeps it
    seqtile_fabric_retain(fabric);
    seqtile_fabric_release(fabric);
    return gather_alone(gathered);
  });
  CHECK(problems[0] == "");
  seqtile_fabric* fabric = nullptr;
  CHECK(seqtile_fabric_open_threads(0, 1, &fabric) == SEQTILE_INVALID_ARGUMENT);
  auto* stale = reinterpret_cast<seqtile_fabric*>(0x1);
  CHECK(seqtile_fabric_open_threads(1, -5, &stale) == SEQTILE_INVALID_ARGUMENT);
  CHECK(stale == nullptr);
  CHECK(seqtile_fabric_open_threads(2, 1, nullptr) == SEQTILE_INVALID_ARGUMENT);
  CHECK(seqtile_fabric_join(-1, 0, 1, 1, &fabric) == SEQTILE_INVALID_ARGUMENT);
  CHECK(seqtile_fabric_join(0, 0, 1, -1, &fabric) == SEQTILE_INVALID_ARGUMENT);
  int descriptor = 0;
  CHECK(seqtile_world_make(99, &descriptor) == SEQTILE_INVALID_ARGUMENT);
  CHECK(descriptor == -1);
}

TEST_CASE("ranks that are processes meet by a descriptor", "[fast]") {
  const TempFolder folder;
  int descriptor = -1;
  REQUIRE(seqtile_world_make(2, &descriptor) == SEQTILE_OK);
  const auto as_rank = [&](int rank) -> std::string {
    seqtile_fabric* joined = nullptr;
    if (seqtile_fabric_join(descriptor, rank, 1, 600, &joined)) return seqtile_last_error();
    const FabricPtr fabric(joined);
    Gathered gathered;
    const std::string problem = open_gather(fabric.get(), folder.path(), gathered);
    return problem.empty() ? gather(gathered, rank, 2, 9, 9) : problem;
  };
  const pid_t child = fork();
  if (child == 0) {
    const std::string problem = as_rank(1);
    if (!problem.empty()) dprintf(2, "rank 1: %s\n", problem.c_str());
    _exit(problem.empty() ? 0 : 1);
  }
  CHECK(as_rank(0) == "");
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(descriptor);
}
