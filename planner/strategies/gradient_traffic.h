// planner/strategies/gradient_traffic.h -- the cost of summing gradients over the devices that share a batch.
// SPDX-License-Identifier: Apache-2.0
//
// Every device has a whole copy of the model and a part of the batch; all axes of the mesh share the batch. Gradients
// come in the order of the backward pass and are sent in buckets. A timeline has two lanes: the backward pass, and the
// links together with the work on a bucket before and after it is sent. While both lanes are busy, each takes
// `overlap_slowdown` times as long. Example: a backward pass of 4 s, a bucket of 2 s that is ready after 2 s, a bucket
// of 3 s that is ready at the end, and a slowdown of 1.5:
//
//   backward   [ 2 s        ][ 2 s, slowed: 3 s ]
//   links                    [ 2 s, slowed: 3 s ][ 3 s, alone ]     5 + 3 = 8 s, against 4 + 5 = 9 s one after another
//
// docs/planner.md has the formulas.
#pragma once
#include <string>
#include <vector>

#include "planner/graph/graph.h"
#include "planner/strategies/calibration.h"

namespace seqtile::planner {

/// The gradient of one parameter: rows x columns elements. A vector has one column.
struct Gradient {
  double rows = 1, columns = 1, element_bytes = 4;
  double backward_s = 0;  ///< time of the backward pass since the previous gradient
  double bytes() const { return rows * columns * element_bytes; }
};

/// The gradients of `graph`, in the order of the backward pass of one device; the graph has one device's share of the
/// batch. The time of a module without parameters is added to the next gradient.
/// Errors: invalid_argument for a graph without parameters.
std::vector<Gradient> gradients_of(Graph graph, const Calibration& calibration);

enum class Compression { none, cast, blocks, top_k, low_rank };

/// The choices. The default is one ring over all devices, after the backward pass, with gradients copied to and from
/// buckets.
struct GradientWay {
  bool is_sharded = false;  ///< reduce-scatter, and all-gather of the parameters after the optimiser's step
  bool by_level = false;    ///< axis by axis, the fastest links first
  Compression compression = Compression::none;
  bool overlaps = false;    ///< sends during the backward pass
  bool has_views = false;   ///< gradients are written into the buckets, without copies
  int passes = 1;           ///< backward passes, or steps, per exchange; the training framework chooses it
  bool accumulates = true;  ///< if `passes` > 1: sums gradients; false: averages parameters

  bool operator==(const GradientWay&) const = default;
  bool is_of_framework() const { return passes > 1; }
  /// Whether the sums equal those of the default, except for the order of summation.
  bool is_exact() const { return compression == Compression::none && passes == 1; }
};

/// One line for people, such as "all-reduce, by levels, overlapped".
std::string describe(const GradientWay& way);

/// Costs of one backward pass on one device.
struct TrafficCost {
  double bytes = 0;            ///< sent
  double communication_s = 0;  ///< without overlap; includes copies and conversions
  double seconds = 0;          ///< from the start of the backward pass until all gradients are summed
  double memory = 0;           ///< peak bytes: gradients, buckets, data that compression keeps, optimiser state
  double bucket_bytes = 0;     ///< bytes at which a bucket is closed
  int buckets = 0;
};

// Errors of both: invalid_argument for no gradients, negative or infinite numbers, sizes below 1, one device, a
// slowdown below 1, sums that overflow, and combinations that do not exist (compression with sharding or views, top-k
// by levels).
/// The cost with buckets of `bucket_bytes`. A parameter is never split.
TrafficCost traffic_cost(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                         const GradientWay& way, double bucket_bytes);
/// The cost with the fastest bucket size. Sizes are tried by doubling, from the size at which latency equals
/// transmission time to one bucket for everything.
TrafficCost traffic_cost(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                         const GradientWay& way);

inline constexpr double kSameTime = 1e-9;  ///< relative; smaller differences do not count
/// Whether `cost` is faster, or as fast with less memory.
bool is_better(const TrafficCost& cost, const TrafficCost& than);

/// A bucket: the backward time after which it is ready, and its own time without overlap.
struct TimelineBucket {
  double ready_s = 0, seconds = 0;
};
/// Seconds until the backward pass and all buckets, sent one after another, are done.
/// Requires: `buckets` is sorted by ready_s, which is at most backward_s.
double overlapped_seconds(const std::vector<TimelineBucket>& buckets, double backward_s, double slowdown);

}  // namespace seqtile::planner
