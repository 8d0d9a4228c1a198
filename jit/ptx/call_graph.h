// jit/ptx/call_graph.h -- the functions of a text that a kernel reaches.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
#include <vector>

#include "jit/ptx/ptx_module.h"

namespace seqtile::sim {

/// A function that the device provides and the machine stands in for: printf and a failed assertion.
bool is_system_call(std::string_view name);

struct ReachedFunction {
  const PtxKernel* text = nullptr;
  std::vector<size_t> callees;  ///< indices in the list, without system calls
  bool is_recursive = false;    ///< reaches itself
};

/// The functions that `kernel` reaches, each after the functions that it calls (but for recursion), and `kernel` last.
/// Errors: compile_failed naming the line, where a function that is called cannot be read, is only declared, or is
/// called by its address.
std::vector<ReachedFunction> reached_functions(const PtxModule& module, const PtxKernel& kernel);

}  // namespace seqtile::sim
