// jit/runtime/loaded_library.h -- libraries that others have loaded into this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <initializer_list>
#include <string_view>

namespace seqtile {

/// The first library of the process whose file name begins with one of `names` and that has the function, for dlsym();
/// null where there is none. Nothing is loaded, and the library is never closed. It is found also where it was loaded
/// for its own users alone.
void* find_loaded_library(std::initializer_list<std::string_view> names, const char* function);

}  // namespace seqtile
