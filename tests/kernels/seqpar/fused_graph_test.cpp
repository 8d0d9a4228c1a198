// tests/kernels/seqpar/fused_graph_test.cpp -- fused operations captured on every rank and replayed at any length.
// SPDX-License-Identifier: Apache-2.0
//
// A replay must give the bits of the eager call with the capacity's plan, on the same channel and with other rows in
// every iteration, and must write no row beyond the length.
#include <catch2/catch.hpp>

#include <random>

#include <fmt/format.h>

#include "kernels/seqpar/patterns/allgather_linear.h"
#include "seqtile/error.h"
#include "seqtile/operations.h"
#include "seqtile/ops/ranks.h"
#include "tests/support/ranks/graph_rank.h"
#include "tests/support/ranks/rank_operations.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using namespace seqtile::kernels;
using autotune::Fields;
using autotune::Workload;
using testing::GraphRank;
using testing::on_graph_ranks;
using testing::Outputs;

namespace {

constexpr int64_t kCapacity = 22;
constexpr const char* kTargets[] = {"sm_80", "sm_90a"};

Workload on_two_ranks(const std::string& operation, Fields fields) {
  fields.set("world_size", 2);
  return {operation, DType::bf16, 1, std::move(fields)};
}

Workload gather() { return on_two_ranks("fused_allgather_and_linear", {{"n", 24}, {"k", 16}}); }
Workload reduce() { return on_two_ranks("fused_linear_and_reducescatter", {{"n", 24}, {"k", 16}, {"residual", 1}}); }
Workload attention() {
  return on_two_ranks("context_attention_forward",
                      {{"heads", 3}, {"kv_heads", 1}, {"head_dim", 8}, {"layout", "zigzag"}});
}
Workload context_backward() {
  return on_two_ranks("context_attention_backward",
                      {{"heads", 1}, {"kv_heads", 1}, {"head_dim", 8}, {"layout", "zigzag"}});
}

/// Replays of an operation in the sweep.
int replays_of(const Workload& workload) { return workload.operation.starts_with("fused") ? 120 : 60; }

void require(bool is_true, const std::string& what) {
  if (!is_true) throw Error(ErrorCode::wrong_result, what);
}

/// Lengths 0, 1, the capacity and one below it, then random ones.
std::vector<int64_t> lengths_of(int count) {
  std::vector<int64_t> lengths{0, 1, kCapacity, kCapacity - 1};
  std::mt19937 random(3);
  while (static_cast<int>(lengths.size()) < count) lengths.push_back(static_cast<int64_t>(random() % (kCapacity + 1)));
  return lengths;
}

bool can_grow(Channel& channel) {
  try {
    channel.reserve({.capacity = kCapacity + 1});
    return true;
  } catch (const Error& error) {
    return error.code() != ErrorCode::unsupported;
  }
}

void check_replays(const char* target, const Workload& workload, int count) {
  const std::vector<int64_t> lengths = lengths_of(count);
  on_graph_ranks(target, workload, kCapacity, [&](int rank, GraphRank& captured) {
    require(captured.graph().num_kernels() == 1, "a graph of more than one kernel");
    Outputs replayed, called;
    captured.replay(kCapacity, replayed);
    captured.call(kCapacity, called, kCapacity);
    captured.synchronize();
    for (const int64_t length : {int64_t{0}, int64_t{1}, kCapacity})
      require(captured.kernels_of_a_call(length) == 1, "a call of more than one kernel");
    const auto compiles = captured.engine().counters().compiles;
    for (const int64_t& length : lengths) {
      captured.replay(length, replayed);
      captured.call(length, called, kCapacity);
      captured.synchronize();
      const std::string where = fmt::format("{}, rank {}, length {}: ", target, rank, length);
      require(replayed == called, where + "the replay differs from the call");
      require(captured.fault_of(replayed, length).empty(), where + captured.fault_of(replayed, length));
    }
    require(captured.engine().counters().compiles == compiles, "a call has compiled");
    require(captured.channel().epoch() == 2 * lengths.size() + 2, "an epoch is missing");
    captured.channel().check();
    require(!can_grow(captured.channel()), "a channel whose memory a graph knows has grown");
  });
}

void check_set(const char* target, const Workload& workload, int count) {
  on_graph_ranks(target, workload, kCapacity, [&](int rank, GraphRank& captured) {
    const GraphSet graphs = captured.capture_set_up_to(kCapacity - 1);
    require(graphs.size() == 8, "a graph for each bucket: 1, 2, 4, 8, 16, 18, 20 and what there is of 22");
    Outputs replayed, called;
    for (const int64_t& length : lengths_of(count)) {
      if (length == kCapacity) continue;
      captured.replay(length, replayed, graphs);
      captured.call(length, called, graphs.capacity_of(length));
      captured.synchronize();
      const std::string where = fmt::format("{}, rank {}, length {}: ", target, rank, length);
      require(replayed == called, where + "the replay differs from the call");
      require(captured.fault_of(replayed, length).empty(), where + captured.fault_of(replayed, length));
    }
    captured.channel().check();
  });
}

/// One rank takes another length in the third of four replays.
void check_mismatch(const char* target, const Workload& workload) {
  on_graph_ranks(target, workload, kCapacity, [&](int rank, GraphRank& captured) {
    const int64_t lengths[] = {20, kCapacity, rank == 0 ? 13 : 12, 20};
    Outputs outputs[std::size(lengths)];
    for (size_t i = 0; i < std::size(lengths); ++i) captured.replay(lengths[i], outputs[i]);
    captured.synchronize();
    for (size_t i = 0; i < std::size(lengths); ++i)
      require(i < 2 ? captured.fault_of(outputs[i], lengths[i]).empty() : captured.is_given_up(outputs[i], lengths[i]),
              fmt::format("{}, rank {}, replay {}: right data or NaN is wanted", target, rank, i));
    const auto record = captured.channel().abort_record();
    require(record.has_value(), "no record");
    require(record->kind == channel::mismatch || record->kind == channel::aborted, record->text());
    require(record->epoch == 3, record->text());
    require(captured.channel().epoch() == std::size(lengths), "an epoch is missing");
  });
}

}  // namespace

