// tools/cli/serve/record_times.cpp -- see record_times.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/serve/record_times.h"

#include <bit>

#include "autotune/engine/usable.h"
#include "autotune/keys.h"
#include "tools/cli/serve/time_curve.h"

namespace seqtile::cli {
std::vector<OperationTimes> record_times(const autotune::Registry& registry,
                                         std::span<const ServedOperation> operations,
                                         std::span<const CountedCall> calls, Device& device,
                                         cache::TuningStore& store) {
  std::vector<OperationTimes> list;
  for (const ServedOperation& operation : operations) {
    const autotune::OpDef& op = registry.find(operation.workload.operation);
    const auto key = autotune::make_key(op, operation.workload, device.info(), autotune::TuneOptions{}.policy);
    const TimeCurve curve(usable_records(op, operation.workload, device.target(), store, key));
    OperationTimes times{operation.label};
    for (const auto& [length, count] : count_lengths(operation, calls)) {
      times.calls += count;
      if (curve.empty()) continue;
      const TimeCurve::Point exact = curve.at(length);
      const int64_t padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
      times.tuned_s += 1e-6 * exact.tuned_us * count;
      times.default_s += 1e-6 * exact.default_us * count;
      times.padded_s += 1e-6 * curve.at(padded).tuned_us * count;
    }
    list.push_back(std::move(times));
  }
  return list;
}

}  // namespace seqtile::cli
