// tools/cli/recorded_kernels.cpp -- see recorded_kernels.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/recorded_kernels.h"

#include <algorithm>
#include <map>
#include <optional>

#include "autotune/tuner.h"
#include "jit/error.h"
#include "tools/cli/time_curve.h"

namespace seqtile::cli {
namespace {

/// A call as launches of a registered operation.
struct Launches {
  autotune::Workload workload;
  int64_t length = 0, count = 1;
};

std::optional<Launches> launches_of(const plan::KernelCall& call) {
  const auto dtype = parse_dtype(call.dtype);
  if (!dtype) return std::nullopt;
  const auto& sizes = call.sizes;
  const auto launches = [&](std::string operation, autotune::Fields fields, int64_t length, int64_t count) {
    return Launches{{std::move(operation), *dtype, 1, std::move(fields)}, length, count};
  };
  if (call.operation == "linear") return launches("linear", {{"n", sizes[1]}, {"k", sizes[2]}}, sizes[0], 1);
  constexpr std::string_view kRows[] = {"rms_norm",     "layer_norm",        "softmax",
                                        "silu_and_mul", "rms_norm_backward", "silu_and_mul_backward"};
  if (std::ranges::find(kRows, call.operation) != std::end(kRows))
    return launches(std::string(call.operation), {{"n", sizes[1]}}, sizes[0], 1);
  const bool is_backward = call.operation == "attention_backward";
  if ((is_backward || call.operation == "attention") && sizes[3] == sizes[4])
    return launches(is_backward ? "attention_backward" : "attention_forward",
                    {{"heads", sizes[1]}, {"kv_heads", sizes[2]}, {"head_dim", sizes[5]}}, sizes[3], sizes[0]);
  return std::nullopt;
}

class Records {
 public:
  Records(const autotune::Registry& registry, const Options& options)
      : registry_(registry),
        threads_(one_thread_count(options)),
        device_(open_device_of(options, threads_)),
        store_(open_store_of(options, StoreUse::read_existing)) {}

  std::optional<double> seconds(const plan::KernelCall& call) {
    std::optional<Launches> launches = launches_of(call);
    if (!launches) return std::nullopt;
    launches->workload.threads = threads_;
    const TimeCurve& curve = curve_of(launches->workload);
    if (curve.empty()) return std::nullopt;
    return 1e-6 * curve.at(launches->length).tuned_us * static_cast<double>(launches->count);
  }

 private:
  const TimeCurve& curve_of(const autotune::Workload& given) {
    const auto [place, is_new] = curves_.try_emplace(given.operation + given.json());
    if (is_new) place->second = read(given);
    return place->second;
  }

  /// Of fields that the operation does not take there are no records.
  TimeCurve read(const autotune::Workload& given) {
    const autotune::OpDef& op = registry_.find(given.operation);
    try {
      const auto key = autotune::make_key(op, op.normalize(given), device_->info(), autotune::TuneOptions{}.policy);
      std::vector<cache::Record> records = store_->records(key);
      std::erase_if(records, [](const auto& record) { return record.origin == cache::Origin::modelled; });
      return TimeCurve(records);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      return {};
    }
  }

  const autotune::Registry& registry_;
  const int threads_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<cache::TuningStore> store_;
  std::map<std::string, TimeCurve> curves_;  ///< by operation and fields
};

}  // namespace

plan::KernelTimes recorded_kernel_times(const autotune::Registry& registry, const Options& options,
                                        plan::KernelTimes otherwise) {
  const auto records = std::make_shared<Records>(registry, options);
  return [records, otherwise = std::move(otherwise)](const plan::KernelCall& call) {
    if (const auto seconds = records->seconds(call)) return plan::KernelTime{*seconds, true};
    return otherwise(call);
  };
}

}  // namespace seqtile::cli