TEST_CASE("fused graph: replays at changing lengths give the bits of calls, one kernel each",
          "[seqpar][sim][graph][sweep]") {
  size_t turn = 0;  // the slow run takes each operation on both targets
  for (const Workload& workload : testing::operations_on_ranks(2, DType::bf16)) {
    const char* target = kTargets[turn++ % std::size(kTargets)];
    INFO(target << " " << workload.operation);
    CHECK_NOTHROW(check_replays(target, workload, replays_of(workload)));
  }
}

TEST_CASE("fused graph: a thousand replays of each operation", "[seqpar][sim][graph][slow]") {
  for (const char* target : kTargets)
    for (const Workload& workload : testing::forms_on_ranks(2, DType::bf16)) {
      INFO(target << " " << workload.operation);
      CHECK_NOTHROW(check_replays(target, workload, 1000));
    }
}

TEST_CASE("fused graph: a set has a graph for each bucket, with the bucket's plan", "[seqpar][sim][graph]") {
  CHECK_NOTHROW(check_set(kTargets[0], gather(), 30));
  CHECK_NOTHROW(check_set(kTargets[1], reduce(), 30));
}

TEST_CASE("fused graph: another length on one rank is a record on all and NaN", "[seqpar][sim][graph]") {
  size_t turn = 0;
  for (const Workload& workload : {gather(), reduce(), attention(), context_backward()})
    CHECK_NOTHROW(check_mismatch(kTargets[turn++ % std::size(kTargets)], workload));
}

TEST_CASE("fused graph: bad captures are refused", "[seqpar][graph]") {
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const autotune::Registry registry = make_registry();
  const auto fabrics = make_thread_fabric(1);
  seqpar::FusedAllgatherAndLinear op{{.n = 24, .k = 16}};
  const auto engine = Engine::open({.threads = 1,
                                    .cache = folder.file("tuning.db"),
                                    .artifacts = folder.file("artifacts.db"),
                                    .policy = MissPolicy::fallback},
                                   registry, *fabrics[0]);
  Channel channel(*fabrics[0], 64);
  const seqpar::FusedHandle handle(*engine, op, channel);
  std::vector<float> values(64 * 64);
  const int64_t length = 1;
  const auto capture = [&](int64_t rows, int64_t capacity) {
    (void)handle.capture({.x = make_tensor(values.data(), DType::f32, {rows, 16}),
                          .w = make_tensor(values.data(), DType::f32, {24, 16}),
                          .y = make_tensor(values.data(), DType::f32, {capacity, 24})},
                         capacity, &length, {});
  };
  CHECK_THROWS_WITH(capture(65, 65), Catch::Contains("capacity 65 is above the channel's capacity 64"));
  CHECK_THROWS_WITH(capture(9, 10), Catch::Contains("a graph for 10 rows of 1 ranks needs 10 on every rank"));
  CHECK_THROWS_WITH(capture(10, 10), Catch::Contains("a CPU captures no graphs"));
}
