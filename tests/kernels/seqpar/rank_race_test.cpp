// tests/kernels/seqpar/rank_race_test.cpp -- every operation that communicates is timed on all of its ranks.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/rank_race.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>

#include "jit/compiler.h"
#include "kernels/registry.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

Fields fields_of(const std::string& operation) {
  const auto i = [](int64_t value) { return FieldValue(value); };
  if (operation.starts_with("context_attention"))
    return {{"heads", i(4)}, {"kv_heads", i(2)}, {"head_dim", i(16)}, {"layout", std::string("zigzag")}};
  if (operation == "fused_linear_and_alltoall")
    return {{"heads", i(5)}, {"kv_heads", i(5)}, {"head_dim", i(16)}, {"k", i(40)}};
  if (operation == "fused_alltoall_and_linear") return {{"heads", i(5)}, {"head_dim", i(16)}, {"n", i(40)}};
  if (operation == "all_to_all") return {{"heads", i(5)}, {"head_dim", i(16)}};
  if (operation == "fused_allgather_and_linear") return {{"n", i(40)}, {"n2", i(24)}, {"k", i(32)}};
  if (operation == "fused_linear_and_reducescatter") return {{"n", i(40)}, {"k", i(32)}, {"norm", i(1)}};
  if (operation == "linear_and_allreduce" || operation.ends_with("matmul_backward"))
    return {{"n", i(40)}, {"k", i(32)}};
  return {{"n", i(40)}};
}

}  // namespace

TEST_CASE("rank race: every operation that communicates, on threads and in processes", "[seqpar]") {
  const Registry registry = kernels::make_registry();
  const auto device = make_cpu_device(1);
  const Target& target = device->target();
  int num_operations = 0;
  for (const auto& op : registry.ops()) {
    if (!op->on_rank) continue;
    ++num_operations;
    for (const auto& [fabric, length] : {std::pair("threads", int64_t{50}), std::pair("processes", int64_t{2})}) {
      Fields fields = fields_of(op->name);
      fields.set("world_size", int64_t{3});  // of two rows some rank has none
      fields.set("fabric", std::string(fabric));
      const Workload workload = op->normalize({op->name, DType::f32, 1, fields});
      const Config config = op->default_config(workload, length, target);
      const LoadedCandidate candidate{config,
                                      device->load(compile(*build_kernel(*op, workload, config, target), target)),
                                      op->grid(workload, config), op->workspaces(workload, config)};
      const LoadedCandidate* racing[] = {&candidate, &candidate};
      INFO(op->name << ", " << fabric << ", length " << length);
      int64_t current = 0;
      for (const Series& one : race_ranks({*op, workload, racing, {length, 3, 3, 5, false, true}, false, 20}, &current))
        CHECK(one.us.size() == 3);
    }
  }
  CHECK(num_operations == 15);
}
