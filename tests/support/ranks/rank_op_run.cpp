// tests/support/ranks/rank_op_run.cpp -- see rank_op_run.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/rank_op_run.h"

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "autotune/call/call_values.h"
#include "autotune/call_sizes.h"
#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/builder.h"
#include "seqtile/kernel.h"
#include "seqtile/seqpar.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/rank_table.h"

namespace seqtile::testing {

using autotune::ArgRole;
using autotune::Config;
using autotune::OpDef;
using autotune::Workload;
namespace seqpar = kernels::seqpar;

namespace {

const OpDef& definition_of(const Workload& w) { return library_op(w.operation); }

RankOutcome run_binary(KernelBinary binary, const Workload& w, const Config& config,
                       const std::vector<int64_t>& lengths, RankOptions options,
                       const std::vector<std::vector<RankCall>>& calls) {
  const RankTableOp& op = rank_table_op(w.operation);
  options.channel.capacity = *std::ranges::max_element(lengths);
  enlarge(options.channel, w, config);
  const auto flags = std::make_shared<test::FlagRecorder>(op.protocol(config), op.exchange(w, &config), lengths);
  options.with_channel = [&](Channel& channel) { flags->watch(channel); };
  RankOutcome outcome = run_binaries({std::move(binary)}, options, calls);
  outcome.flags = flags;
  return outcome;
}

}  // namespace

std::unique_ptr<ir::Function> rank_kernel(const Workload& w, const Config& config, const Target& target) {
  const OpDef& op = definition_of(w);
  KernelBuilder b(op.name);
  if (target.is_gpu()) schedule_for_gpu(b, config);
  op.build(b, w, config, target);
  return b.finish();
}

void enlarge(ChannelOptions& options, const Workload& w, const Config& config) {
  const ChannelOptions needs =
      seqpar::channel_options(rank_table_op(w.operation).exchange(w, &config), options.capacity);
  options.staging_bytes = std::max(options.staging_bytes, needs.staging_bytes);
  options.flags_per_source = std::max(options.flags_per_source, needs.flags_per_source);
}

RankCall launch_of(const Workload& w, const Config& config, int64_t length) {
  const OpDef& op = definition_of(w);
  RankCall call{{op.grid(w, config)[0].value({&length, 1}), 1, 1}, {}, 1, op.workspaces(w, config), {length}};
  call.num_counters = call.workspaces.back().elements.value({&length, 1});
  call.workspaces.pop_back();
  return call;
}

RankOutcome run_rank_op(const Workload& w, const Config& config, const std::vector<int64_t>& lengths,
                        RankOptions options, const std::vector<std::vector<RankCall>>& calls) {
  options.world_size = seqpar::ranks_of(w).size();
  KernelBinary binary = compiled_for_ranks(*rank_kernel(w, config, target_of(options)), options);
  return run_binary(std::move(binary), w, config, lengths, std::move(options), calls);
}

void require_success(const RankOutcome& outcome) {
  for (const std::string& error : outcome.errors) REQUIRE(error == "");
  for (const auto& record : outcome.records) REQUIRE((record ? record->text() : "") == "");
  REQUIRE(outcome.flags->refusal() == "");
}

AnyRankRun::AnyRankRun(const Workload& workload, Config config, std::vector<int64_t> lengths)
    : workload_(workload), config_(std::move(config)), lengths_(std::move(lengths)) {
  const OpDef& op = definition_of(workload_);
  const autotune::Schema schema = op.schema(workload_);
  calls_.resize(static_cast<size_t>(seqpar::ranks_of(workload_).size()));
  for (const int64_t length : lengths_)
    for (size_t rank = 0; rank < calls_.size(); ++rank) {
      RankCall call = launch_of(workload_, config_, length);
      for (const autotune::ArgSpec& arg : schema.args) {
        if (arg.name == "staging") break;  // the channel's tensors follow
        call.tensors.push_back(make(op, arg, static_cast<int>(rank), length));
      }
      calls_[rank].push_back(std::move(call));
    }
}

RankOutcome AnyRankRun::on(const RankOptions& given) {
  RankOptions options = given;
  options.world_size = seqpar::ranks_of(workload_).size();
  if (!binary_) binary_ = compiled_for_ranks(*rank_kernel(workload_, config_, target_of(options)), options);
  for (Buffer& buffer : buffers_)
    if (!buffer.name.empty()) std::ranges::fill(buffer.bytes, autotune::kPoison);
  return run_binary(*binary_, workload_, config_, lengths_, options, calls_);
}

Tensor AnyRankRun::make(const OpDef& op, const autotune::ArgSpec& arg, int rank, int64_t length) {
  Tensor tensor = autotune::describe_arg(arg, op.schema(workload_), op.on_rank(workload_, rank, length).symbols);
  const bool is_output = arg.role == ArgRole::output;
  Buffer& buffer = buffers_.emplace_back();
  if (is_output) buffer.name = fmt::format("{} of rank {}, length {}", arg.name, rank, length);
  buffer.bytes.assign(autotune::tensor_bytes(tensor) + 64, autotune::kPoison);
  tensor.data = buffer.bytes.data();
  if (!is_output) autotune::fill_default(tensor, arg.role, 7919 * buffers_.size());
  return buffer.tensor = tensor;
}

std::vector<std::byte> AnyRankRun::outputs() const {
  std::vector<std::byte> bytes;
  for (const Buffer& buffer : buffers_)
    if (!buffer.name.empty()) bytes.insert(bytes.end(), buffer.bytes.begin(), buffer.bytes.end());
  return bytes;
}

std::string AnyRankRun::fault() const {
  for (const Buffer& buffer : buffers_)
    for (int64_t i = 0; i < buffer.tensor.num_elements() && !buffer.name.empty(); ++i)
      if (std::isnan(read_element(buffer.tensor, i))) return fmt::format("{}[{}]", buffer.name, i);
  return "";
}

}  // namespace seqtile::testing
