// autotune/call/verify.cpp -- see verify.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>

#include "autotune/call/call_values.h"
#include "autotune/call_sizes.h"
#include "jit/base/assert.h"
#include "jit/base/tensor_runs.h"
#include "jit/device/gpu_launch.h"
#include "jit/simulation.h"

namespace seqtile::autotune {
namespace {

constexpr double kFlopsPerByte = 5;            // rough cost of moving a byte, in flops
constexpr double kReferenceFlops = 8e6;        // for the reference rows of one probe, but at least three rows
constexpr double kExpensiveRowFlops = 2e7;     // one row is enough if a row costs more than this
constexpr double kReferenceElementFlops = 20;  // least cost of a reference element

int64_t row_elements(const Tensor& tensor) { return tensor.sizes[0] ? tensor.num_elements() / tensor.sizes[0] : 0; }

/// The elements of a row. Those that a slice of the grid has not written count as right.
std::vector<double> results_of(const Tensor& row, const std::vector<double>& want, bool whole) {
  std::vector<double> results = read_elements(row);
  size_t element = 0;
  for_each_run(row, [&](int64_t offset, int64_t count) {
    for (int64_t e = 0; !whole && e < count; ++e, ++element)
      if (is_poison(bytes_at(row, offset + e, 1))) results[element] = want[element];
  });
  return results;
}

}  // namespace

Checker::Checker(const OpDef& op, const Workload& workload, Device& device, int64_t max_length,
                 ReferenceCache& reference)
    : op_(op),
      workload_(workload),
      device_(device),
      buffers_(op, workload, max_length),
      layout_(buffers_.schema(), device.target().is_gpu()),
      reference_(reference) {
  for (size_t i = 0; i < buffers_.schema().args.size(); ++i)
    if (buffers_.schema().args[i].role == ArgRole::output) outputs_.push_back(i);
}

Verdict Checker::check(const LoadedCandidate& candidate, std::span<const Probe> probes, bool repeat, double max_work) {
  Verdict worst;
  max_work_ = max_work;
  for (const Probe& probe : probes) {
    Verdict verdict = check_probe(candidate, probe, repeat);
    if (!verdict.ok()) {
      verdict.detail += fmt::format(" (length {}, input set {})", probe.length, probe.set);
      return verdict;
    }
    worst.max_rel_err = std::max(worst.max_rel_err, verdict.max_rel_err);
    repeat = false;
  }
  return worst;
}

Verdict Checker::check_probe(const LoadedCandidate& candidate, const Probe& probe, bool repeat) {
  const Problem& problem = buffers_.bind(probe.length, probe.set);
  const auto workspaces = buffers_.make_workspaces(candidate.workspaces);
  const bool whole = run(candidate, problem, workspaces);
  if (auto damage = buffers_.guard_damage()) return {"oob_write", *damage};
  ReferenceRows& known = reference_[{probe.length, probe.set}];
  Verdict verdict = compare(problem, known, pick_rows(problem, probe.set, whole), whole);
  if (!verdict.ok() || !repeat) return verdict;

  std::vector<std::vector<std::byte>> first;
  for (const size_t i : outputs_) {
    const auto* data = static_cast<const std::byte*>(problem.tensors[i].data);
    first.emplace_back(data, data + tensor_bytes(problem.tensors[i]));
  }
  run(candidate, problem, workspaces);  // with used workspaces: a kernel must leave them fit for its next launch
  for (size_t o = 0; o < outputs_.size(); ++o)
    if (std::memcmp(first[o].data(), problem.tensors[outputs_[o]].data, first[o].size()) != 0)
      return {"nondeterministic",
              "a second run on the same inputs gave other bits in " + buffers_.schema().args[outputs_[o]].name};
  return verdict;
}

/// Copies all memory that a launch may reach to the device, where guard bands and outputs count as never written.
DeviceMirror Checker::mirror_memory() {
  DeviceMirror mirror(device_);
  const std::vector<CheckBuffers::Range> ranges = buffers_.memory();
  for (const CheckBuffers::Range& range : ranges) mirror.add(range.bytes, range.name, range.holds_addresses);
  for (const CheckBuffers::Range& range : ranges) {
    mirror.upload(range.bytes);
    const std::byte *begin = range.bytes.data(), *end = begin + range.bytes.size();
    poison_memory(device_, mirror.at(begin), range.is_output ? range.bytes.size() : range.guard);
    poison_memory(device_, mirror.at(end - range.guard), range.guard);
  }
  return mirror;
}

/// Launches the candidate once on poisoned outputs. Returns true if the whole grid ran.
bool Checker::run(const LoadedCandidate& candidate, const Problem& problem,
                  const std::vector<WorkspaceView>& workspaces) {
  buffers_.poison_outputs();
  DeviceMirror mirror = mirror_memory();
  const auto scalars = std::span(problem.symbols).subspan(buffers_.schema().symbols.size());
  KernelCall call;
  layout_.bind(mirror.at(problem.tensors), problem.symbols[0], scalars, call);
  for (const WorkspaceView& workspace : workspaces)
    append_workspace(call, mirror.at(workspace.base), workspace.elements);
  layout_.finish(scalars, nullptr, call);
  const Cost cost = op_.cost(workload_, problem.symbols);
  const double work = std::max(cost.flops, kFlopsPerByte * (cost.bytes_read + cost.bytes_written));
  // A GPU launches whole grids only.
  const double fraction = work > max_work_ && !device_.target().is_gpu() ? 0.1 * max_work_ / work : 1.0;
  const Grid grid = grid_of(candidate.grid, problem.symbols);
  const auto samples = sample_for(candidate, grid, fraction, workload_.threads);
  for (const GridSample& sample : samples)
    launch_alone(device_, *candidate.kernel, grid, call.block(), {}, {sample.first, sample.count});
  if (samples.empty()) launch_alone(device_, *candidate.kernel, grid, call.block());
  mirror.download();
  return samples.empty();
}

/// The rows to compare: all rows if the reference is cheap, else the first, the last, the rows on both sides of the end
/// of the last full tile of usual sizes, and pseudo-random rows. After a run on a slice: some of the written rows.
std::vector<int64_t> Checker::pick_rows(const Problem& problem, int set, bool whole) const {
  int64_t rows = 0;
  double elements = 0;
  for (const size_t i : outputs_) {
    rows = std::max(rows, problem.tensors[i].sizes[0]);
    elements += static_cast<double>(row_elements(problem.tensors[i]));
  }
  const double cost =
      std::max(op_.cost(workload_, problem.symbols).flops / std::max<double>(1, static_cast<double>(rows)),
               kReferenceElementFlops * elements);
  const int64_t least = cost > kExpensiveRowFlops ? 1 : 3;
  const int64_t budget = std::max(least, static_cast<int64_t>(kReferenceFlops / cost));
  std::vector<int64_t> candidates;
  if (whole) {
    if (rows <= budget) {
      for (int64_t row = 0; row < rows; ++row) candidates.push_back(row);
      return candidates;
    }
    candidates = {rows - 1, 0};
    for (const int64_t tile : {64, 16, 128, 32, 48, 256})
      if (rows % tile && rows > tile) candidates.insert(candidates.end(), {rows - rows % tile, rows - rows % tile - 1});
    uint64_t state = static_cast<uint64_t>(rows) * 2654435761u + static_cast<uint64_t>(set);
    while (static_cast<int64_t>(candidates.size()) < 2 * budget)
      candidates.push_back(
          static_cast<int64_t>((state = state * 6364136223846793005ull + 1442695040888963407ull) >> 33) % rows);
    // Different lengths and sets begin with different rows, because the budget may be a few rows.
    std::rotate(candidates.begin(), candidates.begin() + (rows + set) % static_cast<int64_t>(candidates.size()),
                candidates.end());
  } else {
    // A slice of the grid may have written only one of several outputs.
    const auto any_written = [&](int64_t row) {
      return std::any_of(outputs_.begin(), outputs_.end(), [&](size_t i) {
        return row < problem.tensors[i].sizes[0] && has_written(row_of(problem.tensors[i], row));
      });
    };
    std::vector<int64_t> written;
    for (int64_t row = 0; row < rows; ++row)
      if (any_written(row)) written.push_back(row);
    if (written.empty()) return {};
    candidates = {written.back(), written.front(), written[written.size() / 2], written[written.size() / 3]};
  }
  std::set<int64_t> chosen;
  // Row 0 is always compared if an output has fewer rows than another, such as a sum over the length.
  const auto has_fewer = [&](size_t i) { return problem.tensors[i].sizes[0] < rows; };
  if (whole && std::ranges::any_of(outputs_, has_fewer)) chosen.insert(0);
  for (const int64_t row : candidates)
    if (static_cast<int64_t>(chosen.size()) < budget) chosen.insert(row);
  return {chosen.begin(), chosen.end()};
}

void Checker::add_reference(const Problem& problem, ReferenceRows& known, const std::vector<int64_t>& rows) {
  std::vector<int64_t> missing;
  for (const int64_t row : rows)
    if (!known.contains(row)) missing.push_back(row);
  if (missing.empty()) return;
  std::vector<std::vector<double>> results;
  op_.reference(problem, missing, results);
  SEQTILE_ASSERT(results.size() == outputs_.size());
  for (size_t r = 0; r < missing.size(); ++r)
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Tensor& tensor = problem.tensors[outputs_[o]];
      const auto count = missing[r] < tensor.sizes[0] ? row_elements(tensor) : 0;
      const auto begin = results[o].begin() + static_cast<int64_t>(r) * count;
      known[missing[r]].emplace_back(begin, begin + count);
    }
}

