// tests/kernels/seqpar/same_bits_test.cpp -- every operation over ranks gives the same bits, whatever its ranks do.
// SPDX-License-Identifier: Apache-2.0
//
// Operands are random and sums are not exact: another order of their terms, or another place where they are rounded,
// shows. All results are compared with f64 as well.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include <fmt/core.h>

#include "seqtile/error.h"
#include "tests/support/ranks/op_on_ranks.h"
#include "tests/support/ranks/rank_operations.h"
#include "tests/support/ranks/rank_table.h"

using namespace seqtile;
using namespace seqtile::testing;
using autotune::Config;
using autotune::Workload;

namespace {

constexpr int64_t kLength = 400;  // each of three ranks has three of the smallest chunks

/// Parameters of the exchange of rows and of the order of programs, not of the computation of a tile.
constexpr const char* kKnobs[] = {"chunk_rows", "push_programs", "order", "sum_rows", "reduction", "transfer"};

/// Parameters that choose the elements of a product that a program computes, each by the same sum over k. (mr and nr of
/// CPUs are not here: they change how each sum is split.)
constexpr const char* kTileSides[] = {"block_m", "block_n", "num_warps"};

Config without(std::span<const char* const> names, const Config& config) {
  Config rest;
  for (const auto& [name, value] : config.values())
    if (std::ranges::find(names, name) == names.end()) rest.set(name, value);
  return rest;
}
Config without_knobs(const Config& config) { return without(kKnobs, config); }
Config without_tile(const Config& config) { return without(kTileSides, without_knobs(config)); }

/// Configurations that differ from the operation's only in the parameters that `rest` leaves out, its own among them:
/// all, or `most` from one end of the space to the other.
std::vector<Config> like(const OpOnRanks& op, const std::string& device, size_t most, Config (*rest)(const Config&)) {
  std::vector<Config> all, chosen;
  for (Config& config : op.op().config_space(op.workload(), op.longest(), target_of({.device = device})).enumerate())
    if (rest(config) == rest(op.config())) all.push_back(std::move(config));
  const size_t count = std::min(most, all.size());
  for (size_t i = 0; i < count; ++i) chosen.push_back(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]);
  return chosen;
}

/// Ranks on CPUs pause; simulated GPUs use the seed for their schedule.
RankOptions late(uint32_t seed) {
  RankOptions options;
  options.seed = seed, options.slow_rank = 1;
  return options;
}

void check_runs(const std::string& device, int world_size, DType dtype, size_t num_runs) {
  for (const Workload& workload : forms_on_ranks(world_size, dtype)) {
    OpOnRanks op(workload, device, std::vector<OpCall>(num_runs, {kLength}));
    RankOptions options;
    options.before_launch = straggle;
    CHECK(op.run(options) == "");
  }
}

constexpr size_t kAll = 1000;

void check_like(const std::string& device, const Workload& workload, const std::vector<OpCall>& calls, size_t most,
                Config (*rest)(const Config&)) {
  OpOnRanks first(workload, device, calls);
  REQUIRE(first.run(late(0)) == "");
  const std::vector<Config> configs = like(first, device, most, rest);
  CHECK((configs.size() > 1) == (first.config() != rest(first.config())));
  for (uint32_t seed = 1; const Config& config : configs) {
    if (config == first.config()) continue;
    OpOnRanks op(workload, device, calls, config);
    CHECK(op.run(late(seed++)) == "");
    INFO(workload.operation << " " << workload.fields.json() << ", " << config.json());
    const bool has_same_bits = op.bytes() == first.bytes();
    CHECK(has_same_bits);
  }
}

void check_knobs(const std::string& device, const std::vector<Workload>& workloads, const std::vector<OpCall>& calls,
                 size_t most) {
  for (const Workload& workload : workloads) check_like(device, workload, calls, most, without_knobs);
}

void check_tiles(const std::string& device, int world_size, DType dtype, int64_t length, size_t most) {
  for (Workload workload : operations_on_ranks(world_size, dtype)) {
    if (!workload.fields.contains("k")) continue;
    workload.fields.set("k", 150);
    check_like(device, workload, {{length}}, most, without_tile);
  }
}

