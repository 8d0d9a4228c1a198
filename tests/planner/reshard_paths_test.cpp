// tests/planner/reshard_paths_test.cpp -- cheapest changes of layout against another search, and by hand.
// SPDX-License-Identifier: Apache-2.0
#include "planner/prices/reshard_paths.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "planner/compat/compat_reshard.h"

namespace {

int64_t num_allocations = 0;

}  // namespace

// Counts the allocations of the whole program. Not inlined, or the compiler would see malloc() and delete.
[[gnu::noinline]] void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
// A sort's buffer. Without this operator a sanitizer's own one would give memory that our delete frees.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(size ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace seqtile::testing {
namespace {

using namespace planner;
constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr int kCopies = -1, kSums = -2;

/// The state of each axis: kCopies, kSums or the dimension that the axis cuts.
using States = std::vector<int>;

/// The same prices by Floyd and Warshall's search, over states instead of layouts, from formulas of total volumes.
class Oracle {
 public:
  Oracle(const Mesh& mesh, const std::vector<int64_t>& shape, double element_bytes)
      : mesh_(mesh), shape_(shape), element_bytes_(element_bytes) {
    States states(static_cast<size_t>(mesh.num_axes), kSums);
    do states_.push_back(states);
    while (next(states));
    const size_t count = states_.size();
    seconds_.assign(count, std::vector<double>(count, kNone));
    for (size_t i = 0; i < count; ++i) {
      seconds_[i][i] = 0;
      for (size_t j = 0; j < count; ++j)
        if (i != j && is_whole(states_[i]) && is_whole(states_[j])) seconds_[i][j] = step(states_[i], states_[j]);
    }
    for (size_t by = 0; by < count; ++by)
      for (size_t i = 0; i < count; ++i)
        for (size_t j = 0; j < count; ++j) seconds_[i][j] = std::min(seconds_[i][j], seconds_[i][by] + seconds_[by][j]);
  }

  const std::vector<States>& states() const { return states_; }
  double seconds(size_t from, size_t to) const { return seconds_[from][to]; }

  /// True if every device has an element.
  bool is_whole(const States& states) const {
    for (size_t dim = 0; dim < shape_.size(); ++dim) {
      const int64_t parts = parts_of(states, static_cast<int>(dim)), size = (shape_[dim] + parts - 1) / parts;
      if ((parts - 1) * size >= shape_[dim]) return false;
    }
    return true;
  }

 private:
  bool next(States& states) const {
    for (int& state : states) {
      if (++state < static_cast<int>(shape_.size())) return true;
      state = kSums;
    }
    return false;
  }

  int64_t parts_of(const States& states, int dim) const {
    int64_t parts = 1;
    for (size_t axis = 0; axis < states.size(); ++axis)
      if (states[axis] == dim) parts *= mesh_.shape[axis];
    return parts;
  }

  double bytes(const States& states) const {
    double bytes = element_bytes_;
    for (size_t dim = 0; dim < shape_.size(); ++dim)
      bytes *=
          std::ceil(static_cast<double>(shape_[dim]) / static_cast<double>(parts_of(states, static_cast<int>(dim))));
    return bytes;
  }

  static bool has_inner(const States& states, size_t axis, int dim) {
    for (size_t other = axis + 1; other < states.size(); ++other)
      if (states[other] == dim) return true;
    return false;
  }

  /// Seconds of a change of one axis; infinite if the change is no single step.
  double step(const States& from, const States& to) const {
    size_t axis = from.size();
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      if (axis < from.size()) return kNone;
      axis = i;
    }
    const int before = from[axis], after = to[axis];
    if (after == kSums || (before >= 0 && has_inner(from, axis, before)) || (after >= 0 && has_inner(to, axis, after)))
      return kNone;
    if (before == kCopies) return 0;
    const double n = mesh_.shape[axis], hops = n - 1;
    double messages = hops, volume = 0;
    if (before == kSums && after == kCopies) messages = 2 * hops, volume = 2 * hops / n * bytes(from);
    else if (before == kSums) volume = hops * bytes(to);
    else if (after == kCopies) volume = hops * bytes(from);
    else volume = hops / n * bytes(from);
    return messages * mesh_.alpha[axis] + volume * mesh_.beta[axis];
  }

  const Mesh& mesh_;
  const std::vector<int64_t> shape_;
  const double element_bytes_;
  std::vector<States> states_;
  std::vector<std::vector<double>> seconds_;
};

Layout layout_of(const States& states) {
  Layout layout;
  for (size_t axis = 0; axis < states.size(); ++axis) {
    const AxisSet bit = 1u << axis;
    if (states[axis] == kSums) layout = layout.with_partial(layout.partial() | bit);
    if (states[axis] >= 0) layout = layout.with(states[axis], layout.axes_of(states[axis]) | bit);
  }
  return layout;
}

bool is_near(double a, double b) { return a == b || std::abs(a - b) <= 1e-12 * std::abs(b); }

