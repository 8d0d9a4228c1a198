// jit/compiler.cpp -- the spine: every stage in order, one line each; see seqtile/compiler.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/compiler.h"

#include <mutex>

#include "jit/abi/cubin.h"
#include "jit/base/process_exit.h"
#include "jit/codegen/cpu/lowering.h"
#include "jit/codegen/cpu/object.h"
#include "jit/codegen/nvptx/lowering.h"
#include "jit/codegen/nvptx/ptxas.h"
#include "jit/codegen/stages.h"
#include "seqtile/builder.h"

#include <fmt/format.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

namespace seqtile {

namespace {

KernelBinary compile_for_gpu(const ir::Function& function, const Target& target, const StageDump& dump) {
  const nvptx::PtxKernel kernel = nvptx::emit_ptx(function, target, dump);
  KernelBinary binary{.symbol = function.name(), .target = target.name, .stage = "ptx", .code = {}};
  const auto text = std::as_bytes(std::span(kernel.text));
  binary.code.assign(text.begin(), text.end());
  binary.num_slots = static_cast<uint32_t>(ir::num_slots(function));
  binary.gpu = kernel.launch;
  if (!target.cubin_arch.empty()) nvptx::assemble(binary, target, dump);
  return binary;
}

KernelBinary compile_inside(const ir::Function& function, const Target& target, const StageDump& dump,
                            Sanitizer sanitizer) {
  if (dump) dump("tile", ir::print(function));
  ir::verify(function);
  if (target.is_gpu()) return compile_for_gpu(function, target, dump);
  llvm::LLVMContext context;
  const cpu::LoweredModule lowered = cpu::lower(function, target, context);
  KernelBinary binary = cpu::emit_blob(*lowered.module, target, dump, sanitizer);
  binary.arena_bytes = lowered.arena_bytes;
  binary.num_slots = static_cast<uint32_t>(ir::num_slots(function));
  return binary;
}

/// Compiles a small kernel before anything else in the process. LLVM makes its statics in the first compilation, and an
/// exit() waits only for passes that begin after that.
void make_statics(const Target& target) {
  static std::once_flag of_cpus, of_gpus;
  std::call_once(target.is_gpu() ? of_gpus : of_cpus, [&] {
    const ExitPass pass;
    KernelBuilder b("statics");
    Var x = b.view("x", DType::f32, {kDynamic, kDynamic});
    Var values = b.load(x, {b.program_id(0), 0}, {1, 64});
    b.store(x, {b.program_id(0), 0}, b.exp(values) / b.expand(b.sum(values, 1), 1));
    Target plain = target;
    plain.cubin_arch.clear();
    llvm::LibFunc found;  // the small kernel needs neither
    (void)llvm::TargetLibraryInfoImpl(llvm::Triple()).getLibFunc("memcpy", found);
    llvm::nulls();
    compile_inside(*b.finish(), plain, {}, Sanitizer::none);
  });
}

}  // namespace

KernelBinary compile(const ir::Function& function, const Target& target, const StageDump& dump, Sanitizer sanitizer) {
  make_statics(target);
  const ExitPass pass;
  return compile_inside(function, target, dump, sanitizer);
}

bool can_compile_for(const Target& target) { return codegen::has_code_generator(target); }

Target assembled(Target target, std::string_view arch) {
  const std::string wanted = arch.empty() ? target.cpu : std::string(arch);
  const auto ptxas = nvptx::usable_ptxas(wanted);
  if (!ptxas) return target;
  target.cubin_arch = wanted;
  target.ptxas = *ptxas;
  return target;
}

bool is_made_for(const KernelBinary& binary, const Target& target) {
  if (binary.target != target.name) return false;
  if (!target.is_gpu()) return true;
  if (binary.stage == "ptx") return true;  // also where cubins are made, by an assembler that did not know this one
  const int sm = target.loads_cubins ? target.gpu.compute_capability : sm_number(target.cubin_arch);
  return binary.stage == "cubin" && cubin_sm(binary.code) == sm;
}

std::string_view toolchain_version() { return "seqtile 0.1.0, LLVM " LLVM_VERSION_STRING ", codegen 14"; }

std::string toolchain_version(const Target& target) {
  std::string text(toolchain_version());
  if (!target.cubin_arch.empty())
    text += fmt::format(", {} for {}", nvptx::ptxas_identity(target.ptxas), target.cubin_arch);
  return text;
}

}  // namespace seqtile
