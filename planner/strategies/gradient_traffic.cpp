// planner/strategies/gradient_traffic.cpp -- see gradient_traffic.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/gradient_traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "planner/strategies/calibrated_strategies.h"
#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

constexpr double kKeptShare = 0.01, kIndexBytes = 4;     // top-k
constexpr double kBlockElements = 256, kScaleBytes = 4;  // int8 blocks
constexpr double kRank = 4;                              // low rank
constexpr double kLeastBucket = 64 * 1024;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check(const char* what, double value, double least) {
  if (!std::isfinite(value) || value < least) refuse(fmt::format("{} {} must be at least {}", what, value, least));
}

void check(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration) {
  if (gradients.empty()) refuse("no gradients: the model has no parameters that are trained");
  for (const Gradient& gradient : gradients) {
    check("a gradient's rows", gradient.rows, 1);
    check("a gradient's columns", gradient.columns, 1);
    check("bytes of a gradient's element", gradient.element_bytes, 1);
    check("seconds of a backward pass", gradient.backward_s, 0);
  }
  for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis) {
    check("alpha", mesh.alpha[axis], 0);
    check("beta", mesh.beta[axis], 0);
  }
  check("overlap_slowdown", calibration.overlap_slowdown, 1);
  if (mesh.devices(mesh.all()) < 2) refuse("a mesh of one device sends no gradients; give two devices or more");
}

void check(const GradientWay& way) {
  check("passes", way.passes, 1);
  const bool is_lossy = way.compression != Compression::none;
  if (is_lossy && way.is_sharded) refuse("compressed gradients are not summed in parts; use an all-reduce");
  if (is_lossy && way.has_views) refuse("compressed gradients are no views of the buckets");
  if (way.compression == Compression::top_k && way.by_level) refuse("top-k gathers over all devices at once");
}

/// One reduce-scatter or all-gather over the mesh. A tensor of B bytes takes latency + B * per_byte seconds.
struct Collective {
  double latency = 0, per_byte = 0;
  double sent = 0;  ///< bytes that each device sends, per byte of the tensor
};

Collective one_ring(const Mesh& mesh) {
  double alpha = 0, beta = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis) {
    if (mesh.shape[axis] == 1) continue;
    alpha = std::max(alpha, mesh.alpha[axis]);
    beta = std::max(beta, mesh.beta[axis]);
  }
  const double n = mesh.devices(mesh.all()), sent = (n - 1) / n;
  return {(n - 1) * alpha, sent * beta, sent};
}

/// The slower axes carry only the part that one device has after the faster axes.
Collective axis_by_axis(const Mesh& mesh) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis) axes.push_back(axis);
  std::ranges::stable_sort(axes, {}, [&](size_t axis) { return mesh.beta[axis]; });
  Collective all;
  double part = 1;
  for (const size_t axis : axes) {
    const double n = mesh.shape[axis], sent = (n - 1) / n * part;
    all.latency += (n - 1) * mesh.alpha[axis];
    all.per_byte += sent * mesh.beta[axis];
    all.sent += sent;
    part /= n;
  }
  return all;
}

/// The bytes that are sent in place of a gradient, and the bytes read and written to convert it there and back. The
/// bytes of the last step's error count where compression keeps it.
struct Payload {
  double bytes = 0, touched = 0, kept = 0;  ///< kept: memory besides the gradient
};

Payload payload_of(const Gradient& gradient, const GradientWay& way, double devices) {
  const double whole = gradient.bytes(), elements = gradient.rows * gradient.columns;
  double sent = whole;
  switch (way.compression) {
    case Compression::none:
      // The gradient is copied into the bucket and back.
      return way.has_views ? Payload{whole, 0, 0} : Payload{whole, 4 * whole, whole};
    case Compression::cast: sent = whole / 2; return {sent, 2 * whole + 2 * sent, sent};
    case Compression::blocks:  // int8 cannot hold sums: parts are exchanged, summed, sent again
      sent = elements + std::ceil(elements / kBlockElements) * kScaleBytes;
      return {sent, 4 * whole + 4 * sent, whole + 2 * sent};
    case Compression::top_k:
      sent = std::ceil(kKeptShare * elements) * (gradient.element_bytes + kIndexBytes);
      return {sent, 5 * whole + (1 + devices) * sent, whole + (1 + devices) * sent};
    case Compression::low_rank:
      sent = kRank * (gradient.rows + gradient.columns) * gradient.element_bytes;
      if (sent >= whole) return {whole, 4 * whole, whole};
      return {sent, 8 * whole + 4 * sent, whole + sent};
  }
  return {};
}

/// The number of kernels that convert a bucket there and back.
double launches(const GradientWay& way) {
  switch (way.compression) {
    case Compression::none: return way.has_views ? 0 : 2;
    case Compression::cast: return 2;
    case Compression::blocks:
    case Compression::top_k: return 3;
    case Compression::low_rank: return 5;
  }
  return 0;
}

