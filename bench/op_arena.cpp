// bench/op_arena.cpp -- see op_arena.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/op_arena.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "autotune/call/call_values.h"
#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "bench/stats.h"
#include "seqtile/error.h"
#include "seqtile/op.h"

namespace seqtile::bench {
namespace {

constexpr double kPeerTolerances = 8;

/// Our implementation: a handle called with the arena's tensors.
class OurContestant : public Contestant {
 public:
  OurContestant(TunedHandle tuned, std::vector<std::vector<Tensor>> copies, int64_t length)
      : tuned_(std::move(tuned)), copies_(std::move(copies)), length_(length) {}
  void run(int copy) override { tuned_.handle(copies_[copy], length_); }

 private:
  TunedHandle tuned_;
  std::vector<std::vector<Tensor>> copies_;
  int64_t length_;
};

/// Adds the tuner's time, and a remark if the race differs from it: one of the two was disturbed.
void compare_with_tuner(const std::vector<cache::Record>& records, int64_t length, Result& ours) {
  const autotune::Bucket bucket = autotune::bucket(length);
  const auto record = std::ranges::find_if(
      records, [&](const cache::Record& r) { return r.lo == bucket.lo && r.hi == bucket.hi && r.median_us > 0; });
  if (record == records.end() || ours.seconds.empty()) return;
  ours.counters["tuner_us"] = record->median_us;
  const std::string difference =
      tuner_difference(1e6 * median(ours.seconds), record->median_us, static_cast<double>(length) / bucket.hi);
  if (!difference.empty()) ours.label += (ours.label.empty() ? "" : "; ") + difference;
}

}  // namespace

OpArena::OpArena(Environment& environment, const autotune::Workload& workload, int64_t length, EnterOther enter_other)
    : environment_(environment),
      op_(environment.registry().find(workload.operation)),
      workload_(op_.normalize(workload)),
      length_(length),
      schema_(op_.schema(workload_)),
      enter_other_(std::move(enter_other)) {
  problem_.workload = &workload_;
  problem_.schema = &schema_;
  problem_.symbols = autotune::call_symbols(op_, workload_, schema_, length_);
  const int count = num_copies(static_cast<int64_t>(autotune::call_bytes(op_, workload_, length_)));
  const std::vector<Tensor> described = autotune::describe_args(schema_, problem_.symbols);
  for (int copy = 0; copy < count; ++copy) {
    auto& operands = copies_.emplace_back();
    for (const Tensor& tensor : described)
      operands.emplace_back(tensor.dtype, std::vector(tensor.sizes.begin(), tensor.sizes.begin() + tensor.rank));
  }
  for (const Operand& operand : copies_[0]) problem_.tensors.push_back(operand.tensor());
  for (size_t arg = 0; arg < schema_.args.size(); ++arg) fill(arg);
  compute_reference();
}

void OpArena::fill(size_t arg) {
  const auto& spec = schema_.args[arg];
  if (spec.role == autotune::ArgRole::output) return;
  autotune::fill_input(op_, problem_, arg, 1);
  const Operand& first = copies_[0][arg];
  for (size_t copy = 1; copy < copies_.size(); ++copy) {
    std::memcpy(copies_[copy][arg].as<char>(), first.as<char>(), first.bytes());
  }
}

void OpArena::compute_reference() {
  for (size_t arg = 0; arg < schema_.args.size(); ++arg) {
    if (schema_.args[arg].role != autotune::ArgRole::output) continue;
    const int64_t rows = problem_.tensors[arg].sizes[0];
    rows_ = {0, rows / 2, rows - 1};
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
    break;
  }
  op_.reference(problem_, rows_, reference_);
}

void OpArena::poison(int copy) {
  for (size_t arg = 0; arg < schema_.args.size(); ++arg) {
    if (schema_.args[arg].role == autotune::ArgRole::output) copies_[copy][arg].poison();
  }
}

double OpArena::max_error(int copy) {
  const auto tolerance = op_.tolerance(workload_, problem_.symbols);
  // Peers compute only the first output. The tuner and the tests verify all of our outputs.
  const auto output = std::ranges::find(schema_.args, autotune::ArgRole::output, &autotune::ArgSpec::role);
  const Tensor& tensor = copies_[copy][static_cast<size_t>(output - schema_.args.begin())].tensor();
  autotune::Difference worst;
  std::span<const double> want = reference_[0];
  for (const int64_t row : rows_) {
    const std::vector<double> got = read_row(tensor, row);
    worst.add(autotune::compare(got, want.first(got.size()), tolerance));
    want = want.subspan(got.size());
  }
  return worst.tolerances;
}

double OpArena::error_limit(const std::string& implementation) const {
  return implementation.rfind("seqtile", 0) == 0 ? 1 : kPeerTolerances;
}

const Operand& OpArena::operand(int copy, std::string_view name) const {
  for (size_t arg = 0; arg < schema_.args.size(); ++arg) {
    if (schema_.args[arg].name == name) return copies_[copy][arg];
  }
  throw Error(ErrorCode::internal, "bench: " + op_.name + " has no operand " + std::string(name));
}

std::unique_ptr<Contestant> OpArena::enter(const std::string& implementation) {
  if (implementation != "seqtile") return enter_other_(*this, implementation);
  return std::make_unique<OurContestant>(environment_.prepare_tuned(workload_, length_), tensors(), length_);
}

std::vector<std::vector<Tensor>> OpArena::tensors() const {
  std::vector<std::vector<Tensor>> result;
  for (const auto& operands : copies_) {
    auto& list = result.emplace_back();
    for (const Operand& operand : operands) list.push_back(operand.tensor());
  }
  return result;
}

Case make_op_case(Environment& environment, const autotune::Workload& workload, int64_t length, std::string shape,
                  const std::vector<std::string>& others, EnterOther enter_other) {
  const autotune::OpDef& op = environment.registry().find(workload.operation);
  const autotune::Workload normal = op.normalize(workload);
  const autotune::Cost cost = op.cost(normal, autotune::call_symbols(op, normal, op.schema(normal), length));
  Case item;
  item.operation = workload.operation;
  item.dtype = std::string(dtype_name(workload.dtype));
  item.shape = std::move(shape);
  item.threads = workload.threads;
  item.work = {cost.flops, cost.bytes_read, cost.bytes_written, workload.dtype};
  item.implementations = {"seqtile"};
  item.implementations.insert(item.implementations.end(), others.begin(), others.end());
  item.run = [&environment, normal, length, enter_other](const Case& self, const std::vector<std::string>& selected,
                                                         const RunOptions& options) {
    OpArena arena(environment, normal, length, enter_other);
    std::vector<Result> results = race(arena, self, selected, options);
    for (Result& result : results)
      if (result.implementation == "seqtile") compare_with_tuner(environment.records(normal), length, result);
    return results;
  };
  return item;
}

}  // namespace seqtile::bench
