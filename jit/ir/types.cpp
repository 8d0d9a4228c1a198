// jit/ir/types.cpp -- the text form of types.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ir.h"

namespace seqtile::ir {

std::string to_string(const Type& type) {
  const std::string element(dtype_name(type.dtype));
  if (type.is_scalar()) return element;
  std::string text = type.is_tile() ? "tile<[" : "view<[";
  for (int i = 0; i < type.rank; ++i) {
    if (i > 0) text += ", ";
    text += type.is_view() && type.shape[i] == kDynamic ? "?" : std::to_string(type.shape[i]);
  }
  text += "], " + element;
  if (type.is_view()) {
    if (type.contiguous) text += ", contiguous";
    text += ", align " + std::to_string(type.alignment);
    if (type.noalias) text += ", noalias";
  }
  return text + ">";
}

}  // namespace seqtile::ir
