// tests/support/ranks/op_on_ranks.cpp -- see op_on_ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/op_on_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "autotune/call/call_values.h"
#include "jit/abi/channel_block.h"
#include "jit/base/tensor_runs.h"
#include "kernels/seqpar/exchange/identity.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/abi.h"
#include "seqtile/seqpar.h"
#include "tests/support/ranks/rank_operations.h"
#include "tests/support/ranks/rank_tensors.h"

namespace seqtile::testing {

using autotune::ArgRole;
using autotune::Workload;
namespace seqpar = kernels::seqpar;

namespace {

/// True if the ranks' x are not parts of one tensor: they are summed up, or one of them is sent.
bool has_own_x(const Workload& w) {
  return w.operation == "reduce_scatter" || w.operation == "all_reduce" || w.operation == "broadcast";
}

Workload on(const std::string& device, Workload w) {
  w.fields.set("fabric", device.find(':') == std::string::npos ? "threads" : device);
  return w;
}

/// The workload on one rank that has the shares of all ranks.
Workload whole(const Workload& workload) {
  Workload w = on("threads", workload);
  const autotune::Fields common = seqpar::common_arguments(w, library().find(w.operation).shares);
  const autotune::Fields fields = w.fields;
  for (const auto& [name, value] : fields.values())
    if (!common.contains(name)) w.fields.set(name, fields.get_int(name) * workload.fields.get_int("world_size"));
  w.fields.set("world_size", 1);
  if (w.fields.contains("root")) w.fields.set("root", 0);
  return w;
}

/// Clears the rows of a call without rows. The sums over no rows equal those over one row of zeros.
void clear_rows(const autotune::Problem& problem) {
  for (size_t arg = 0; problem.schema->args[arg].name != "staging"; ++arg)
    if (!problem.schema->args[arg].dims[0].symbol.empty())
      for_each_run_bytes(problem.tensors[arg], [](std::span<std::byte> run) { std::ranges::fill(run, std::byte{0}); });
}

void add_to(std::vector<std::vector<double>>& sums, const std::vector<std::vector<double>>& terms) {
  if (sums.empty()) sums.resize(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    sums[i].resize(terms[i].size());
    for (size_t e = 0; e < terms[i].size(); ++e) sums[i][e] += terms[i][e];
  }
}

}  // namespace

OpOnRanks::OpOnRanks(const Workload& workload, const std::string& device, std::vector<OpCall> calls,
                     std::optional<autotune::Config> config)
    : op_(library().find(workload.operation)),
      device_(device),
      workload_(on(device, workload)),
      whole_workload_(whole(workload)),
      schema_(op_.schema(workload_)),
      world_size_(static_cast<int>(workload_.fields.get_int("world_size"))),
      target_(target_of({.device = device})),
      order_(std::move(calls)),
      config_(config ? *config : op_.default_config(workload_, std::max<int64_t>(longest(), 1), target_)),
      calls_(static_cast<size_t>(world_size_)),
      outputs_(static_cast<size_t>(world_size_)) {
  for (const OpCall& call : order_)
    if (!wholes_.contains(call)) wholes_.emplace(call, whole_of(call));
  for (int rank = 0; rank < world_size_; ++rank)
    for (const OpCall& call : order_) add(rank, call);
}

int64_t OpOnRanks::longest() const { return std::ranges::max_element(order_, {}, &OpCall::length)->length; }

OpOnRanks::Whole OpOnRanks::whole_of(const OpCall& call) const {
  const int64_t length = std::max<int64_t>(call.length, 1);
  Whole result;
  for (int i = 0; i < (has_own_x(workload_) ? world_size_ : 1); ++i)
    result.calls.push_back(std::make_unique<GuardedCall>(
        op_, whole_workload_, op_.symbols(whole_workload_, length),
        1000 * call.seed + 100 * static_cast<uint64_t>(i) + 10000 * static_cast<uint64_t>(call.length)));
  if (call.length == 0) clear_rows(result.calls[0]->problem());
  const std::vector<int64_t> rows = result.calls[0]->sample_rows(std::numeric_limits<int64_t>::max());
  if (workload_.operation == "broadcast")
    result.wanted = result.calls[static_cast<size_t>(workload_.fields.get_int("root"))]->want(rows);
  else
    for (const auto& each : result.calls) add_to(result.wanted, each->want(rows));
  return result;
}

const Tensor& OpOnRanks::whole_tensor(const OpCall& call, int rank, size_t arg) const {
  const auto& calls = wholes_.at(call).calls;
  return calls[calls.size() > 1 ? static_cast<size_t>(rank) : 0]->problem().tensors[arg];
}

Tensor OpOnRanks::part(int rank, size_t arg, int64_t length, void* data) const {
  return rank_tensor(schema_, schema_.args[arg], op_.on_rank(workload_, rank, length).symbols, data);
}

template <class Visit>
void OpOnRanks::for_each_place(int rank, const OpCall& call, size_t arg, const Tensor& tensor,
                               const Visit& visit) const {
  const Tensor& all = whole_tensor(call, rank, arg);
  const bool has_own_rows = schema_.args[arg].dims[0].symbol == "own_rows";
  int64_t first[2] = {0, 0};
  for (int d = has_own_rows ? 1 : 0; d < std::min(tensor.rank, 2); ++d)
    for (int before = 0; before < rank && tensor.sizes[d] != all.sizes[d]; ++before)
      first[d] += part(before, arg, call.length, nullptr).sizes[d];
  const int64_t columns = tensor.rank > 1 && tensor.sizes[0] > 0 ? tensor.num_elements() / tensor.sizes[0] : 1;
  for (int64_t row = 0; row < tensor.sizes[0]; ++row) {
    const int64_t place =
        has_own_rows ? seqpar::position_of_row(seqpar::layout_of(workload_), rank, row, call.length, world_size_)
                     : first[0] + row;
    for (int64_t column = 0; column < columns; ++column)
      visit(row * tensor.strides[0] + column, place, first[1] + column);
  }
}

void OpOnRanks::add(int rank, const OpCall& call) {
  auto& inputs = inputs_[{rank, call}];
  const bool is_new = inputs.empty();
  const autotune::RankCall on_rank = op_.on_rank(workload_, rank, call.length);
  RankCall result;
  std::vector<Output> outputs;
  for (size_t arg = 0; schema_.args[arg].name != "staging"; ++arg) {  // the channel's tensors follow
    Tensor tensor = rank_tensor(schema_, schema_.args[arg], on_rank.symbols, nullptr);
    if (schema_.args[arg].role == ArgRole::output) {
      outputs.push_back({arg, tensor, std::vector(bytes_of(tensor) + 1, autotune::kPoison)});
      tensor.data = outputs.back().bytes.data();
    } else {
      if (is_new) inputs.emplace_back(bytes_of(tensor) + 1, autotune::kPoison);
      tensor.data = inputs[result.tensors.size() - outputs.size()].data();
      const Tensor& all = whole_tensor(call, rank, arg);
      if (is_new)
        for_each_place(rank, call, arg, tensor, [&](int64_t offset, int64_t row, int64_t column) {
          const int64_t from = row * all.strides[0] + (all.rank > 1 ? column * all.strides[1] : 0);
          write_element(tensor, offset, read_element(all, from));
        });
    }
    result.tensors.push_back(tensor);
  }
  const auto grid = op_.grid(workload_, config_);
  result.grid = {grid[0].value(on_rank.symbols), grid[1].value(on_rank.symbols), grid[2].value(on_rank.symbols)};
  result.workspaces = op_.workspaces(workload_, config_);
  result.num_counters = result.workspaces.back().elements.value(on_rank.symbols);
  result.workspaces.pop_back();
  result.symbols = on_rank.symbols;
  calls_[static_cast<size_t>(rank)].push_back(std::move(result));
  outputs_[static_cast<size_t>(rank)].push_back(std::move(outputs));
}

std::unique_ptr<ir::Function> OpOnRanks::kernel() const {
  KernelBuilder b(op_.name);
  if (target_.is_gpu()) schedule_for_gpu(b, config_);
  op_.build(b, workload_, config_, target_);
  return b.finish();
}

void OpOnRanks::enlarge(ChannelOptions& options) const {
  const ChannelOptions needs = op_.on_rank(workload_, 0, options.capacity).channel;
  options.staging_bytes = std::max(options.staging_bytes, needs.staging_bytes);
  options.flags_per_source = std::max(options.flags_per_source, needs.flags_per_source);
}

std::string OpOnRanks::run(RankOptions options) {
  options.device = device_, options.world_size = world_size_;
  options.channel.capacity = longest();
  enlarge(options.channel);
  const RankOutcome outcome = run_ranks(*kernel(), options, calls_);
  const std::string problem = problem_of(outcome, options.channel.first_epoch + order_.size());
  return problem.empty() ? fault() : problem;
}

std::string OpOnRanks::fault_of(int rank, const OpCall& call, const Output& output,
                                const std::vector<double>& wanted) const {
  const std::string& name = schema_.args[output.arg].name;
  if (const std::string fault = testing::fault_of(name, output.tensor, output.bytes); !fault.empty()) return fault;
  const Tensor& all = whole_tensor(call, rank, output.arg);
  const int64_t columns = all.rank > 1 ? all.num_elements() / all.sizes[0] : 1;
  const auto tolerance = op_.tolerance(workload_, op_.symbols(whole_workload_, call.length));
  // The tolerance is for values of order 1, but intermediate sums are rounded at the size of the largest value.
  double largest = 1;
  for (const double want : wanted) largest = std::max(largest, std::abs(want));
  Tensor tensor = output.tensor;
  tensor.data = const_cast<std::byte*>(output.bytes.data());
  std::vector<double> got, want;
  std::vector<std::pair<int64_t, int64_t>> places;
  for_each_place(rank, call, output.arg, tensor, [&](int64_t offset, int64_t row, int64_t column) {
    got.push_back(read_element(tensor, offset));
    want.push_back(wanted.at(static_cast<size_t>(row * columns + column)));
    places.emplace_back(row, column);
  });
  const autotune::Difference worst = autotune::compare(got, want, {tolerance.absolute * largest, tolerance.relative});
  if (worst.is_within()) return "";
  const auto [row, column] = places[worst.element];
  return fmt::format("{}[{}, {}] of all rows and columns is {}, not {}, {} tolerances apart", name, row, column,
                     worst.got, worst.want, worst.tolerances);
}

std::string OpOnRanks::fault() const {
  for (size_t rank = 0; rank < outputs_.size(); ++rank) {
    std::map<OpCall, size_t> firsts;
    for (size_t launch = 0; launch < order_.size(); ++launch) {
      const OpCall& call = order_[launch];
      const size_t first = firsts.emplace(call, launch).first->second;
      const auto& wanted = wholes_.at(call).wanted;
      for (size_t i = 0; i < outputs_[rank][launch].size(); ++i) {
        const Output& output = outputs_[rank][launch][i];
        std::string fault;
        if (first == launch) fault = fault_of(static_cast<int>(rank), call, output, wanted[i]);
        else if (output.bytes != outputs_[rank][first][i].bytes)
          fault = fmt::format("{} has other bits than in launch {}", schema_.args[output.arg].name, first);
        if (!fault.empty())
          return fmt::format("{} {}, {}: rank {}, launch {}, length {}: {}", op_.name, workload_.fields.json(),
                             config_.json(), rank, launch, call.length, fault);
      }
    }
  }
  return "";
}

std::vector<std::vector<std::byte>> OpOnRanks::bytes() const {
  std::vector<std::vector<std::byte>> result;
  for (const auto& rank : outputs_)
    for (const auto& launch : rank)
      for (const Output& output : launch) result.push_back(output.bytes);
  return result;
}

void straggle(int rank, int epoch) {
  std::mt19937 random(static_cast<uint32_t>(epoch));
  const bool is_late = random() % 16 == 0 && static_cast<int>(random() % 4) == rank;
  if (is_late) std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
}

std::string problem_of(const RankOutcome& outcome, uint64_t last_epoch) {
  for (const std::string& error : outcome.errors)
    if (!error.empty()) return error;
  for (const auto& record : outcome.records)
    if (record) return record->text();
  for (const uint64_t epoch : outcome.epochs)
    if (epoch != (last_epoch & channel::kEpochMask)) return fmt::format("epoch {}, not {}", epoch, last_epoch);
  return "";
}

}  // namespace seqtile::testing
