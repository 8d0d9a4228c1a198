// tests/kernels/seqpar/mixed_epochs_test.cpp -- all operations on one channel, with calls of any length and late ranks.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <random>

#include "tests/support/ranks/op_on_ranks.h"
#include "tests/support/ranks/rank_operations.h"

using namespace seqtile;
using namespace seqtile::testing;
using autotune::Config;
using autotune::Workload;

namespace {

/// A call with mostly fewer rows than programs, often with none or fewer than ranks.
OpCall random_call(std::mt19937& random) {
  const auto length = static_cast<int64_t>(random() % (random() % 8 == 0 ? 130 : 6));
  return {length, random() % 3};
}

void check_epochs(const std::string& device, const std::vector<Workload>& workloads, size_t num_epochs,
                  int threads = 1) {
  const auto world_size = static_cast<int>(workloads[0].fields.get_int("world_size"));
  const std::vector<ConfiguredOp> forms = with_every_exchange(workloads, target_of({.device = device}));
  std::mt19937 random(static_cast<uint32_t>(world_size));
  std::vector<size_t> order;  // indices of forms, by epoch
  std::vector<std::vector<OpCall>> calls(forms.size());
  for (size_t epoch = 0; epoch < num_epochs; ++epoch) {
    order.push_back(epoch < forms.size() ? epoch : random() % forms.size());
    calls[order.back()].push_back(random_call(random));
  }
  RankOptions options;
  options.device = device, options.world_size = world_size, options.threads = threads;
  options.before_launch = straggle;
  std::deque<OpOnRanks> ops;
  for (size_t i = 0; i < forms.size(); ++i) {
    const Config config = forms[i].config.value_or(OpOnRanks(forms[i].workload, device, calls[i]).config());
    ops.emplace_back(forms[i].workload, device, calls[i], with_programs(config, threads));
    options.channel.capacity = std::max(options.channel.capacity, ops.back().longest());
  }
  std::vector<std::unique_ptr<ir::Function>> kernels;
  std::vector<const ir::Function*> functions;
  for (const OpOnRanks& op : ops) {
    op.enlarge(options.channel);
    kernels.push_back(op.kernel());
    functions.push_back(kernels.back().get());
  }
  std::vector<std::vector<RankCall>> launches(static_cast<size_t>(world_size));
  for (size_t rank = 0; rank < launches.size(); ++rank) {
    std::vector<size_t> next(ops.size());
    for (const size_t op : order) {
      launches[rank].push_back(ops[op].calls()[rank][next[op]++]);
      launches[rank].back().kernel = op;
    }
  }
  INFO(device << ", " << world_size << " ranks");
  CHECK(problem_of(run_ranks(functions, options, launches), num_epochs) == "");
  for (const OpOnRanks& op : ops) CHECK(op.fault() == "");
}

}  // namespace

TEST_CASE("mixed epochs: a thousand calls of all operations are right, whoever is late", "[seqpar]") {
  check_epochs("threads", operations_on_ranks(3, DType::f32), 1000);
}

TEST_CASE("mixed epochs: calls of all operations on ranks of several threads", "[seqpar]") {
  check_epochs("threads", operations_on_ranks(3, DType::f32), 500, 3);
}

TEST_CASE("mixed epochs: calls of all operations in processes and on nodes", "[seqpar]") {
  check_epochs("processes", operations_on_ranks(3, DType::f32), 500);
  check_epochs("nodes", operations_on_ranks(3, DType::f32), 200);
}

TEST_CASE("mixed epochs: a thousand calls of all operations in all of their forms", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes", "nodes"})
    for (const int world_size : {2, 3, 4, 8})
      for (const DType dtype : {DType::f32, DType::bf16}) check_epochs(device, forms_on_ranks(world_size, dtype), 1000);
}
