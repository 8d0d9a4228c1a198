// planner/graph/layout.cpp -- see layout.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/layout.h"

#include "seqtile/error.h"

namespace seqtile::planner {

std::string axes_name(AxisSet axes) {
  if (axes == 0) return "R";
  std::string name = "S";
  for (int axis = 0; axis < kMaxAxes; ++axis)
    if (axes >> axis & 1) name += static_cast<char>('0' + axis);
  return name;
}

AxisSet parse_axes(const std::string& name) {
  AxisSet axes = 0;
  for (size_t i = 1; i < name.size(); ++i) {
    const int axis = name[i] - '0';
    if (axis < 0 || axis >= kMaxAxes || axes >> axis) break;  // ascending, each axis once
    axes |= 1u << axis;
  }
  if (axes_name(axes) != name)
    throw Error(ErrorCode::invalid_argument, "'" + name +
                                                 "' is no cut of a dimension: R, or S with rising mesh axes below " +
                                                 std::to_string(kMaxAxes) + " as in S01, is wanted");
  return axes;
}

std::string layout_name(Layout layout, int rank) {
  std::string name = "[";
  for (int dim = 0; dim < rank; ++dim) name += (dim ? ", " : "") + axes_name(layout.axes_of(dim));
  name += "]";
  if (layout.partial()) name += "+P" + axes_name(layout.partial()).substr(1);
  return name;
}

}  // namespace seqtile::planner
