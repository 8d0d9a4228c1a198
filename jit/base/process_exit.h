// jit/base/process_exit.h -- a process may exit while its threads are inside the library.
// SPDX-License-Identifier: Apache-2.0
//
// exit() runs handlers and destructors of statics, latest first, while other threads run on. This library has no
// statics with such a destructor (forever.h), but LLVM has: exit() waits for compilations that are under way, and later
// compilations sleep until the process is gone. LLVM makes its statics in the first compilation, and exit() destroys
// them before it waits. A process compiles a small kernel first for that reason (compiler.cpp): an exit() in those few
// milliseconds may still crash. Statics of the program, for example a handle, are destroyed too; objects that they own
// are then left alone.
#pragma once

namespace seqtile {

/// Whether exit() has begun, as far as watch_exit() makes that known.
bool is_exiting();

/// From here on exit() makes is_exiting() true before it destroys any static that exists now. Cheap, but not free: it
/// takes memory each time.
void watch_exit();

/// Held by a thread while it uses LLVM; may be nested.
class ExitPass {
 public:
  ExitPass();
  ~ExitPass();
  ExitPass(const ExitPass&) = delete;
  ExitPass& operator=(const ExitPass&) = delete;
};

}  // namespace seqtile
