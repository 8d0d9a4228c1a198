// tests/kernels/seqpar/exchange/rank_protocol_test.cpp -- every operation over ranks keeps to its protocol, on
// simulated GPUs.
// SPDX-License-Identifier: Apache-2.0
//
// One body checks all operations. Under any schedule the machine reports nothing, flags are a path of the protocol's
// model, and outputs have the same bits; the machine reports a weaker order or scope anywhere. Each operation's own
// tests check that the bits are right.
#include <algorithm>

#include <catch2/catch.hpp>

#include "seqtile/error.h"
#include "tests/support/kernels/kernel_table.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/rank_table.h"

using namespace seqtile;
using namespace seqtile::testing;
using autotune::Config;
using autotune::Workload;

namespace {

struct Call {
  Workload workload;
  Config config;
};

/// Makes chunks as short as the configuration's tiles allow, so that a rank has several.
void shorten_chunks(Config& config) {
  if (!config.values().contains("chunk_rows")) return;
  int64_t rows = 16;
  const bool is_product = config.values().contains("block_k");  // other operations have only blocks of rows
  for (const char* name : {"block_m", "block", "wgrad_block_k", is_product ? "block_m" : "block_n"})
    if (config.values().contains(name)) rows = std::max(rows, config.get_int(name));
  config.set("chunk_rows", rows);
}

enum class Which { some, all };

/// All cases of the operation, or the first one in each direction, with the default configuration in each form of a
/// reduction.
std::vector<Call> calls_of(std::string_view operation, int world_size, const char* device, Which which) {
  std::vector<Call> calls;
  std::vector<std::string> directions;
  for (const CaseGroup& group : rank_table())
    for (const TableCase& c : group.cases) {
      if (c.kernel.operation != operation) continue;
      const std::string direction = c.kernel.fields.get_string("direction", "");
      if (which == Which::some && std::ranges::find(directions, direction) != directions.end()) continue;
      directions.push_back(direction);
      KernelCase on_device = c.kernel;
      on_device.fields.set("world_size", int64_t{world_size});
      on_device.fields.set("fabric", std::string(device));
      const Workload w = normalized(on_device, DType::bf16, 1);
      Config config = library_op(w.operation).default_config(w, 16, target_of({.device = device}));
      shorten_chunks(config);
      const bool has_forms = config.values().contains("reduction");
      for (const char* form : has_forms ? std::vector{"one_shot", "two_shot"} : std::vector{""}) {
        if (has_forms) config.set("reduction", std::string(form));
        calls.push_back({w, config});
      }
    }
  REQUIRE(!calls.empty());
  return calls;
}

void check_schedules(const Call& call, const char* device, uint32_t num_seeds) {
  INFO(device << ", " << call.workload.json() << " " << call.config.json());
  AnyRankRun run(call.workload, call.config, {70, 2, 0, 131});
  std::vector<std::byte> bits;
  for (uint32_t seed = 0; seed < num_seeds; ++seed) {
    const RankOutcome outcome = run.on({.device = device, .seed = seed});
    require_success(outcome);
    REQUIRE(run.fault() == "");
    REQUIRE(outcome.flags->events().size() >= 2 * run.calls().size() * run.calls()[0].size());
    if (seed == 0) bits = run.outputs();
    REQUIRE((run.outputs() == bits));
  }
}

struct Fault {
  const char *from, *to;
};

constexpr Fault kFaults[] = {{"st.release.sys.global.b64", "st.relaxed.sys.global.b64"},
                             {"st.release.sys.global.b64", "st.release.gpu.global.b64"},
                             {"st.release.sys.global.b64", "st.global.b64"},
                             {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
                             {"ld.acquire.sys.global.u64", "ld.acquire.gpu.global.u64"},
                             {"ld.acquire.sys.global.u64", "ld.volatile.global.u64"},
                             {"atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32"}};

/// The machine's report on a kernel with each `from` replaced by `to`.
std::string report_of(AnyRankRun& run, const char* device, const Fault& fault) {
  const std::string from = fault.from, to = fault.to;
  RankOptions options{.device = device};
  options.edit_ptx = [&](std::string text) {
    size_t count = 0;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()), ++count)
      text.replace(at, from.size(), to);
    if (count == 0) throw std::logic_error("the text has no " + from);
    return text;
  };
  try {
    run.on(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void check_faults(const Call& call, const char* device) {
  AnyRankRun run(call.workload, call.config, {64, 1, 40, 64});
  for (const Fault& fault : kFaults) {
    INFO(device << ", " << call.workload.json() << " " << call.config.json() << ": " << fault.from << " -> "
                << fault.to);
    CHECK_THAT(report_of(run, device, fault), Catch::Contains("race") || Catch::Contains("scope"));
  }
}

}  // namespace

TEST_CASE("flag trace: under random schedules every operation keeps to the model, with the same bits",
          "[seqpar][sim][sweep]") {
  for (const auto& op : rank_table_ops())
    for (const int world_size : {2, 3})
      for (const Call& call : calls_of(op.name, world_size, "sim:sm_80", Which::some))
        check_schedules(call, "sim:sm_80", 3);
}

TEST_CASE("flag trace: a weaker order or scope of any operation's flags or counter is reported", "[seqpar][sim]") {
  for (const auto& op : rank_table_ops())
    for (const Call& call : calls_of(op.name, 2, "sim:sm_80", Which::some)) check_faults(call, "sim:sm_80");
}

TEST_CASE("flag trace: every case on every kind of simulated ranks", "[seqpar][sim][slow]") {
  for (const auto& op : rank_table_ops())
    for (const char* device : kSimulatedRanks)
      for (const int world_size : {2, 3, 4})
        for (const Call& call : calls_of(op.name, world_size, device, Which::all)) check_schedules(call, device, 10);
}