class Exchange {
 public:
  Exchange(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
           const GradientWay& way)
      : gradients_(gradients),
        calibration_(calibration),
        way_(way),
        devices_(mesh.devices(mesh.all())),
        collective_(way.by_level ? axis_by_axis(mesh) : one_ring(mesh)) {
    for (const Gradient& gradient : gradients) {
      bytes_ += gradient.bytes();
      elements_ += gradient.rows * gradient.columns;
      backward_s_ += gradient.backward_s;
    }
    if (way.is_of_framework() && way.accumulates)  // reads the sum and the gradient, writes the sum
      accumulate_s_ = 3 * bytes_ / calibration.device.bandwidth;
  }

  TrafficCost cost(double bucket_bytes) {
    fill_buckets(bucket_bytes);
    TrafficCost cost;
    cost.bucket_bytes = bucket_bytes;
    cost.buckets = static_cast<int>(buckets_.size());
    for (const TimelineBucket& bucket : buckets_) cost.communication_s += bucket.seconds;
    cost.seconds = way_.overlaps ? overlapped_seconds(buckets_, backward_s_, calibration_.overlap_slowdown)
                                 : backward_s_ + cost.communication_s;
    cost.bytes = payload_ * sends() * collective_.sent;
    if (way_.is_sharded) {
      const double gather_s = cost.buckets * collective_.latency + bytes_ * collective_.per_byte;
      cost.communication_s += gather_s;
      cost.seconds += gather_s;
      cost.bytes += bytes_ * collective_.sent;
    }
    cost.memory = memory();
    const double passes = way_.passes;  // all but the last pass have no exchange
    cost.seconds = (cost.seconds + (passes - 1) * backward_s_) / passes + accumulate_s_;
    cost.communication_s /= passes;
    cost.bytes /= passes;
    if (!std::isfinite(cost.seconds + cost.memory))
      refuse("the predicted seconds or bytes are not finite; alpha, beta, bandwidth or sizes are out of any machine's");
    return cost;
  }

  double bytes() const { return bytes_; }
  /// The bucket size at which transmission takes as long as latency, within limits.
  double least_bucket() const {
    const double balanced = collective_.per_byte > 0 ? collective_.latency / collective_.per_byte : bytes_;
    return std::clamp(balanced, std::min(kLeastBucket, bytes_), bytes_);
  }

 private:
  /// How often a byte of payload goes through the collective. The all-gather of top-k delivers the payload of all
  /// devices.
  double sends() const {
    if (way_.compression == Compression::top_k) return devices_;
    return way_.is_sharded ? 1 : 2;
  }
  double messages() const {
    if (way_.compression == Compression::low_rank) return 4;  // two all-reduces: the second factor needs the first
    return way_.compression == Compression::top_k || way_.is_sharded ? 1 : 2;
  }

  void fill_buckets(double bucket_bytes) {
    buckets_.clear();
    payload_ = kept_ = 0;
    double done_s = 0, bytes = 0, sent = 0, touched = 0;
    for (const Gradient& gradient : gradients_) {
      const Payload payload = payload_of(gradient, way_, devices_);
      done_s += gradient.backward_s;
      bytes += gradient.bytes();
      sent += payload.bytes;
      touched += payload.touched;
      payload_ += payload.bytes;
      kept_ += payload.kept;
      if (bytes < bucket_bytes && &gradient != &gradients_.back()) continue;
      const double convert_s = launches(way_) * calibration_.device.launch_s + touched / calibration_.device.bandwidth;
      const double send_s = messages() * collective_.latency + sent * sends() * collective_.per_byte;
      buckets_.push_back({done_s, convert_s + send_s});
      bytes = sent = touched = 0;
    }
  }

  double memory() const {
    const double state = elements_ * calibration_.state_bytes;
    return bytes_ + kept_ + (way_.is_sharded ? state / devices_ : state) +
           (way_.is_of_framework() && way_.accumulates ? bytes_ : 0);
  }

  const std::vector<Gradient>& gradients_;
  const Calibration& calibration_;
  const GradientWay& way_;
  const double devices_;
  const Collective collective_;
  double bytes_ = 0, elements_ = 0, backward_s_ = 0, accumulate_s_ = 0;
  std::vector<TimelineBucket> buckets_;
  double payload_ = 0, kept_ = 0;
};

/// Seconds of each node on one device, which computes all of the graph's batch.
std::vector<double> kernel_seconds(Graph graph, const Calibration& calibration, bool trains) {
  graph.mesh = Mesh{1, {1}, {0}, {0}};
  graph.is_training = trains;
  ReshardTables paths(graph.mesh);
  generate_calibrated_strategies(graph, costs_of(calibration, trains), paths);
  std::vector<double> seconds;
  for (const Node& node : graph.nodes)
    seconds.push_back(std::ranges::min(node.strategies, {}, &Strategy::compute).compute);
  return seconds;
}

