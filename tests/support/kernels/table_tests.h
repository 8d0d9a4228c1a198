// tests/support/kernels/table_tests.h -- test cases that a table makes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <catch2/catch.hpp>

#include <string>

#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {

/// Adds a test case before main() begins. `group` outlives the process's tests.
inline void add_test(const std::string& name, const std::string& tags, void (*check)(const CaseGroup&),
                     const CaseGroup& group) {
  struct Test final : Catch::ITestInvoker {
    Test(void (*check)(const CaseGroup&), const CaseGroup& group) : check(check), group(group) {}
    void invoke() const override { check(group); }
    void (*check)(const CaseGroup&);
    const CaseGroup& group;
  };
  const Catch::AutoReg added(new Test(check, group), CATCH_INTERNAL_LINEINFO, "", {name, tags});  // takes the test over
}

}  // namespace seqtile::testing
