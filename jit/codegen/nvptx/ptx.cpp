// jit/codegen/nvptx/ptx.cpp -- the LLVM half of emit_ptx: passes and code generation; see lowering.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/lowering.h"
#include "jit/codegen/nvptx/program.h"
#include "jit/codegen/stages.h"

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace seqtile::nvptx {
PtxKernel emit_ptx(const ir::Function& function, const Target& target, const StageDump& dump) {
  llvm::TargetMachine& machine = codegen::target_machine(target);
  llvm::LLVMContext context;
  llvm::Module module(function.name(), context);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine.createDataLayout());
  Program program(module, target, function);
  program.lower();
  codegen::verify(module, function.name());
  codegen::clean_up(module, machine, codegen::Cleanup::addresses);
  if (dump) dump("ll", codegen::print(module));
  const auto text =
      codegen::generate(module, machine, llvm::CodeGenFileType::AssemblyFile, codegen::Cleanup::addresses);
  PtxKernel kernel{std::string(text.data(), text.size()), program.launch()};
  if (dump) dump("ptx", kernel.text);
  return kernel;
}

}  // namespace seqtile::nvptx
