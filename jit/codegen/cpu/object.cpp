// jit/codegen/cpu/object.cpp -- the LLVM half of emit_blob: passes and code generation; see object.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/object.h"

#include "jit/base/assert.h"
#include "jit/base/forever.h"
#include "jit/codegen/cpu/blob.h"
#include "jit/codegen/cpu/instrument.h"
#include "jit/codegen/stages.h"

#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Utils/Cloning.h>

namespace seqtile::cpu {
namespace {

/// Passes of the code generator that cost more than they give: the lowering writes loops with one induction variable
/// and constant offsets, which strength reduction takes a quarter of the time to turn into longer code.
class WorthwhilePasses final : public llvm::OptPassGate {
 public:
  bool isEnabled() const override { return true; }
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) override {
    return pass != "Loop Strength Reduction" && pass != "X86 Domain Reassignment Pass";
  }
};

void set_attributes(llvm::Module& module, const Target& target) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.setDSOLocal(true);  // addresses are PC-relative, never through a global offset table
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    function.addFnAttr("no-builtins");
    // LLVM's x86-64-v4 prefers 256 bits, a choice for code that mixes; kernels are vector code throughout.
    if (target.vector_bytes == 64) function.addFnAttr("prefer-vector-width", "512");
  }
  for (llvm::GlobalVariable& global : module.globals())
    if (!global.isDeclaration()) global.setDSOLocal(true);
}

void dump_stages(const llvm::Module& module, llvm::TargetMachine& machine, const StageDump& dump) {
  dump("ll", codegen::print(module));
  // Code generation rewrites the module, so the assembly text is made from a copy.
  const auto copy = llvm::CloneModule(module);
  const auto assembly = codegen::generate(*copy, machine, llvm::CodeGenFileType::AssemblyFile, codegen::Cleanup::plain);
  dump("asm", std::string_view(assembly.data(), assembly.size()));
}

std::string entry_name(const llvm::Module& module) {
  std::string name;
  for (const llvm::Function& function : module) {
    if (function.isDeclaration() || function.hasLocalLinkage()) continue;
    SEQTILE_ASSERT(name.empty());
    name = function.getName().str();
  }
  SEQTILE_ASSERT(!name.empty());
  return name;
}

}  // namespace

KernelBinary emit_blob(llvm::Module& module, const Target& target, const StageDump& dump, Sanitizer sanitizer) {
  llvm::TargetMachine& machine = codegen::target_machine(target);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine.createDataLayout());
  set_attributes(module, target);
  codegen::verify(module, entry_name(module));
  codegen::clean_up(module, machine, codegen::Cleanup::plain);
  instrument(module, machine, sanitizer);
  static WorthwhilePasses& worthwhile =
      forever(WorthwhilePasses());  // stateless; the context refers to it from here on
  module.getContext().setOptPassGate(worthwhile);
  if (dump) dump_stages(module, machine, dump);
  const auto object = codegen::generate(module, machine, llvm::CodeGenFileType::ObjectFile, codegen::Cleanup::plain);

  KernelBinary binary;
  binary.symbol = entry_name(module);
  binary.target = target.name;
  binary.stage = "blob";
  Blob blob = link_blob({object.data(), object.size()}, binary.symbol);
  binary.code = std::move(blob.code);
  binary.entry_offset = blob.entry_offset;
  return binary;
}

}  // namespace seqtile::cpu
