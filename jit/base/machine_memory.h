// jit/base/machine_memory.h -- how much memory this machine has.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <unistd.h>

namespace seqtile {

/// Bytes of physical memory.
inline double machine_bytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace seqtile
