// jit/codegen/cpu/instrument.cpp -- see instrument.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/instrument.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "jit/base/assert.h"
#include "seqtile/error.h"

#if SEQTILE_LLVM_SANITIZERS
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Transforms/Instrumentation/AddressSanitizer.h>
#include <llvm/Transforms/Instrumentation/ThreadSanitizer.h>
#include <llvm/Transforms/Scalar/ScalarizeMaskedMemIntrin.h>

namespace seqtile::cpu {
namespace {

/// The stack and the constants of generated code stay as they are: what redzones around them would need of the run-time
/// is set up when a program is loaded.
void leave_stack_and_constants_alone() {
  for (const char* name : {"asan-stack", "asan-globals"}) {
    const auto& switches = llvm::cl::getRegisteredOptions();
    const auto found = switches.find(name);
    SEQTILE_ASSERT(found != switches.end());
    found->second->reset();
    const bool failed = found->second->addOccurrence(0, name, "false");
    SEQTILE_ASSERT(!failed);
  }
}

llvm::ModulePassManager passes_of(Sanitizer sanitizer) {
  llvm::ModulePassManager passes;
  // Checks know no masked accesses: they become one access for each element that there is.
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::ScalarizeMaskedMemIntrinPass()));
  if (sanitizer == Sanitizer::thread) {
    passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::ThreadSanitizerPass()));
  } else {
    leave_stack_and_constants_alone();
    passes.addPass(llvm::AddressSanitizerPass({}, /*UseGlobalGC=*/false, /*UseOdrIndicator=*/false,
                                              llvm::AsanDtorKind::None, llvm::AsanCtorKind::None));
  }
  return passes;
}

void run(llvm::Module& module, llvm::TargetMachine& machine, llvm::ModulePassManager passes) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  passes.run(module, modules);
}

/// A blob has no external symbols: each one that the passes have left becomes its address.
void resolve_symbols(llvm::Module& module) {
  for (llvm::Function& function : llvm::make_early_inc_range(module)) {
    if (!function.isDeclaration() || function.isIntrinsic() || function.use_empty()) continue;
    const std::string name = function.getName().str();
    void* address = dlsym(RTLD_DEFAULT, name.c_str());
    if (!address)
      throw Error(ErrorCode::unsupported,
                  fmt::format("instrumented code needs {}, which this process does not have; link it with the "
                              "sanitizer (-fsanitize=...)",
                              name));
    llvm::Type* word = llvm::Type::getInt64Ty(module.getContext());
    llvm::Constant* number = llvm::ConstantInt::get(word, reinterpret_cast<uintptr_t>(address));
    function.replaceAllUsesWith(llvm::ConstantExpr::getIntToPtr(number, function.getType()));
    function.eraseFromParent();
  }
}

}  // namespace

void instrument(llvm::Module& module, llvm::TargetMachine& machine, Sanitizer sanitizer) {
  if (sanitizer == Sanitizer::none) return;
  const auto attribute =
      sanitizer == Sanitizer::thread ? llvm::Attribute::SanitizeThread : llvm::Attribute::SanitizeAddress;
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) function.addFnAttr(attribute);
  run(module, machine, passes_of(sanitizer));
  resolve_symbols(module);
}

}  // namespace seqtile::cpu
#else
namespace seqtile::cpu {

void instrument(llvm::Module&, llvm::TargetMachine&, Sanitizer sanitizer) {
  if (sanitizer != Sanitizer::none)
    throw Error(ErrorCode::unsupported, "the static build has no code for sanitizers; use the one with LLVM's library");
}

}  // namespace seqtile::cpu
#endif