Verdict Checker::compare(const Problem& problem, ReferenceRows& known, const std::vector<int64_t>& rows, bool whole) {
  Verdict verdict;
  const auto name = [&](size_t o) { return buffers_.schema().args[outputs_[o]].name; };
  if (rows.empty() && problem.tensors[outputs_[0]].sizes[0] > 0)
    return {"wrong_result", name(0) + " was not written at all"};
  for (size_t o = 0; whole && o < outputs_.size(); ++o) {
    const Tensor& tensor = problem.tensors[outputs_[o]];
    if (const int64_t at = is_float(tensor.dtype) ? find_poison(tensor) : -1; at >= 0)
      return {"wrong_result", fmt::format("{}: row {}, element {} was never written", name(o),
                                          at / row_elements(tensor), at % row_elements(tensor))};
  }
  add_reference(problem, known, rows);
  const auto tolerance = op_.tolerance(workload_, problem.symbols);
  for (const int64_t row : rows)
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Tensor& tensor = problem.tensors[outputs_[o]];
      if (row >= tensor.sizes[0]) continue;
      const std::vector<double>& want = known[row][o];
      const Difference difference = autotune::compare(results_of(row_of(tensor, row), want, whole), want, tolerance);
      verdict.max_rel_err = std::max(verdict.max_rel_err, difference.relative);
      if (difference.is_within()) continue;
      verdict.outcome = "wrong_result";
      verdict.detail = fmt::format("{}: row {}, element {} is {:.6g}, must be {:.6g}", name(o), row, difference.element,
                                   difference.got, difference.want);
      return verdict;
    }
  return verdict;
}

}  // namespace seqtile::autotune
