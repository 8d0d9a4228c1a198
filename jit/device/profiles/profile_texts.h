// jit/device/profiles/profile_texts.h -- the files beside this one, built into the library.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

namespace seqtile {

/// One JSON text a profile; what its fields mean: GpuFacts.
std::span<const char* const> profile_texts();

}  // namespace seqtile
