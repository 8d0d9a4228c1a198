// tools/cli/serve/layer_runner.cpp -- see layer_runner.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/serve/layer_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "autotune/call/call_values.h"
#include "autotune/call/device_mirror.h"
#include "autotune/call_sizes.h"
#include "jit/base/assert.h"
#include "seqtile/model.h"
#include "tools/cli/ranks/rank_reference.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kSampledRows = 2;
constexpr size_t kFailuresKept = 5;

int64_t symbol_value(const std::string& symbol, const ServedOperation& operation, const PlannedCall& call) {
  if (symbol == "length") return operation.length_in(call);
  if (symbol == "own_rows") return operation.own_rows_in(call);
  if (symbol == "kv_tokens") return call.kv;
  if (symbol == "batch") return 1;
  return call.tokens;
}

}  // namespace

void* LayerRunner::Buffer::data() {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return reinterpret_cast<void*>((address + kAlignment - 1) & ~uintptr_t{kAlignment - 1});
}

size_t LayerRunner::Buffer::size() const { return bytes.empty() ? 0 : bytes.size() - kAlignment; }

bool LayerRunner::Buffer::resize(size_t bytes_needed) {
  if (size() >= bytes_needed) return false;
  bytes = std::vector<std::byte>(bytes_needed + kAlignment);
  return true;
}

LayerRunner::LayerRunner(const autotune::Registry& registry, const models::Model& model,
                         std::span<const ServedOperation> operations, Device& device, CallClock& clock)
    : registry_(registry), model_(model), operations_(operations), device_(device), clock_(&clock) {
  add_stages(models::distinct_steps(model_));
}

LayerRunner::LayerRunner(const autotune::Registry& registry, const models::Model& model,
                         std::span<const ServedOperation> operations, Channel& channel)
    : registry_(registry),
      model_(model),
      operations_(operations),
      device_(channel.fabric().device()),
      channel_(&channel),
      random_(static_cast<uint64_t>(1 + channel.fabric().rank())) {
  add_stages(models::rank_steps(model_));
  if (device_.memory().is_host()) rank_clock_.emplace(channel);
}

/// Adds the stages of the layer. Operations behind the last layer take no part, because nothing here makes their input.
void LayerRunner::add_stages(const std::vector<models::Step>& steps) {
  std::set<std::string> last;
  for (const models::Step& step : models::exit_steps(model_)) last.insert(step.label);
  for (const models::Step& step : steps)
    if (!last.contains(step.label)) add_stage(step);
}

void LayerRunner::add_stage(const models::Step& step) {
  const auto found = std::ranges::find(operations_, step.label, &ServedOperation::label);
  SEQTILE_ASSERT(found != operations_.end());
  const autotune::OpDef& op = registry_.find(found->workload.operation);
  Stage stage{&*found, &op, op.schema(found->workload), {}, step.cached};
  // Attention of another kind of layers: the same calls run both kinds, so that each output has a buffer of its own.
  const bool is_other_kind =
      found->role == Role::attention && std::ranges::any_of(stages_, [&](const Stage& other) {
        return other.operation->role == Role::attention && other.operation->phase == found->phase;
      });
  for (const autotune::ArgSpec& arg : stage.schema.args) {
    const auto wire = std::ranges::find(step.wires, arg.name, &models::Wire::argument);
    const bool is_own = is_other_kind && arg.role == autotune::ArgRole::output;
    const bool is_shared = wire != step.wires.end() && !wire->buffer.empty() && !is_own;
    stage.buffers.push_back(is_shared ? wire->buffer : step.label + "." + arg.name);
  }
  stages_.push_back(std::move(stage));
}

void LayerRunner::run(const PlannedCall& call) {
  compute(call);
  meet_ranks();
  if (channel_) channel_->check();
  for (const Stage& stage : stages_)
    if (const auto done = problems_.find(stage.operation->label); done != problems_.end()) verify(stage, done->second);
  ++report_.layers;
}

