// autotune/worker/count.cpp -- see count.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/count.h"

#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "autotune/gpu_model.h"
#include "jit/sim/device/counted_launch.h"
#include "seqtile/compiler.h"

namespace seqtile::autotune {

ProgramCounts count_program(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                            const Target& target) {
  Target text = target;
  text.cubin_arch.clear();
  const KernelBinary binary = compile(*build_kernel(op, workload, config, target), text);
  CheckBuffers buffers(op, workload, length);
  const Problem& problem = buffers.bind(length, 0);
  buffers.poison_outputs();
  const auto specs = op.workspaces ? op.workspaces(workload, config) : std::vector<Workspace>{};
  const auto workspaces = buffers.make_workspaces(specs);
  std::vector<std::span<std::byte>> memory;
  for (const Tensor& tensor : problem.tensors)
    if (const size_t bytes = tensor_bytes(tensor)) memory.push_back({static_cast<std::byte*>(tensor.data), bytes});

  const auto scalars = std::span(problem.symbols).subspan(buffers.schema().symbols.size());
  KernelCall call;
  const CallLayout layout(buffers.schema(), true);
  layout.bind(problem.tensors, problem.symbols[0], scalars, call);
  for (size_t i = 0; i < workspaces.size(); ++i) {
    append_workspace(call, workspaces[i].base, workspaces[i].elements);
    const size_t bytes = static_cast<size_t>(workspaces[i].elements * dtype_bytes(specs[i].dtype));
    memory.push_back({static_cast<std::byte*>(workspaces[i].base), bytes});
  }
  layout.finish(scalars, nullptr, call);
  const Grid grid = grid_of(op.grid(workload, config), problem.symbols);
  const LaunchCounts counts = count_launch(binary, grid, call.block(), memory);
  const double programs = static_cast<double>(grid[0] * grid[1] * grid[2]);
  return {static_cast<double>(counts.warp_instructions) / programs,
          static_cast<double>(counts.global_sectors) / programs,
          static_cast<double>(counts.shared_wavefronts) / programs};
}

}  // namespace seqtile::autotune
