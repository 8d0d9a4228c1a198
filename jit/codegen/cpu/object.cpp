// jit/codegen/cpu/object.cpp -- the LLVM half of emit_blob: passes and code generation; see object.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/cpu/object.h"

#include <map>
#include <memory>
#include <mutex>

#include "jit/codegen/cpu/blob.h"
#include "jit/error.h"

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Utils/Cloning.h>

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
}

namespace seqtile::cpu {
namespace {

/// The lowering has tiled, unrolled and vectorised already: what remains is to clean up after it. This list gives the
/// code of O3 in a fifth of its time. Nothing here or below may form memset or memcpy calls (loop-idiom does).
constexpr const char* kPasses =
    "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg,early-cse<memssa>,adce)";

/// Passes of the code generator that cost more than they give: the lowering writes loops with one induction variable
/// and constant offsets, which strength reduction takes a quarter of the time to turn into longer code.
class WorthwhilePasses final : public llvm::OptPassGate {
 public:
  bool isEnabled() const override { return true; }
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) override {
    return pass != "Loop Strength Reduction" && pass != "X86 Domain Reassignment Pass";
  }
};

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

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    initialize_x86();
    initialize_aarch64();
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

/// One per thread and target: a machine may serve one compilation at a time, and making it computes tables for every
/// subtarget that it meets.
llvm::TargetMachine& target_machine(const Target& target) {
  thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
  auto& machine = machines[target.name];
  if (!machine) machine = make_target_machine(target);
  return *machine;
}

/// Library functions that passes may assume or introduce: none.
llvm::TargetLibraryInfoImpl no_library(const Target& target) {
  llvm::TargetLibraryInfoImpl library{llvm::Triple(target.triple)};
  library.disableAllFunctions();
  return library;
}

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

void run_passes(llvm::Module& module, llvm::TargetMachine& machine, const Target& target) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(no_library(target)); });
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

llvm::SmallVector<char, 0> generate(llvm::Module& module, llvm::TargetMachine& machine, const Target& target,
                                    llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  passes.add(new llvm::TargetLibraryInfoWrapperPass(no_library(target)));
  const bool refused = machine.addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true);
  SEQTILE_ASSERT(!refused);
  passes.run(module);
  return bytes;
}

void dump_stages(const llvm::Module& module, llvm::TargetMachine& machine, const Target& target,
                 const StageDump& dump) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  dump("ll", stream.str());
  // Code generation rewrites the module, so the assembly text is made from a copy.
  const auto copy = llvm::CloneModule(module);
  const auto assembly = generate(*copy, machine, target, llvm::CodeGenFileType::AssemblyFile);
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

/// LLVM crashes on IR that breaks its rules; finding out takes a hundredth of the compilation.
void verify(const llvm::Module& module) {
  std::string complaint;
  llvm::raw_string_ostream stream(complaint);
  if (llvm::verifyModule(module, &stream))
    throw Error(ErrorCode::internal, fmt::format("kernel {}: invalid LLVM IR: {}", entry_name(module), stream.str()));
}

}  // namespace

bool has_code_generator(const Target& target) {
  initialize_llvm();
  std::string reason;
  return llvm::TargetRegistry::lookupTarget(target.triple, reason) != nullptr;
}

KernelBinary emit_blob(llvm::Module& module, const Target& target, const StageDump& dump) {
  llvm::TargetMachine& machine = target_machine(target);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine.createDataLayout());
  set_attributes(module, target);
  verify(module);
  run_passes(module, machine, target);
  static WorthwhilePasses worthwhile;  // stateless; the context refers to it from here on
  module.getContext().setOptPassGate(worthwhile);
  if (dump) dump_stages(module, machine, target, dump);
  const auto object = generate(module, machine, target, llvm::CodeGenFileType::ObjectFile);

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
