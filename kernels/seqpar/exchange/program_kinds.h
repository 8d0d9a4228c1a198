// kernels/seqpar/exchange/program_kinds.h -- a grid whose programs are of several kinds, one kind after the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <span>

#include "seqtile/builder.h"

namespace seqtile::kernels::seqpar {

struct ProgramKind {
  Operand count;
  std::function<void(Var index)> body;  ///< `index`: among those of its kind
};

/// Emits the work of program `id`; a program behind the last kind has none.
void run_program(KernelBuilder& b, Var id, std::span<const ProgramKind> kinds);

}  // namespace seqtile::kernels::seqpar