/// By node: its first reader. The backward pass of that reader is the last one to add to the node's gradient.
std::vector<int> first_readers(const Graph& graph) {
  std::vector<int> first(graph.nodes.size(), -1);
  for (size_t node = graph.nodes.size(); node-- > 0;)
    for (const int input : graph.nodes[node].inputs) first[static_cast<size_t>(input)] = static_cast<int>(node);
  return first;
}

}  // namespace

double overlapped_seconds(const std::vector<TimelineBucket>& buckets, double backward_s, double slowdown) {
  double now = 0, done = 0;  // of the backward pass
  for (const TimelineBucket& bucket : buckets) {
    now += std::max(0.0, bucket.ready_s - done);
    done = std::max(done, bucket.ready_s);
    const double both = std::min(bucket.seconds, backward_s - done);
    now += slowdown * both + (bucket.seconds - both);
    done += both;
  }
  return now + (backward_s - done);
}

std::vector<Gradient> gradients_of(Graph graph, const Calibration& calibration) {
  const std::vector<char> has_gradient = nodes_with_gradients(graph);
  const std::vector<double> both = kernel_seconds(graph, calibration, true),
                            forward = kernel_seconds(graph, calibration, false);
  std::vector<Gradient> gradients;
  double seconds = 0;
  const auto add = [&](const std::vector<int64_t>& shape, const TensorType& type) {
    const auto element_bytes = static_cast<double>(type.element_bytes);
    Gradient& gradient = gradients.emplace_back(Gradient{1, 1, element_bytes, std::exchange(seconds, 0)});
    if (!shape.empty()) gradient.rows = static_cast<double>(shape.front());
    for (size_t dim = 1; dim < shape.size(); ++dim) gradient.columns *= static_cast<double>(shape[dim]);
  };
  const std::vector<int> first = first_readers(graph);
  for (size_t node = graph.nodes.size(); node-- > 0;) {
    seconds += std::max(0.0, both[node] - forward[node]);
    for (const auto& [name, shape] : graph.nodes[node].parameters) add(shape, graph.nodes[node].results.front());
    for (const int input : std::set(graph.nodes[node].inputs.begin(), graph.nodes[node].inputs.end())) {
      const Node& held = graph.nodes[static_cast<size_t>(input)];
      const bool is_last = first[static_cast<size_t>(input)] == static_cast<int>(node);
      if (held.op == "get_attr" && is_last && has_gradient[static_cast<size_t>(input)])
        add(held.results.front().shape, held.results.front());
    }
  }
  if (gradients.empty()) refuse("the graph has no parameters, so there are no gradients to send");
  gradients.back().backward_s += seconds;
  return gradients;
}

bool is_better(const TrafficCost& cost, const TrafficCost& than) {
  if (cost.seconds < than.seconds * (1 - kSameTime)) return true;
  return cost.seconds <= than.seconds * (1 + kSameTime) && cost.memory < than.memory * (1 - kSameTime);
}

std::string describe(const GradientWay& way) {
  std::vector<std::string> parts{way.is_sharded ? "reduce-scatter and all-gather" : "all-reduce"};
  if (way.compression == Compression::top_k) parts = {"all-gather of top-k, 1 % of the elements"};
  if (way.compression == Compression::cast) parts.emplace_back("cast to half the bytes");
  if (way.compression == Compression::blocks) parts.emplace_back("int8 blocks");
  if (way.compression == Compression::low_rank) parts.push_back(fmt::format("low rank {}", kRank));
  if (way.by_level) parts.emplace_back("by levels");
  if (way.overlaps) parts.emplace_back("overlapped");
  if (way.has_views) parts.emplace_back("buckets as views");
  if (way.is_of_framework())
    parts.push_back(way.accumulates ? fmt::format("of {} accumulated passes", way.passes)
                                    : fmt::format("of parameters after {} local steps", way.passes));
  return fmt::format("{}", fmt::join(parts, ", "));
}

TrafficCost traffic_cost(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                         const GradientWay& way, double bucket_bytes) {
  check(gradients, mesh, calibration);
  check(way);
  check("bytes of a bucket", bucket_bytes, 1);
  return Exchange(gradients, mesh, calibration, way).cost(bucket_bytes);
}

TrafficCost traffic_cost(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration,
                         const GradientWay& way) {
  check(gradients, mesh, calibration);
  check(way);
  Exchange exchange(gradients, mesh, calibration, way);
  TrafficCost best = exchange.cost(exchange.bytes());
  for (double size = exchange.least_bucket(); size < exchange.bytes(); size *= 2)
    if (const TrafficCost cost = exchange.cost(size); is_better(cost, best)) best = cost;
  return best;
}

}  // namespace seqtile::planner