/// Runs the calls with epoch 2^bits in the middle of them.
void check_epochs(const ConfiguredOp& of, const std::string& device, int bits, const std::vector<OpCall>& calls) {
  OpOnRanks op(of.workload, device, calls, of.config);
  RankOptions options;
  options.channel.first_epoch = (uint64_t{1} << bits) - calls.size() / 2;
  INFO(bits << " bits");
  CHECK(op.run(options) == "");
}

/// True if the operation refuses the chunk by name. A chunk that it takes must give the bits of the default one.
bool refuses_odd_chunk(const Workload& workload) {
  const auto exchange = rank_table_op(workload.operation).exchange(workload, nullptr);
  const int64_t chunk_rows = exchange.phases[0].chunk_rows + 3;  // a channel has flags for chunks of this size
  OpOnRanks first(workload, "threads", {{kLength}});
  autotune::Config config = first.config();
  if (!config.contains("chunk_rows")) return false;
  config.set("chunk_rows", chunk_rows);
  INFO(workload.operation << " " << config.json());
  OpOnRanks op(workload, "threads", {{kLength}}, config);
  try {
    op.kernel();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK_THAT(error.what(), Catch::Contains(fmt::format("chunk_rows = {} is not a multiple", chunk_rows)));
    return true;
  }
  CHECK(op.run({}) == "");
  CHECK(first.run({}) == "");
  const bool has_same_bits = op.bytes() == first.bytes();
  CHECK(has_same_bits);
  return false;
}

}  // namespace

TEST_CASE("same bits: a hundred calls of each operation in f32, whoever is late", "[seqpar]") {
  check_runs("threads", 3, DType::f32, 100);
}

TEST_CASE("same bits: a hundred calls of each operation in bf16, whoever is late", "[seqpar]") {
  check_runs("threads", 3, DType::bf16, 100);
}

TEST_CASE("same bits: knobs of each operation", "[seqpar]") {
  check_knobs("threads", forms_on_ranks(3, DType::f32), {{kLength}, {2}, {131}}, 3);
}

TEST_CASE("same bits: tiles whose sums over k are the same", "[seqpar]") {
  check_tiles("threads", 3, DType::f32, kLength, 5);
}

TEST_CASE("same bits: a chunk that is not whole tiles is refused where a tile needs one chunk", "[seqpar]") {
  std::set<std::string> refused;
  for (const Workload& workload : operations_on_ranks(3, DType::f32))
    if (refuses_odd_chunk(workload)) refused.insert(workload.operation);
  CHECK(refused == std::set<std::string>{"all_reduce", "context_attention_backward", "context_attention_forward",
                                         "fused_linear_and_alltoall", "fused_linear_and_reducescatter",
                                         "linear_and_allreduce", "reduce_scatter",
                                         "sequence_parallel_leading_matmul_backward"});
}

TEST_CASE("same bits: schedules and knobs of simulated GPUs", "[seqpar][sim]") {
  for (const char* device : {"sim:sm_80", "sim:sm_90a"})
    check_knobs(device, operations_on_ranks(2, DType::bf16), {{20}, {1}}, 2);
}

TEST_CASE("same bits: the epochs of each operation go on around 2^31, 2^32 and 2^48", "[seqpar]") {
  for (const int bits : {31, 32, 48})
    for (const ConfiguredOp& op : with_every_exchange(operations_on_ranks(3, DType::f32), target_of({})))
      check_epochs(op, "threads", bits, {{70}, {1}, {0}, {70}, {33}, {1}});
}

TEST_CASE("same bits: the same epochs on simulated GPUs", "[seqpar][sim]") {
  for (const int bits : {31, 32, 48})
    for (const Workload& workload : operations_on_ranks(2, DType::bf16))
      check_epochs({workload}, "sim:sm_80", bits, {{9}, {0}, {1}, {9}});
}

TEST_CASE("same bits: nothing is reported under random schedules", "[seqpar][sim][sweep]") {
  for (const ConfiguredOp& of : with_every_exchange(operations_on_ranks(3, DType::bf16), gpu_target("sm_80")))
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      OpOnRanks op(of.workload, "sim:sm_80", {{70}, {2}, {40}, {70}}, of.config);
      CHECK(op.run(late(seed)) == "");
    }
}

TEST_CASE("same bits: every knob of each operation", "[seqpar][slow]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int world_size : {2, 3, 4})
      check_knobs("threads", forms_on_ranks(world_size, dtype), {{kLength}, {2}, {131}}, kAll);
}

