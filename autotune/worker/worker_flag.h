// autotune/worker/worker_flag.h -- the hidden first argument of a worker process, and whether this program heeds it.
// SPDX-License-Identifier: Apache-2.0
//
// Command line: <program> kWorkerFlag SOCKET SHARED-PAGE, both file descriptors.
#pragma once
#include <atomic>

namespace seqtile::autotune {

constexpr const char* kWorkerFlag = "--seqtile-worker";

/// Whether run_worker() was called: only then does this program serve when it is started with the flag.
inline std::atomic<bool> program_is_worker{false};

}  // namespace seqtile::autotune
