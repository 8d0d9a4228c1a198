// tests/jit/codegen/nvptx/every_op_test.cpp -- all operations and element types compute right results or are refused.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/codegen/nvptx/ptxas.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"
#include "tests/support/kernels/op_kernels.h"
#include "tests/support/ptx/simulated_kernel.h"
#include "tests/support/temp_folder.h"

namespace seqtile {
namespace {

using testing::OpKernel;

/// Returns false if the kernel has no lowering; the error must name the operation. LLVM would end the process.
bool compiles(const OpKernel& kernel, const char* target, std::string* text = nullptr) {
  try {
    const KernelBinary binary = compile(*kernel.function, gpu_target(target));
    if (text) text->assign(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::compile_failed) throw;
    const std::string message = error.what();
    CHECK(message.find("kernel " + kernel.name + ": operation ") == 0);
    return false;
  }
}

/// Compiles the kernels from `first` on in a child process. Returns the kernel at which the child ended, or their
/// number.
size_t first_that_ends(const std::vector<OpKernel>& kernels, size_t first, const char* target) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    for (size_t i = first; i < kernels.size(); ++i) {
      if (write(pipe_ends[1], &i, sizeof(i)) != sizeof(i)) _exit(2);
      compiles(kernels[i], target);
    }
    const size_t all = kernels.size();
    _exit(write(pipe_ends[1], &all, sizeof(all)) == sizeof(all) ? 0 : 2);
  }
  close(pipe_ends[1]);
  size_t reached = first, next;
  while (read(pipe_ends[0], &next, sizeof(next)) == sizeof(next)) reached = next;
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  return reached;
}

}  // namespace

TEST_CASE("every op: compiles for GPUs or is refused by name", "[jit][nvptx]") {
  const std::vector<OpKernel> kernels = testing::every_op_kernel();
  for (const char* target : {"sm_80", "sm_90a"}) {
    std::string ended;
    for (size_t i = 0; i < kernels.size(); ++i) {
      i = first_that_ends(kernels, i, target);
      if (i < kernels.size()) ended += kernels[i].name + " ";
    }
    INFO(target);
    REQUIRE(ended == "");
  }
}

TEST_CASE("every op: the PTX of everything that compiles does what the interpreter does", "[jit][nvptx][sim]") {
  size_t refused = 0, ran = 0;
  for (const OpKernel& kernel : testing::every_op_kernel()) {
    if (!compiles(kernel, "sm_80")) {
      ++refused;
      continue;
    }
    ++ran;
    const testing::Operands want(kernel.params);
    testing::interpret_on(*kernel.function, {1, 1, 1}, want, {});
    for (const char* target : {"sm_80", "sm_90a"}) {
      INFO(kernel.name << " " << target);
      const testing::Operands got(kernel.params);
      std::string found;
      try {
        found = testing::SimulatedKernel(*kernel.function, target).run({1, 1, 1}, got);
      } catch (const Error& error) {
        found = error.what();  // the machine does not know this form
      }
      CHECK(found == "");
      CHECK(testing::first_difference(*kernel.function, kernel.params, want, got, kernel.tolerance) == "");
    }
  }
  CHECK(ran > 500);
  CHECK(refused < 100);
}

TEST_CASE("every op: what compiles assembles, where there is an assembler", "[jit][nvptx]") {
  const auto assembler = nvptx::find_ptxas();
  if (!assembler) {
    std::puts("no ptxas here: the PTX of single operations is not assembled");
    return;
  }
  const test::TempFolder folder;
  for (const char* target : {"sm_80", "sm_90a"}) {
    // One text with one header is assembled, because starting the assembler takes longer than a kernel.
    std::string all;
    for (const OpKernel& kernel : testing::every_op_kernel()) {
      std::string text;
      if (!compiles(kernel, target, &text)) continue;
      all += all.empty() ? text : text.substr(text.find(".address_size 64") + 16);
    }
    const std::string name = folder.file(target);
    std::ofstream(name + ".ptx") << all;
    const std::string command = *assembler + " --gpu-name=" + target + " -O0 -o " + name + ".cubin " + name + ".ptx";
    CHECK(std::system(command.c_str()) == 0);
  }
}

}  // namespace seqtile