void LayerRunner::compute(const PlannedCall& call) {
  problems_.clear();
  for (const Stage& stage : stages_)
    if (stage.operation->length_in(call) > 0) problems_.emplace(stage.operation->label, bind(stage, call));
  if (rank_clock_) rank_clock_->begin_group();
  meet_ranks();
  const auto start = std::chrono::steady_clock::now();
  for (const Stage& stage : stages_) {
    const auto problem = problems_.find(stage.operation->label);
    if (problem == problems_.end()) continue;
    for (const models::CachedRows& cached : stage.cached) extend_cache(cached, call);
    call_stage(stage, problem->second);
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  if (channel_) report_.layer_us.add(time.count());
  if (!rank_clock_) return;
  for (const double us : rank_clock_->call_us()) report_.call_us.add(us);
}

void LayerRunner::meet_ranks() {
  if (channel_) channel_->fabric().all_gather("");
}

/// Copies the keys (or values) of the new tokens behind the ones of earlier calls.
void LayerRunner::extend_cache(const models::CachedRows& cached, const PlannedCall& call) {
  Buffer& from = buffers_[cached.rows];
  Buffer& to = buffers_[cached.cache];
  const size_t end = static_cast<size_t>(call.kv) * cache_row_bytes_;
  const size_t new_bytes = static_cast<size_t>(call.tokens) * cache_row_bytes_;
  std::memcpy(static_cast<std::byte*>(to.data()) + end - new_bytes, from.data(), new_bytes);
}

void LayerRunner::bind_argument(const Stage& stage, size_t arg, autotune::Problem& problem, const PlannedCall& call) {
  const autotune::ArgSpec& spec = stage.schema.args[arg];
  Tensor& tensor = problem.tensors[arg];
  const std::string& name = stage.buffers[arg];
  Buffer& buffer = buffers_[name];
  const bool has_grown = buffer.resize(std::max<size_t>(1, autotune::tensor_bytes(tensor)));
  tensor.data = buffer.data();
  if (spec.dtype == DType::i32) fill_indices(name, tensor, call);
  if (std::ranges::count(stage.cached, name, &models::CachedRows::cache)) {
    cache_row_bytes_ = static_cast<size_t>(tensor.strides[0] * dtype_bytes(spec.dtype));
    if (has_grown) autotune::fill_repeating(tensor, 1, random_());  // stand for the keys and values of earlier calls
  }
  if (spec.role == autotune::ArgRole::weight && has_grown) autotune::fill_input(*stage.op, problem, arg, random_());
}

void LayerRunner::fill_indices(const std::string& name, const Tensor& tensor, const PlannedCall& call) {
  auto* values = static_cast<int32_t*>(tensor.data);
  for (int64_t i = 0; tensor.rank == 1 && i < tensor.sizes[0]; ++i) {
    if (name == "positions") values[i] = static_cast<int32_t>(call.kv - call.tokens + i);
    else if (name == "q_start") values[i] = static_cast<int32_t>(i * call.tokens);
    else if (name == "kv_len") values[i] = static_cast<int32_t>(call.kv);
    else if (name == "kv_start") values[i] = 0;
  }
  if (name == "ids") {
    const int64_t vocab = stages_.front().operation->workload.fields.get_int("vocab");
    fill_uniform_int(tensor, 0, vocab - 1, random_());
  }
  for (const models::LayerKind& kind : model_.kinds)
    if (kind.has_rope && name == models::rope_table_buffer(kind)) models::fill_rope_table(kind.rope, call.kv, tensor);
}

autotune::Problem LayerRunner::bind(const Stage& stage, const PlannedCall& call) {
  autotune::Problem problem{&stage.operation->workload, &stage.schema, {}, {}};
  for (const std::string& symbol : stage.schema.symbols)
    problem.symbols.push_back(symbol_value(symbol, *stage.operation, call));
  problem.tensors = autotune::describe_args(stage.schema, problem.symbols);
  for (size_t i = 0; i < problem.tensors.size(); ++i)
    if (!is_of_channel(stage.schema.args[i])) bind_argument(stage, i, problem, call);
  return problem;
}

void LayerRunner::call_stage(const Stage& stage, const autotune::Problem& problem) {
  const ServedOperation& operation = *stage.operation;
  autotune::DeviceMirror mirror(device_);
  std::vector<Tensor> own;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    if (is_of_channel(stage.schema.args[i])) continue;
    mirror.add(buffers_[stage.buffers[i]].all(), stage.schema.args[i].name);
    own.push_back(problem.tensors[i]);
  }
  mirror.upload();
  std::vector<Tensor> tensors = mirror.at(own);
  if (operation.op_id >= 0) {
    // Simulated GPUs start when all of them are waited for, so that a GPU ahead of the others would wait in vain.
    if (!device_.memory().is_host()) meet_ranks();
    for (const Tensor& tensor : channel_->tensors()) tensors.push_back(tensor);
    if (rank_clock_) rank_clock_->begin_call();
    operation.handle(tensors, problem.symbols[0], {&operation.op_id, 1});
  } else {
    if (clock_) clock_->begin_call();
    operation.handle(tensors, problem.symbols[0]);
  }
  if (const double us = clock_ ? clock_->first_program_us() : -1; us >= 0) report_.call_us.add(us);
  mirror.download();
  ++report_.executed;
}

std::vector<std::vector<double>> LayerRunner::reference(const Stage& stage, const autotune::Problem& problem,
                                                        std::span<const int64_t> rows) {
  if (stage.operation->op_id >= 0) return rank_reference(registry_, problem, channel_->fabric(), rows);
  std::vector<std::vector<double>> wanted;
  stage.op->reference(problem, rows, wanted);
  return wanted;
}

void LayerRunner::verify(const Stage& stage, const autotune::Problem& problem) {
  std::vector<size_t> outputs;
  for (size_t i = 0; i < stage.schema.args.size(); ++i)
    if (stage.schema.args[i].role == autotune::ArgRole::output) outputs.push_back(i);
  const int64_t num_rows = problem.tensors[outputs[0]].sizes[0];
  std::vector<int64_t> rows;  // empty for a rank that owns no rows
  if (num_rows > 0) rows.push_back(num_rows - 1);
  while (!rows.empty() && rows.size() < kSampledRows && static_cast<int64_t>(rows.size()) < num_rows)
    rows.push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(num_rows - 1)));
  const std::vector<std::vector<double>> wanted = reference(stage, problem, rows);

  const auto tolerance = stage.op->tolerance(stage.operation->workload, problem.symbols);
  autotune::Difference worst;
  for (size_t o = 0; o < outputs.size(); ++o) {
    std::span<const double> want = wanted[o];
    for (const int64_t row : rows) {
      const std::vector<double> got = read_row(problem.tensors[outputs[o]], row);
      worst.add(autotune::compare(got, want.first(got.size()), tolerance));
      want = want.subspan(got.size());
    }
  }
  report_.max_rel_err = std::max(report_.max_rel_err, worst.relative);
  report_.verified += worst.is_within();
  if (!worst.is_within() && report_.failures.size() < kFailuresKept)
    report_.failures.push_back(fmt::format("{}, length {}: an element is off by {:.3g} of its size",
                                           stage.operation->label, problem.symbols[0], worst.relative));
}

}  // namespace seqtile::cli
