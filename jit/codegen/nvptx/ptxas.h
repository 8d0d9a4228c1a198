// jit/codegen/nvptx/ptxas.h -- PTX text to a cubin by a child process of the toolkit's assembler.
// SPDX-License-Identifier: Apache-2.0
//
// ptxas may crash, hang for minutes or take all memory on an unlucky configuration. So it runs in a child under limits,
// and each of these failures is an Error: a result of tuning like any other. Most of the time of a compilation is spent
// in ptxas, and two runs of it share nothing, so callers run as many at once as there are cores. Where no toolkit is
// installed the PTX goes to the driver.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "jit/codegen/nvptx/child_process.h"
#include "seqtile/target.h"

namespace seqtile::nvptx {

/// The program that SEQTILE_PTXAS names, else `ptxas` of the folders in docs/env.md; nothing where there is none.
/// Errors: unsupported when SEQTILE_PTXAS names something that cannot be executed.
std::optional<std::string> find_ptxas();

/// find_ptxas(), if that program works: once a process and version it must assemble the smallest kernel for `arch`. If
/// it fails, the answer is nothing, and a warning says so. Errors: as find_ptxas().
std::optional<std::string> usable_ptxas(const std::string& arch, const ChildLimits& limits = {.seconds = 10});

/// A text that changes with the program: "ptxas of 37741528 bytes, 1755654912". Starting the program to ask for its
/// version would take longer than loading a kernel. Errors: unsupported when the program is gone.
std::string ptxas_identity(const std::string& program);

/// Turns `binary` from PTX into a cubin for `target.cubin_arch` and fills `resources`. Dumps stage "cubin". An
/// assembler that is older than the architecture or the text leaves the PTX, with a line in the log: the driver may be
/// newer. Errors: compile_failed with the message of ptxas; io where ptxas crashed or hung; unsupported when it cannot
/// be started.
void assemble(KernelBinary& binary, const Target& target, const StageDump& dump = {}, const ChildLimits& limits = {});

/// Reads the output of `ptxas -v` for one kernel.
ResourceUse parse_ptxas_report(std::string_view text);

}  // namespace seqtile::nvptx
