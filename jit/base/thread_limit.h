// jit/base/thread_limit.h -- how many threads may run the programs of a grid.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace seqtile {

constexpr int kMaxWorkers = 1024;

}  // namespace seqtile
