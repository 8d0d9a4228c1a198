// jit/codegen/nvptx/ptxas.h -- PTX text to a cubin by a child process of the toolkit's assembler.
// SPDX-License-Identifier: Apache-2.0
//
// ptxas may crash, hang for minutes or take all memory on an unlucky configuration, so it runs in a child under limits
// and whatever it does wrong is an Error: a result of tuning like any other. Most of the time of a
// compilation is spent in it and nothing is shared between two of them, so callers run as many at once as there are
// cores. Where no toolkit is installed the PTX goes to the driver.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "jit/base/child_process.h"
#include "jit/compiler.h"

namespace seqtile::nvptx {

/// The program that SEQTILE_PTXAS names, else `ptxas` of the folders in docs/env.md; nothing where there is none.
/// Errors: unsupported when SEQTILE_PTXAS names something that cannot be executed.
std::optional<std::string> find_ptxas();

/// The same if it works: once a process and version it assembles the smallest kernel for `arch`. One that cannot is as
/// good as none, and a warning says so. Errors: as find_ptxas().
std::optional<std::string> usable_ptxas(const std::string& arch, const ChildLimits& limits = {.seconds = 10});

/// Changes with the program: "ptxas of 37741528 bytes, 1755654912". Starting it to ask for its version would take
/// longer than loading a kernel. Errors: unsupported when it is gone.
std::string ptxas_identity(const std::string& program);

/// Turns `binary` from PTX into a cubin for `target.cubin_arch` and fills `resources`. Dumps stage "cubin". An
/// assembler that is older than the architecture or the text leaves the PTX, with a line in the log: the driver may be
/// newer. Errors: compile_failed with what ptxas said; io where it crashed or hung; unsupported when it cannot be
/// started.
void assemble(KernelBinary& binary, const Target& target, const StageDump& dump = {}, const ChildLimits& limits = {});

/// Reads what `ptxas -v` prints of one kernel.
ResourceUse parse_ptxas_report(std::string_view text);

}  // namespace seqtile::nvptx
