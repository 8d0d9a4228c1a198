// jit/base/forever.h -- objects that are never destroyed, so that they live as long as the process.
// SPDX-License-Identifier: Apache-2.0
//
// exit() destroys statics while other threads run on, perhaps inside a call of the library. So the library's statics
// with a destructor are made by forever(); tests/statics_test.py fails on any other.
#pragma once
#include <utility>

namespace seqtile {

template <class T>
T& forever(T value) {
  return *new T(std::move(value));  // NOLINT: for ever
}

}  // namespace seqtile
