// jit/base/machine_memory.h -- how much memory this machine gives a process.
// SPDX-License-Identifier: Apache-2.0
//
// A control group (a container, a systemd unit) may give its processes less than the machine has, and so may each group
// above it; the system kills a process that goes beyond. Both versions of control groups are read.
#pragma once
#include <string>

namespace seqtile {

struct MachineMemory {
  double bytes;            ///< the machine's, or the least limit of the process's control groups
  double available_bytes;  ///< what the process can still get of them; pages of files that can be dropped are among it
};

/// Reads /proc and /sys under `root`: a test has files of its own.
MachineMemory read_machine_memory(const std::string& root = "");

/// MachineMemory::bytes as this process first read it.
double machine_bytes();

}  // namespace seqtile
