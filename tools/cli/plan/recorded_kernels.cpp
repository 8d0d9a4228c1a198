// tools/cli/plan/recorded_kernels.cpp -- see recorded_kernels.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan/recorded_kernels.h"

#include <fmt/format.h>

#include <algorithm>

#include "autotune/engine/usable.h"
#include "autotune/keys.h"
#include "jit/base/hash.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "seqtile/tuner.h"

namespace seqtile::cli {
namespace {

/// Launches of a registered operation that do the work of a planner's call.
struct Launches {
  autotune::Workload workload;
  int64_t length = 0;
  double count = 1;  ///< below 1 for a part of a launch
};

std::optional<Launches> launches_of(const planner::KernelCall& call) {
  const auto dtype = parse_dtype(call.dtype);
  if (!dtype) return std::nullopt;
  const auto& sizes = call.sizes;
  const auto launches = [&](std::string operation, autotune::Fields fields, int64_t length, double count) {
    return Launches{{std::move(operation), *dtype, 1, std::move(fields)}, length, count};
  };
  if (call.operation == "linear") return launches("linear", {{"n", sizes[1]}, {"k", sizes[2]}}, sizes[0], 1);
  constexpr std::string_view kRows[] = {"rms_norm", "layer_norm", "softmax", "rms_norm_backward"};
  if (std::ranges::find(kRows, call.operation) != std::end(kRows))
    return launches(std::string(call.operation), {{"n", sizes[1]}}, sizes[0], 1);
  // Graphs name a gate after its activation: gelu_and_mul, gelu_and_mul_backward.
  constexpr std::string_view kGate = "_and_mul";
  if (const size_t end = call.operation.find(kGate); end != call.operation.npos) {
    const std::string activation(call.operation.substr(0, end));
    return launches("act" + std::string(call.operation.substr(end)), {{"n", sizes[1]}, {"activation", activation}},
                    sizes[0], 1);
  }
  const bool is_backward = call.operation == "attention_backward";
  // Ranks that share a sequence's queries share its work, even under a causal mask, because rows are cut evenly for it.
  if ((is_backward || call.operation == "attention") && sizes[3] <= sizes[4])
    return launches(is_backward ? "attention_backward" : "attention_forward",
                    {{"heads", sizes[1]}, {"kv_heads", sizes[2]}, {"head_dim", sizes[5]}}, sizes[4],
                    static_cast<double>(sizes[0]) * static_cast<double>(sizes[3]) / static_cast<double>(sizes[4]));
  return std::nullopt;
}

/// The name of a kernel, "linear {"dtype":...}".
std::string name_of(const autotune::Workload& workload) { return workload.operation + " " + workload.json(); }

/// The inverse of name_of(). Errors: invalid_argument on any other text.
autotune::Workload parse_workload(const std::string& name) {
  const size_t space = std::min(name.find(' '), name.size());
  const autotune::Fields all = autotune::Fields::parse(name.substr(std::min(space + 1, name.size())));
  const auto dtype = parse_dtype(all.get_string("dtype"));
  if (!dtype) throw Error(ErrorCode::invalid_argument, name + ": no such type");
  autotune::Workload workload{name.substr(0, space), *dtype, static_cast<int>(all.get_int("threads")), {}};
  for (const auto& [field, value] : all.values())
    if (field != "dtype" && field != "threads") workload.fields.set(field, value);
  return workload;
}

/// A hash of the records' parts that enter prices.
std::string hash_of(const std::vector<cache::Record>& records) {
  constexpr size_t kDigits = 16;
  if (records.empty()) return "";
  std::string text;
  for (const cache::Record& record : records)
    text += fmt::format("{}..{} {} {};", record.lo, record.hi, record.median_us, record.config_json);
  return sha256_hex(text).substr(0, kDigits);
}

}  // namespace

RecordedKernels::RecordedKernels(const autotune::Registry& registry, const Options& options)
    : registry_(registry),
      threads_(one_thread_count(options)),
      device_(open_device_of(options, threads_)),
      store_(open_store_of(options, StoreUse::read_existing)) {}

std::optional<double> RecordedKernels::seconds(const planner::KernelCall& call) {
  std::optional<Launches> launches = launches_of(call);
  if (!launches) return std::nullopt;
  launches->workload.threads = threads_;
  const TimeCurve& curve = kernel_of(launches->workload).curve;
  if (curve.empty()) return std::nullopt;
  return 1e-6 * curve.at(launches->length).tuned_us * launches->count;
}

const RecordedKernels::Kernel& RecordedKernels::kernel_of(const autotune::Workload& workload) {
  const auto [place, is_new] = kernels_.try_emplace(name_of(workload));
  if (is_new) place->second = read(workload);
  return place->second;
}

/// A workload with fields that the operation does not take has no records.
RecordedKernels::Kernel RecordedKernels::read(const autotune::Workload& workload) {
  const autotune::OpDef& op = registry_.find(workload.operation);
  try {
    const autotune::Workload normal = op.normalize(workload);
    const auto key = autotune::make_key(op, normal, device_->info(), autotune::TuneOptions{}.policy);
    std::vector<cache::Record> records = usable_records(op, normal, device_->target(), *store_, key);
    std::erase_if(records, [](const auto& record) { return record.origin == cache::Origin::modelled; });
    return {TimeCurve(records), hash_of(records)};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return {};
  }
}

std::map<std::string, std::string> RecordedKernels::used() const {
  std::map<std::string, std::string> hashes;
  for (const auto& [name, kernel] : kernels_) hashes[name] = kernel.hash;
  return hashes;
}

bool RecordedKernels::still_has(const std::map<std::string, std::string>& used) {
  return std::ranges::all_of(
      used, [&](const auto& kernel) { return kernel_of(parse_workload(kernel.first)).hash == kernel.second; });
}

std::string RecordedKernels::environment() const {
  autotune::Fields fields = autotune::machine_of(device_->info());
  fields.set("threads", int64_t{threads_});
  fields.set("policy", autotune::TuneOptions{}.policy);
  fields.set("toolchain", std::string(toolchain_version()));
  return fields.json();
}

planner::KernelTimes recorded_kernel_times(std::shared_ptr<RecordedKernels> records, planner::KernelTimes otherwise) {
  return [records = std::move(records), otherwise = std::move(otherwise)](const planner::KernelCall& call) {
    if (const auto seconds = records->seconds(call)) return planner::KernelTime{*seconds, true};
    return otherwise(call);
  };
}

}  // namespace seqtile::cli
