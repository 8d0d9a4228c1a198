// planner/strategies/gradient_traffic.h -- what it costs to sum gradients over the devices that share a batch.
// SPDX-License-Identifier: Apache-2.0
//
// Every device has a whole copy of the model and a part of the batch; all axes of the mesh share the batch. Gradients
// come in the backward pass's order and are sent in buckets. A timeline of two lanes says when all is done: the
// backward pass, and the links with whatever must be done to a bucket before and behind them. While both are busy each
// takes `overlap_slowdown` times as long. With 4 s of backward pass, a bucket of 2 s that is ready after 2 s, another
// one of 3 s at the end, and a slowdown of 1.5:
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

/// Of one parameter: rows x columns elements (a vector has one column).
struct Gradient {
  double rows = 1, columns = 1, element_bytes = 4;
  double backward_s = 0;  ///< of the backward pass from the gradient before it to this one
  double bytes() const { return rows * columns * element_bytes; }
};

/// In the order of the backward pass of one device, with its share of the batch in `graph`. Modules without parameters
/// count for the next gradient. Errors: invalid_argument for a graph without parameters.
std::vector<Gradient> gradients_of(Graph graph, const Calibration& calibration);

enum class Compression { none, cast, blocks, top_k, low_rank };

/// What can be chosen. The default: one ring over all devices, behind the backward pass, buckets copied to and fro.
struct GradientWay {
  bool is_sharded = false;  ///< reduce-scatter, and an all-gather of the parameters behind the step
  bool by_level = false;    ///< axis by axis, the fastest links first
  Compression compression = Compression::none;
  bool overlaps = false;    ///< with the backward pass
  bool has_views = false;   ///< gradients are written where they are sent from
  int passes = 1;           ///< backward passes, or steps, for one exchange: a choice of the framework
  bool accumulates = true;  ///< where `passes` > 1: gradients; else parameters are averaged

  bool operator==(const GradientWay&) const = default;
  bool is_of_framework() const { return passes > 1; }
  /// Whether the sums are those of the default, but for their order.
  bool is_exact() const { return compression == Compression::none && passes == 1; }
};

std::string describe(const GradientWay& way);

/// Of one backward pass, on one device.
struct TrafficCost {
  double bytes = 0;            ///< sent
  double communication_s = 0;  ///< by itself, with the copies and conversions it needs
  double seconds = 0;          ///< from the start of the backward pass until all is summed
  double memory = 0;           ///< bytes at most: gradients, buckets, what compression keeps, the optimiser's state
  double bucket_bytes = 0;     ///< a bucket is closed when it has as many
  int buckets = 0;
};

// Errors of all of these: invalid_argument for no gradients, numbers that are negative or not finite, sizes below 1,
// one device, a slowdown below 1, sums that overflow, a way that there is not (lossy and sharded, top-k by levels).
/// With buckets of that size. Parameters are never split.
TrafficCost traffic_cost(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                         const GradientWay& way, double bucket_bytes);
/// With the fastest size of buckets, from that at which latency is as much as transmission, doubled to one for all.
TrafficCost traffic_cost(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                         const GradientWay& way);

inline constexpr double kSameTime = 1e-9;  ///< relative: a lesser difference is none
/// Faster, or as fast with less memory.
bool is_better(const TrafficCost& cost, const TrafficCost& than);

/// A bucket is ready when so much of the backward pass is done, and takes so long where nothing else goes on.
struct TimelineBucket {
  double ready_s = 0, seconds = 0;
};
/// Seconds until the backward pass and all buckets, one after another, are done. Requires: sorted by ready_s, which is
/// at most backward_s.
double overlapped_seconds(const std::vector<TimelineBucket>& buckets, double backward_s, double slowdown);

}  // namespace seqtile::planner
