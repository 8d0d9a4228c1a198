// jit/codegen/nvptx/lowering.h -- tile IR to LLVM IR for NVIDIA GPUs, and on to PTX text.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/device.h"
#include "seqtile/ir.h"
#include "seqtile/target.h"

namespace seqtile::nvptx {

struct PtxKernel {
  std::string text;
  GpuLaunch launch;
};

/// Errors: compile_failed, naming the operation that has no lowering, or the resource that a block needs and the GPU
/// does not have.
PtxKernel emit_ptx(const ir::Function& function, const Target& target, const StageDump& dump);

}  // namespace seqtile::nvptx
