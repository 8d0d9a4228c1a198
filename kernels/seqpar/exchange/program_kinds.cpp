// kernels/seqpar/exchange/program_kinds.cpp -- see program_kinds.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/program_kinds.h"

namespace seqtile::kernels::seqpar {

void run_program(KernelBuilder& b, Var id, std::span<const ProgramKind> kinds) {
  const ProgramKind& first = kinds.front();
  const auto others = [&] { run_program(b, id - first.count, kinds.subspan(1)); };
  b.when(id<first.count, [&] { first.body(id); }, kinds.size()> 1 ? others : std::function<void()>());
}

}  // namespace seqtile::kernels::seqpar
