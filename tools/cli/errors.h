// tools/cli/errors.h -- the exit codes, and the error line that goes with each.
// SPDX-License-Identifier: Apache-2.0
//
// 0 done; 1 the answer is no (coverage missing, a check failed); 2 bad usage or input; 3 the machine (no space, no
// device, a store that cannot be read or written); 70 a bug of this program (EX_SOFTWARE of sysexits.h); 130
// interrupted by Ctrl-C, 143 by SIGTERM, equal to the exit status of a process that the signal ends. Scripts test the
// enumerators' values: do not renumber.
#pragma once
#include <atomic>
#include <string>

#include "seqtile/error.h"

namespace seqtile::cli {

enum ExitCode { kDone = 0, kNo = 1, kBadInput = 2, kMachine = 3, kBug = 70 };

int exit_code_of(ErrorCode code);

/// Errors: invalid_argument with `message`.
[[noreturn]] void bad_input(const std::string& message);

/// Installed by commands that keep partial results: Ctrl-C or SIGTERM then sets the flag, and the command stops after
/// its current round. A second Ctrl-C ends the process at once.
const std::atomic<bool>& interrupt_flag();
void install_interrupt_handler();
/// The exit code of a command that the flag has stopped: 128 plus the signal.
int interrupted_exit_code();
/// Used by all other commands: the first Ctrl-C ends the process, even if the parent process ignores Ctrl-C.
void end_at_interrupt();

}  // namespace seqtile::cli
