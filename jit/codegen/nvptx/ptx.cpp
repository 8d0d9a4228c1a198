// jit/codegen/nvptx/ptx.cpp -- the LLVM half of emit_ptx: passes and code generation; see lowering.h.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>
#include <mutex>

#include "jit/codegen/nvptx/lowering.h"
#include "jit/codegen/nvptx/program.h"
#include "jit/error.h"

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

// LLVM's own initialisers name every target that it was configured with, linked or not.
extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace seqtile::nvptx {
namespace {

/// Tiled code needs cleaning up only: O3 takes five times as long and gives the same registers.
constexpr const char* kPasses =
    "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg,reassociate,early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,adce)";

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Shared addresses of 32 bits; a process-wide switch, so it is set before any thread compiles.
    const char* arguments[] = {"seqtile", "-nvptx-short-ptr"};
    llvm::cl::ParseCommandLineOptions(2, arguments);
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
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
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  std::unique_ptr<llvm::TargetMachine> machine(llvm_target->createTargetMachine(
      target.triple, target.cpu, target.features, options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Default));
  SEQTILE_ASSERT(machine != nullptr);
  return machine;
}

llvm::TargetMachine& target_machine(const Target& target) {
  thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
  auto& machine = machines[target.name];
  if (!machine) machine = make_target_machine(target);
  return *machine;
}

void verify(const llvm::Module& module) {
  std::string complaint;
  llvm::raw_string_ostream stream(complaint);
  if (llvm::verifyModule(module, &stream))
    throw Error(ErrorCode::internal,
                fmt::format("kernel {}: invalid LLVM IR: {}", module.getName().str(), stream.str()));
}

void run_passes(llvm::Module& module, llvm::TargetMachine& machine) {
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
  llvm::ModulePassManager passes;
  llvm::cantFail(builder.parsePassPipeline(passes, kPasses));
  passes.run(module, modules);
}

}  // namespace

PtxKernel emit_ptx(const ir::Function& function, const Target& target, const StageDump& dump) {
  llvm::TargetMachine& machine = target_machine(target);
  llvm::LLVMContext context;
  llvm::Module module(function.name(), context);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine.createDataLayout());
  Program program(module, target, function);
  program.lower();
  verify(module);
  run_passes(module, machine);
  if (dump) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module.print(stream, nullptr);
    dump("ll", stream.str());
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  const bool refused = machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile, true);
  SEQTILE_ASSERT(!refused);
  passes.run(module);
  PtxKernel kernel{std::string(bytes.data(), bytes.size()), program.launch()};
  if (dump) dump("ptx", kernel.text);
  return kernel;
}

}  // namespace seqtile::nvptx
