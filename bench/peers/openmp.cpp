// bench/peers/openmp.cpp -- see openmp.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/openmp.h"

#include <dlfcn.h>

namespace seqtile::bench {
namespace {

using Pause = int (*)(int);
constexpr int kPauseHard = 2;  // omp_pause_hard of OpenMP 5.0

/// Looks in GCC's runtime, which oneDNN is linked with and MKL is told to use. Does not load it.
Pause find_pause() {
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library ? reinterpret_cast<Pause>(dlsym(library, "omp_pause_resource_all")) : nullptr;
}

}  // namespace

void end_openmp_threads() {
  // Looked up each time: a peer may load the runtime after the first case.
  if (const Pause pause = find_pause()) pause(kPauseHard);
}

}  // namespace seqtile::bench
