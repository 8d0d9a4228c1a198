// planner/compat/compat_costs.cpp -- see compat_costs.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/compat_costs.h"

#include <algorithm>

namespace seqtile::planner {

bool divides(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout) {
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] % mesh.devices(layout.axes_of(static_cast<int>(dim))) != 0) return false;
  return true;
}

double local_elements(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout) {
  double elements = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    elements *= static_cast<double>(shape[dim]) / mesh.devices(layout.axes_of(static_cast<int>(dim)));
  return elements;
}

double compat_all_reduce(const Mesh& mesh, AxisSet axes, double elements) {
  if (axes == 0) return 0;
  double alpha = 0, beta = 0;
  for (int axis = 0; axis < mesh.num_axes; ++axis) {
    if (!(axes >> axis & 1)) continue;
    alpha = std::max(alpha, mesh.alpha[static_cast<size_t>(axis)]);
    beta = std::max(beta, mesh.beta[static_cast<size_t>(axis)]);
  }
  const double n = mesh.devices(axes);
  return (alpha + beta * 2 * (n - 1) / n * elements + 0.01) * kCompatBytes;
}

double compat_gather_all(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout) {
  double elements = local_elements(mesh, shape, layout), forward = 0, backward = 0;
  for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim)
    for (int axis = mesh.num_axes - 1; axis >= 0; --axis) {
      if (!(layout.axes_of(dim) >> axis & 1)) continue;
      const auto a = static_cast<size_t>(axis);
      const double n = mesh.shape[a];
      forward += (mesh.alpha[a] + mesh.beta[a] * (n - 1) / n * elements + 0.1) * kCompatBytes;
      backward += 100.0 * kCompatBytes;
      elements *= n;
    }
  return forward + backward;
}

}  // namespace seqtile::planner