TEST_CASE("same bits: every tile whose sums over k are the same", "[seqpar][sim][slow]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_tiles("threads", 3, dtype, kLength, kAll);
    for (const char* device : {"sim:sm_80", "sim:sm_90a"}) check_tiles(device, 2, dtype, 70, 8);
  }
}

TEST_CASE("same bits: every knob of simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : {"sim:sm_80", "sim:sm_90a"})
    for (const int world_size : {2, 3})
      check_knobs(device, forms_on_ranks(world_size, DType::bf16), {{70}, {1}, {20}, {70}}, kAll);
}

TEST_CASE("same bits: rows that are pulled or joined, in processes and on nodes too", "[seqpar]") {
  const std::vector<OpCall> calls{{kLength}, {3}, {0}, {131}};
  std::set<std::string> seen;
  for (const ConfiguredOp& of : with_every_exchange(operations_on_ranks(4, DType::f32), target_of({}))) {
    if (!of.config || !of.config->contains("transfer")) continue;
    seen.insert(of.workload.operation + " " + of.config->get_string("transfer"));
    Config config = with_programs(*of.config, 2);  // two chunks a rank
    config.set("chunk_rows", std::max<int64_t>(64, config.get_int("block_n", 1)));
    const Config pushes = without(std::array{"transfer"}, config);
    OpOnRanks pushed(of.workload, "threads", calls, pushes);
    CHECK(pushed.run(late(0)) == "");
    for (const char* device : {"threads", "processes", "nodes"}) {
      INFO(of.workload.operation << " on " << device << ", " << config.json());
      OpOnRanks op(of.workload, device, calls, config);
      CHECK(op.run(late(7)) == "");
      const bool has_same_bits = op.bytes() == pushed.bytes();
      CHECK(has_same_bits);
    }
  }
  CHECK(seen == std::set<std::string>{"all_gather pull", "broadcast pull", "context_attention_backward pull",
                                      "context_attention_forward pull", "fused_allgather_and_linear join",
                                      "fused_allgather_and_linear pull",
                                      "sequence_parallel_trailing_matmul_backward pull"});
}

TEST_CASE("same bits: sums whose tiles are joined, in processes and on nodes too", "[seqpar]") {
  const std::vector<OpCall> calls{{kLength}, {3}, {0}, {131}};
  std::set<std::string> seen;
  for (const ConfiguredOp& of : with_every_exchange(forms_on_ranks(3, DType::f32), target_of({}))) {
    if (!of.config || of.config->get_string("order", "") != "join") continue;
    seen.insert(of.workload.operation);
    Config rotates = *of.config;
    rotates.set("order", std::string("rotate"));
    OpOnRanks apart(of.workload, "threads", calls, rotates);
    CHECK(apart.run(late(0)) == "");
    for (const char* device : {"threads", "processes", "nodes"}) {
      INFO(of.workload.operation << " on " << device << ", " << of.config->json());
      OpOnRanks op(of.workload, device, calls, of.config);
      CHECK(op.run(late(7)) == "");
      const bool has_same_bits = op.bytes() == apart.bytes();
      CHECK(has_same_bits);
    }
  }
  CHECK(seen == std::set<std::string>{"fused_linear_and_reducescatter", "linear_and_allreduce"});
}

TEST_CASE("same bits: ranks of several threads", "[seqpar]") {
  const std::vector<OpCall> calls{{kLength}, {3}, {0}, {131}};
  for (const ConfiguredOp& of : with_every_exchange(forms_on_ranks(3, DType::f32), target_of({}))) {
    OpOnRanks alone(of.workload, "threads", calls, of.config);
    CHECK(alone.run(late(0)) == "");
    const Config config = with_programs(alone.config(), 2);
    INFO(of.workload.operation << " " << config.json());
    OpOnRanks op(of.workload, "threads", calls, config);
    RankOptions options = late(3);
    options.threads = 3;
    CHECK(op.run(options) == "");
    const bool has_same_bits = op.bytes() == alone.bytes();
    CHECK(has_same_bits);
  }
}

TEST_CASE("same bits: other numbers of ranks, in processes and on nodes too", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes", "nodes"})
    for (const int world_size : {1, 2, 4, 8}) check_runs(device, world_size, DType::f32, 100);
  for (const int world_size : {5, 7, 16}) check_runs("threads", world_size, DType::bf16, 100);
}
