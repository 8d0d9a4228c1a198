// include/seqtile/error.h -- the one exception type, and where log lines go.
// SPDX-License-Identifier: Apache-2.0
//
// The kind of failure decides the form: the caller or the machine at fault, or our own bug (`internal`, with file and
// line) -> throw Error; an expected absence -> std::optional or false; a failed candidate -> data.
// Nothing is thrown through LLVM, CUDA or SQLite frames, thread entries or destructors.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace seqtile {

enum class ErrorCode {
  invalid_argument,  ///< the caller's value is out of its range; the message names value and limit
  unsupported,       ///< a legal request that this build or machine cannot serve
  compile_failed,    ///< tile IR that does not verify, or machine code that cannot be made
  out_of_resources,  ///< memory, disk or registers
  driver,            ///< a device driver refused
  io,                ///< a file could not be read or written, or a program did not end as it should
  timeout,           ///< a deadline passed
  aborted,           ///< interrupted by the user or by a peer
  wrong_result,      ///< a verification failed
  no_record,         ///< a call under MissPolicy::strict, or of fixed plans, at a length without a record
  internal,          ///< our bug
};

/// The enumerator's name, e.g. "invalid_argument".
std::string_view error_code_name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Takes a line of log: level 0 is a warning, 1 is of devices and stores, 2 of refused candidates. It is called from
/// any thread, perhaps from several at once, throws nothing, and neither calls the library nor waits for a thread
/// inside it.
using LogFunction = void (*)(void* context, int level, const char* line);
/// Lines go to `log` from now on instead of standard error; to standard error again where it is null. The environment's
/// SEQTILE_LOG says which levels there are. When this returns, no thread is inside the former function.
void set_log(LogFunction log, void* context = nullptr);

/// Returns what `call` returns. An error of the call begins with `subject`, as "linear: ...".
template <class Call>
decltype(auto) name_errors(std::string_view subject, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw Error(error.code(), std::string(subject) + ": " + error.what());
  }
}

}  // namespace seqtile
