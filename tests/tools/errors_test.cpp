// tests/tools/errors_test.cpp -- the exit code of each error.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/errors.h"

#include <catch2/catch.hpp>

using namespace seqtile;

TEST_CASE("exit codes: a bug is neither an answer nor the machine", "[tools]") {
  for (const ErrorCode code : {ErrorCode::internal, ErrorCode::wrong_result}) CHECK(cli::exit_code_of(code) == 70);
  for (const ErrorCode code :
       {ErrorCode::invalid_argument, ErrorCode::unsupported, ErrorCode::compile_failed, ErrorCode::no_record})
    CHECK(cli::exit_code_of(code) == 2);
  for (const ErrorCode code :
       {ErrorCode::out_of_resources, ErrorCode::driver, ErrorCode::io, ErrorCode::timeout, ErrorCode::aborted})
    CHECK(cli::exit_code_of(code) == 3);
}

TEST_CASE("exit codes: no error is an answer", "[tools]") {
  for (int code = 0; code <= static_cast<int>(ErrorCode::internal); ++code)
    CHECK(cli::exit_code_of(static_cast<ErrorCode>(code)) > cli::kNo);
}
