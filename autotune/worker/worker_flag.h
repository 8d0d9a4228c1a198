// autotune/worker/worker_flag.h -- the hidden first argument of a worker process.
// SPDX-License-Identifier: Apache-2.0
//
// Command line: <program> kWorkerFlag SOCKET SHARED-PAGE, both file descriptors.
#pragma once

namespace seqtile::autotune {

constexpr const char* kWorkerFlag = "--seqtile-worker";

}  // namespace seqtile::autotune
