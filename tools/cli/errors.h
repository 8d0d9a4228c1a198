// tools/cli/errors.h -- exit codes and the one line that goes with them.
// SPDX-License-Identifier: Apache-2.0
//
// 0 done; 1 the answer is no (coverage missing, a check failed); 2 bad usage or input; 3 the machine (no space, no
// device, a store that cannot be read or written); 70 a bug of this program (EX_SOFTWARE of sysexits.h); 130
// interrupted by Ctrl-C, 143 by SIGTERM, as of a process that the signal ends. The enumerators' values are what scripts
// test: do not renumber.
#pragma once
#include <atomic>
#include <string>

#include "jit/base/error.h"

namespace seqtile::cli {

enum ExitCode { kDone = 0, kNo = 1, kBadInput = 2, kMachine = 3, kBug = 70 };

int exit_code_of(ErrorCode code);

/// Throws invalid_argument with `message`.
[[noreturn]] void bad_input(const std::string& message);

/// For work that keeps what it has: from here on Ctrl-C or SIGTERM sets the flag, and the work stops after its current
/// round. A second Ctrl-C ends the process at once.
const std::atomic<bool>& interrupt_flag();
void install_interrupt_handler();
/// Of work that the flag has stopped: 128 and the signal.
int interrupted_exit_code();
/// For everything else: the first Ctrl-C ends the process, also where the parent ignores it.
void end_at_interrupt();

}  // namespace seqtile::cli
