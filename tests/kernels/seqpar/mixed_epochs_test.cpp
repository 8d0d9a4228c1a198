// tests/kernels/seqpar/mixed_epochs_test.cpp -- all operations on one channel, with calls of any length and late ranks.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include "tests/support/collective_run.h"

using namespace seqtile;
using namespace seqtile::testing;

namespace {

struct Operation {
  std::string name;
  autotune::Fields fields;
  std::string reduction = "";
};

std::vector<Operation> all_operations(int world_size) {
  const autotune::Fields row{{"n", int64_t{37}}}, heads{{"heads", int64_t{5}}, {"head_dim", int64_t{12}}},
      product{{"n", int64_t{21}}, {"k", int64_t{24}}};
  autotune::Fields from_last = row;
  from_last.set("root", int64_t{world_size - 1});
  return {{"all_gather", row},
          {"reduce_scatter", row},
          {"all_reduce", row, "one_shot"},
          {"all_reduce", row, "two_shot"},
          {"broadcast", from_last},
          {"to_heads", heads},
          {"to_sequence", heads},
          {"fused_allgather_and_linear", product},
          {"fused_linear_and_reducescatter", product},
          {"linear_and_allreduce", product, "one_shot"},
          {"linear_and_allreduce", product, "two_shot"}};
}

/// Mostly fewer rows than programs, often none or fewer than ranks.
int64_t random_length(std::mt19937& random) { return static_cast<int64_t>(random() % (random() % 8 == 0 ? 130 : 6)); }

/// Now and then one of the ranks comes late.
void straggle(int rank, int epoch) {
  std::mt19937 random(static_cast<uint32_t>(epoch));
  const bool is_late = random() % 16 == 0 && static_cast<int>(random() % 4) == rank;
  if (is_late) std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
}

void check_epochs(const std::string& device, int world_size, size_t num_epochs) {
  const std::vector<Operation> operations = all_operations(world_size);
  std::mt19937 random(static_cast<uint32_t>(world_size));
  std::vector<size_t> order;  // of operations, by epoch
  std::vector<std::vector<int64_t>> lengths(operations.size());
  for (size_t epoch = 0; epoch < num_epochs; ++epoch) {
    order.push_back(random() % operations.size());
    lengths[order.back()].push_back(random_length(random));
  }
  RankOptions options;
  for (const auto& each : lengths)
    for (const int64_t length : each) options.channel.capacity = std::max(options.channel.capacity, length);
  options.device = device, options.world_size = world_size, options.before_launch = straggle;
  std::vector<std::unique_ptr<CollectiveRun>> runs;
  std::vector<std::unique_ptr<ir::Function>> kernels;
  std::vector<const ir::Function*> functions;
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto& [name, fields, reduction] = operations[i];
    REQUIRE(!lengths[i].empty());
    runs.push_back(std::make_unique<CollectiveRun>(name, fields, world_size, DType::f32, reduction, lengths[i]));
    runs.back()->enlarge(options.channel);
    kernels.push_back(runs.back()->kernel(target_of(options)));
    functions.push_back(kernels.back().get());
  }
  std::vector<std::vector<RankCall>> calls(static_cast<size_t>(world_size));
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    std::vector<size_t> next(operations.size());
    for (const size_t operation : order) {
      calls[rank].push_back(runs[operation]->calls()[rank][next[operation]++]);
      calls[rank].back().kernel = operation;
    }
  }
  const RankOutcome outcome = run_ranks(functions, options, calls);
  INFO(device << ", " << world_size << " ranks");
  for (const std::string& error : outcome.errors) CHECK(error == "");
  for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
  for (const uint64_t epoch : outcome.epochs) CHECK(epoch == num_epochs);
  for (const auto& run : runs) {
    INFO(run->name());
    CHECK(difference(*run) == "");
  }
}

}  // namespace

TEST_CASE("mixed epochs: a thousand calls of all operations are exact, whoever is late", "[seqpar]") {
  for (const char* device : {"threads", "processes"}) check_epochs(device, 3, 1000);
  check_epochs("nodes", 3, 200);
}

TEST_CASE("mixed epochs: a thousand calls of all operations for other numbers of ranks", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes", "nodes"})
    for (const int world_size : {2, 4, 8}) check_epochs(device, world_size, 1000);
}
