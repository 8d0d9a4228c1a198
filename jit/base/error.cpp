// jit/base/error.cpp -- names of the error codes.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/error.h"

namespace seqtile {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::compile_failed: return "compile_failed";
    case ErrorCode::out_of_resources: return "out_of_resources";
    case ErrorCode::driver: return "driver";
    case ErrorCode::io: return "io";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::wrong_result: return "wrong_result";
    case ErrorCode::no_record: return "no_record";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

}  // namespace seqtile