/// The number of pairs of layouts with different prices, or with a path that does not lead there at its price.
int64_t num_different(const Mesh& mesh, const std::vector<int64_t>& shape, int64_t& pairs) {
  const LayoutSpace layouts(mesh.num_axes, static_cast<int>(shape.size()));
  ReshardPaths paths(mesh, layouts, shape, 4);
  const Oracle oracle(mesh, shape, 4);
  REQUIRE(oracle.states().size() == static_cast<size_t>(layouts.size()));
  int64_t different = 0;
  for (size_t i = 0; i < oracle.states().size(); ++i)
    for (size_t j = 0; j < oracle.states().size(); ++j) {
      if (!oracle.is_whole(oracle.states()[i]) || !oracle.is_whole(oracle.states()[j])) continue;
      ++pairs;
      const Layout from = layout_of(oracle.states()[i]), to = layout_of(oracle.states()[j]);
      const double seconds = paths.seconds(from, to);
      bool is_same = is_near(seconds, oracle.seconds(i, j));
      if (is_same && seconds < kNone) {
        double sum = 0;
        int at = layouts.number_of(from);
        for (const ReshardStep& step : paths.path(from, to)) sum += paths.step_seconds(at, step), at = step.to;
        is_same = is_near(sum, seconds) && layouts.layout(at) == to;
      }
      different += !is_same;
    }
  return different;
}

}  // namespace

TEST_CASE("plan paths: all pairs of layouts cost what another search finds", "[plan]") {
  const Mesh meshes[] = {{1, {4}, {1e-5}, {1e-9}},
                         {2, {2, 4}, {1e-5, 3e-6}, {1e-9, 2e-10}},
                         {2, {2, 3}, {1e-6, 1e-6}, {1e-9, 1e-8}},
                         {3, {2, 2, 2}, {3e-5, 1e-6, 1e-6}, {1e-9, 1e-10, 5e-10}}};
  const std::vector<int64_t> shapes[] = {{64},         {7},           {64, 32},      {1024, 4096},
                                         {50, 9},      {8, 6, 10},    {4, 512, 64},  {16, 8, 12, 40},
                                         {2, 1, 5, 3}, {32, 3, 7, 7}, {128, 8, 1, 1}};
  int64_t pairs = 0;
  for (const Mesh& mesh : meshes)
    for (const std::vector<int64_t>& shape : shapes) {
      INFO(mesh.num_axes << " axes, rank " << shape.size() << ", first " << shape[0]);
      CHECK(num_different(mesh, shape, pairs) == 0);
    }
  CHECK(pairs > 100000);
}

TEST_CASE("plan paths: prices of single collectives are the ring formulas'", "[plan]") {
  const Mesh mesh{1, {8}, {1e-5}, {1e-9}};
  const LayoutSpace layouts(1, 2);
  const std::vector<int64_t> shape{64, 32};
  ReshardPaths paths(mesh, layouts, shape, 2);
  const double bytes = 64 * 32 * 2, alphas = 7e-5;
  const Layout whole, rows = whole.with(0, 1), columns = whole.with(1, 1), sums = whole.with_partial(1);
  CHECK(paths.seconds(rows, whole) == Approx(alphas + 7.0 / 8 * bytes * 1e-9));
  CHECK(paths.seconds(sums, rows) == Approx(alphas + 7.0 / 8 * bytes * 1e-9));
  CHECK(paths.seconds(sums, whole) == Approx(2 * alphas + 2 * 7.0 / 8 * bytes * 1e-9));
  CHECK(paths.seconds(rows, columns) == Approx(alphas + 7.0 / 8 * bytes / 8 * 1e-9));
  CHECK(paths.seconds(whole, rows) == 0);
  CHECK(paths.seconds(whole, sums) == kNone);
  CHECK(paths.seconds(rows, sums) == kNone);
}

TEST_CASE("plan paths: sums over two axes are scattered over the faster one first", "[plan]") {
  const Mesh mesh{2, {2, 8}, {1e-9, 1e-9}, {1e-8, 1e-10}};
  const LayoutSpace layouts(2, 1);
  const std::vector<int64_t> shape{1 << 20};
  ReshardPaths paths(mesh, layouts, shape, 4);
  const auto steps = paths.path(Layout().with_partial(3), Layout());
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].collective == Collective::reduce_scatter);
  CHECK(steps[0].axis == 1);
  CHECK(steps[1].collective == Collective::all_reduce);
  CHECK(steps[2].collective == Collective::all_gather);
}

TEST_CASE("plan paths: nothing is allocated while changes of layout are priced", "[plan]") {
  const Mesh mesh{2, {2, 4}, {1e-5, 3e-6}, {1e-9, 2e-10}};
  const LayoutSpace layouts(2, 3);
  const std::vector<int64_t> shape{8, 512, 64};
  ReshardPaths paths(mesh, layouts, shape, 4);
  double sum = 0;
  const int64_t before = num_allocations;
  for (int from = 0; from < layouts.size(); ++from)
    for (int to = 0; to < layouts.size(); ++to)
      if (const double seconds = paths.seconds(from, to); seconds < kNone) sum += seconds;
  int64_t searches = 0;
  for (int from = 0; from < layouts.size(); ++from)
    for (int to = 0; to < layouts.size(); ++to) {
      if (layouts.layout(from).partial() || layouts.layout(to).partial()) continue;
      sum += compat_reshard(mesh, shape, 4, OrderedLayout(layouts.layout(from)), layouts.layout(to)).total;
      ++searches;
    }
  CHECK(num_allocations == before);
  CHECK(searches == 256);
  CHECK(sum > 0);
  CHECK(std::make_unique<int>(1));  // an allocation is counted
  CHECK(num_allocations > before);
}

}  // namespace seqtile::testing
