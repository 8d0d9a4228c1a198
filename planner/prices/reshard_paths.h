// planner/prices/reshard_paths.h -- the cheapest path from one layout of a tensor to another, in seconds.
// SPDX-License-Identifier: Apache-2.0
//
// Each mesh axis is in one state: its devices have copies, partial sums, or parts of a dimension. A step changes the
// state of one axis by one collective along it. Only operators make partial sums. Layouts are numbered, so that the
// costs of one shape form a table; a row is computed when it is first asked for. The highest of several axes that cut
// one dimension is the innermost, and only the innermost axis can leave or come. So [S01, R] becomes [S1, R] by two
// all-gathers and a slice or, if that is cheaper, through [S0, S1] and [R, S1].
#pragma once
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planner/graph/mesh.h"

namespace seqtile::planner {

enum class Collective : uint8_t { slice, all_gather, reduce_scatter, all_reduce, all_to_all };

/// Seconds of one collective on a ring along an axis: a message takes alpha, a byte beta. `bytes` are those of a device
/// on the smaller side: before an all_gather, after a reduce_scatter, on either side of the others.
/// Source: the usual ring formulas; an all_reduce is a reduce_scatter and an all_gather.
double collective_seconds(const Mesh& mesh, Collective collective, int axis, double bytes);

struct ReshardStep {
  Collective collective = Collective::slice;
  int8_t axis = 0;
  int to = 0;  ///< number of the layout after the step
};

/// All layouts of tensors of one rank, numbered, and the steps from each.
class LayoutSpace {
 public:
  LayoutSpace(int num_axes, int rank);
  int size() const { return static_cast<int>(layouts_.size()); }
  Layout layout(int number) const { return layouts_[static_cast<size_t>(number)]; }
  int number_of(Layout layout) const;
  std::span<const ReshardStep> steps_from(int number) const;

 private:
  void add_steps(Layout from);

  int num_axes_, rank_;
  std::vector<Layout> layouts_;
  std::vector<ReshardStep> steps_;
  std::vector<size_t> first_step_;  ///< by layout, and the end of the last one
};

/// Paths between all layouts of tensors of one shape and element size.
class ReshardPaths {
 public:
  /// Requires: `mesh` and `layouts` outlive this object.
  ReshardPaths(const Mesh& mesh, const LayoutSpace& layouts, std::span<const int64_t> shape, int64_t element_bytes);

  const LayoutSpace& layouts() const { return layouts_; }
  /// Seconds of the cheapest path between two layouts, by number. Infinite where a sum would have to become partial.
  /// Does not allocate.
  double seconds(int from, int to) {
    if (!is_known_[static_cast<size_t>(from)]) find_paths(from);
    return seconds_[static_cast<size_t>(from * layouts_.size() + to)];
  }
  double seconds(Layout from, Layout to) { return seconds(layouts_.number_of(from), layouts_.number_of(to)); }
  /// The steps of a cheapest path. Requires: there is a path.
  std::vector<ReshardStep> path(Layout from, Layout to);
  /// Seconds of one step from a layout, by number.
  double step_seconds(int from, const ReshardStep& step) const;

 private:
  void find_paths(int from);

  const Mesh& mesh_;
  const LayoutSpace& layouts_;
  std::vector<double> bytes_;    ///< bytes of a device, by layout; negative where some device would have nothing
  std::vector<double> seconds_;  ///< [from][to]
  std::vector<int> before_;      ///< [from][to]: the layout before `to` on the path
  std::vector<char> is_known_, is_done_;
};

/// The paths of all shapes over one mesh. Each shape is made when it is first asked for.
class ReshardTables {
 public:
  /// Requires: `mesh` outlives this object.
  explicit ReshardTables(const Mesh& mesh) : mesh_(mesh) {}
  ReshardPaths& of(const std::vector<int64_t>& shape, int64_t element_bytes);

 private:
  const Mesh& mesh_;
  std::map<int, LayoutSpace> spaces_;  ///< by rank of the tensor
  std::map<std::pair<std::vector<int64_t>, int64_t>, ReshardPaths> paths_;
};

}  // namespace seqtile::planner
