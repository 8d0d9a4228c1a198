// jit/base/spawn.h -- starts another program as a child that has only the descriptors it is given.
// SPDX-License-Identifier: Apache-2.0
//
// The child is exec'd, never only forked: this process may have threads, LLVM and a GPU context. All descriptors of
// this process but the standard ones and those that are named close at the exec, whatever their flags: a connection of
// this process would not end while the child has it. posix_spawn could neither set limits before the program runs nor
// close descriptors between those that stay.
#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace seqtile {

struct ChildProgram {
  std::string program;                      ///< a path; a name without a slash is searched in $PATH
  std::vector<std::string> arguments;       ///< the first is the name that the program is told
  std::vector<int> descriptors = {};        ///< stay open, under the same numbers
  int input = -1, output = -1, error = -1;  ///< become the standard descriptors; -1: those of this process
  bool leads_group = false;                 ///< of its own, so that whatever it starts can be killed with it
  bool ends_with_thread = false;            ///< is killed when the calling thread ends
  std::vector<std::pair<__rlimit_resource, rlimit>> limits = {};
};

/// Starts the child; `pid` is set on success only. Returns an errno value, 0 on success. Under the thread sanitizer,
/// which makes vfork() a fork(), a program that cannot be started is a child that ends with code 127. The child blocks
/// no signal. Thread-safe.
int spawn(const ChildProgram& child, pid_t& pid);

}  // namespace seqtile
