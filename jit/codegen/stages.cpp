// jit/codegen/stages.cpp -- see stages.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/stages.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "jit/base/assert.h"
#include "seqtile/error.h"

#include <fmt/format.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/Reassociate.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

// LLVM's own initialisers name every target that it was configured with, linked or not.
extern "C" {
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
void LLVMInitializeAArch64TargetInfo();
void LLVMInitializeAArch64Target();
void LLVMInitializeAArch64TargetMC();
void LLVMInitializeAArch64AsmPrinter();
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace seqtile::codegen {
namespace {

void initialize_x86() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
}

#if SEQTILE_LLVM_AARCH64
void initialize_aarch64() {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}
#else
void initialize_aarch64() {}
#endif

void initialize_nvptx() {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  // Shared addresses of 32 bits. A program may have set its own switches: this one is set, the others are left alone.
  constexpr const char* kSwitch = "nvptx-short-ptr";
  const auto& switches = llvm::cl::getRegisteredOptions();
  const auto found = switches.find(kSwitch);
  SEQTILE_ASSERT(found != switches.end());
  const bool failed = found->second->addOccurrence(0, kSwitch, "true");
  SEQTILE_ASSERT(!failed);
}

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    initialize_x86();
    initialize_aarch64();
    initialize_nvptx();
  });
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target) {
  initialize_llvm();
  std::string reason;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(target.triple, reason);
  if (!llvm_target)
    throw Error(ErrorCode::unsupported,
                fmt::format("target {}: this build's LLVM has no code generator for it: {}", target.name, reason));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;  // a * b + c becomes one instruction wherever it can
  std::unique_ptr<llvm::TargetMachine> machine(
      llvm_target->createTargetMachine(target.triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                       llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/false));
  SEQTILE_ASSERT(machine != nullptr);
  return machine;
}

/// Library functions that passes may assume or introduce: none.
llvm::TargetLibraryInfoImpl no_library(const llvm::TargetMachine& machine) {
  llvm::TargetLibraryInfoImpl library{machine.getTargetTriple()};
  library.disableAllFunctions();
  return library;
}

}  // namespace

bool has_code_generator(const Target& target) {
  initialize_llvm();
  std::string reason;
  return llvm::TargetRegistry::lookupTarget(target.triple, reason) != nullptr;
}

llvm::TargetMachine& target_machine(const Target& target) {
  thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
  auto& machine = machines[target.name];
  if (!machine) machine = make_target_machine(target);
  return *machine;
}

void verify(const llvm::Module& module, const std::string& kernel) {
  std::string complaint;
  llvm::raw_string_ostream stream(complaint);
  if (llvm::verifyModule(module, &stream))
    throw Error(ErrorCode::internal,
                fmt::format("kernel {}: invalid LLVM IR: {}", kernel, complaint.substr(0, complaint.find('\n'))));
}

// Passes by name would link all that LLVM has: 10 MB of the static library.
void clean_up(llvm::Module& module, llvm::TargetMachine& machine, Cleanup cleanup) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(no_library(machine)); });
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  const auto combine = [] { return llvm::InstCombinePass(llvm::InstCombineOptions().setVerifyFixpoint(false)); };
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(combine());
  passes.addPass(llvm::SimplifyCFGPass());
  if (cleanup == Cleanup::addresses) passes.addPass(llvm::ReassociatePass());
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  if (cleanup == Cleanup::addresses) passes.addPass(combine());
  passes.addPass(llvm::ADCEPass());
  llvm::ModulePassManager whole;
  whole.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  whole.run(module, modules);
}

std::string print(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

namespace {

/// LLVM's passes of code generation without those that find nothing left to do behind Cleanup::addresses.
class GeneratingPasses : public llvm::legacy::PassManager {
 public:
  explicit GeneratingPasses(Cleanup cleanup) : cleanup_(cleanup) {}
  void add(llvm::Pass* pass) override {
    constexpr std::string_view kFutile[] = {"Loop Strength Reduction", "Straight line strength reduction",
                                            "Nary reassociation"};
    const std::string_view name = pass->getPassName();
    if (cleanup_ == Cleanup::addresses && std::find(std::begin(kFutile), std::end(kFutile), name) != std::end(kFutile))
      delete pass;
    else llvm::legacy::PassManager::add(pass);
  }

 private:
  Cleanup cleanup_;
};

}  // namespace

llvm::SmallVector<char, 0> generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type,
                                    Cleanup cleanup) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  GeneratingPasses passes(cleanup);
  passes.add(new llvm::TargetLibraryInfoWrapperPass(no_library(machine)));
  const bool refused = machine.addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true);
  SEQTILE_ASSERT(!refused);
  passes.run(module);
  return bytes;
}

}  // namespace seqtile::codegen
