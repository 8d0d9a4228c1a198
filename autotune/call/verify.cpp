// autotune/call/verify.cpp -- see verify.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>

#include "jit/simulation.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr double kFlopsPerByte = 5;            // rough cost of moving a byte, in flops
constexpr double kReferenceFlops = 8e6;        // for the reference rows of one probe, but at least three rows
constexpr double kExpensiveRowFlops = 2e7;     // one row is enough if a row costs more than this
constexpr double kReferenceElementFlops = 20;  // least cost of a reference element

double value_at(const std::byte* from, DType dtype) {
  const auto get = [&](auto v) {
    std::memcpy(&v, from, sizeof v);
    return v;
  };
  switch (dtype) {
    case DType::f64: return get(double{});
    case DType::f32: return get(float{});
    case DType::f16: return f16_to_f32(get(uint16_t{}));
    case DType::bf16: return bf16_to_f32(get(uint16_t{}));
    case DType::i64: return static_cast<double>(get(int64_t{}));
    case DType::i32: return get(int32_t{});
    case DType::i16: return get(int16_t{});
    default: return get(int8_t{});
  }
}

/// Calls visit(element, pointer) for every element of row `row`, in row-major order, until it returns false.
template <class Visit>
bool for_each_in_row(const Tensor& tensor, int64_t row, Visit visit) {
  const int64_t size = dtype_bytes(tensor.dtype);
  const auto* base = static_cast<const std::byte*>(tensor.data) + row * tensor.strides[0] * size;
  std::array<int64_t, kMaxRank> sizes{1, 1, 1, 1}, strides{};
  for (int d = 1; d < tensor.rank; ++d) {
    sizes[kMaxRank - tensor.rank + d] = tensor.sizes[d];
    strides[kMaxRank - tensor.rank + d] = tensor.strides[d];
  }
  int64_t element = 0;
  for (int64_t i = 0; i < sizes[1]; ++i)
    for (int64_t j = 0; j < sizes[2]; ++j)
      for (int64_t k = 0; k < sizes[3]; ++k)
        if (!visit(element++, base + (i * strides[1] + j * strides[2] + k * strides[3]) * size)) return false;
  return true;
}

/// The poison is one of many NaNs, and no kernel computes this NaN.
bool is_poison(const std::byte* element, int64_t size) {
  for (int64_t i = 0; i < size; ++i)
    if (element[i] != std::byte{0xFF}) return false;
  return true;
}

/// Bytes of a row whose elements are adjacent in memory; nullopt if they are not.
std::optional<std::span<const std::byte>> dense_row(const Tensor& tensor, int64_t row) {
  int64_t count = 1;
  for (int d = tensor.rank - 1; d >= 1; --d) {
    if (tensor.strides[d] != count) return std::nullopt;
    count *= tensor.sizes[d];
  }
  const int64_t size = dtype_bytes(tensor.dtype);
  return std::span(static_cast<const std::byte*>(tensor.data) + row * tensor.strides[0] * size,
                   static_cast<size_t>(count * size));
}

/// Index of the first poisoned element, or -1. The loop over a block has no exit and is vectorized, because outputs
/// have hundreds of millions of elements.
template <class T>
int64_t find_poison(std::span<const std::byte> bytes) {
  constexpr int64_t kBlock = 256;
  const T* from = reinterpret_cast<const T*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(T));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    bool is_poisoned = false;
    for (int64_t i = begin; i < end; ++i) is_poisoned |= from[i] == static_cast<T>(-1);
    for (int64_t i = begin; is_poisoned && i < end; ++i)
      if (from[i] == static_cast<T>(-1)) return i;
  }
  return -1;
}

bool has_unwritten(const Tensor& tensor, int64_t row, int64_t* where) {
  const int64_t size = dtype_bytes(tensor.dtype);
  const auto dense = dense_row(tensor, row);
  if (dense && (size == 2 || size == 4)) {
    *where = size == 2 ? find_poison<uint16_t>(*dense) : find_poison<uint32_t>(*dense);
    return *where >= 0;
  }
  return !for_each_in_row(tensor, row, [&](int64_t element, const std::byte* at) {
    *where = element;
    return !is_poison(at, size);
  });
}

bool has_written(const Tensor& tensor, int64_t row) {
  const int64_t size = dtype_bytes(tensor.dtype);
  if (const auto dense = dense_row(tensor, row); dense && !dense->empty())  // unwritten: all bytes are 0xFF
    return (*dense)[0] != std::byte{0xFF} || std::memcmp(dense->data(), dense->data() + 1, dense->size() - 1) != 0;
  return !for_each_in_row(tensor, row, [&](int64_t, const std::byte* at) { return is_poison(at, size); });
}

int64_t row_elements(const Tensor& tensor) { return tensor.sizes[0] ? tensor.num_elements() / tensor.sizes[0] : 0; }

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
    device_.launch(*candidate.kernel, grid, call.block(), {}, {sample.first, sample.count});
  if (samples.empty()) device_.launch(*candidate.kernel, grid, call.block());
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
        return row < problem.tensors[i].sizes[0] && has_written(problem.tensors[i], row);
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
    int64_t where = 0;
    for (int64_t row = 0; row < tensor.sizes[0]; ++row)
      if (is_float(tensor.dtype) && has_unwritten(tensor, row, &where))
        return {"wrong_result", fmt::format("{}: row {}, element {} was never written", name(o), row, where)};
  }
  add_reference(problem, known, rows);
  const auto tolerance = op_.tolerance(workload_, problem.symbols);
  for (const int64_t row : rows) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Tensor& tensor = problem.tensors[outputs_[o]];
      if (row >= tensor.sizes[0]) continue;
      const std::vector<double>& want = known[row][o];
      double squares = 0;
      for (const double w : want) squares += std::isfinite(w) ? w * w : 0;
      const double scale = std::sqrt(squares / std::max<double>(1, static_cast<double>(want.size())));
      for_each_in_row(tensor, row, [&](int64_t e, const std::byte* at) {
        if (!whole && is_poison(at, dtype_bytes(tensor.dtype))) return true;
        const double got = value_at(at, tensor.dtype), w = want[static_cast<size_t>(e)];
        if (got == w) return true;
        const double difference = std::abs(got - w);
        if (!(difference <= tolerance.absolute + tolerance.relative * std::abs(w))) {
          verdict.outcome = "wrong_result";
          verdict.detail = fmt::format("{}: row {}, element {} is {:.6g}, must be {:.6g}", name(o), row, e, got, w);
        }
        verdict.max_rel_err = std::max(verdict.max_rel_err, difference / std::max({std::abs(w), scale, 1e-30}));
        return verdict.ok();
      });
      if (!verdict.ok()) return verdict;
    }
  }
  return verdict;
}

}  // namespace seqtile::autotune
