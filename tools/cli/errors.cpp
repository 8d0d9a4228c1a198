// tools/cli/errors.cpp -- see errors.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/errors.h"

#include <csignal>

namespace seqtile::cli {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> signal_number{SIGINT};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "set from a signal handler");

extern "C" void on_interrupt(int number) {
  signal_number.store(number);
  interrupted.store(true);
}

}  // namespace

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::no_record:
    case ErrorCode::unsupported:
    case ErrorCode::compile_failed: return kBadInput;
    case ErrorCode::wrong_result:  // commands that compare results return kNo themselves
    case ErrorCode::internal: return kBug;
    case ErrorCode::aborted: return interrupted ? interrupted_exit_code() : kMachine;  // else a rank has left
    case ErrorCode::out_of_resources:
    case ErrorCode::driver:
    case ErrorCode::io:
    case ErrorCode::timeout: return kMachine;
  }
  return kBug;
}

int interrupted_exit_code() { return 128 + signal_number.load(); }

void bad_input(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

const std::atomic<bool>& interrupt_flag() { return interrupted; }

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void end_at_interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace seqtile::cli
