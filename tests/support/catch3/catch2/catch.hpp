// tests/support/catch3/catch2/catch.hpp -- Catch2 version 3 under the header name of version 2.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <catch2/catch_all.hpp>

using Catch::Approx;                    // NOLINT: version 2 puts both into the global namespace
using namespace Catch::Matchers;        // NOLINT
namespace Catch {
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
}  // namespace Catch
