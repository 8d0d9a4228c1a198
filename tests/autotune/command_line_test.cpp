// tests/autotune/command_line_test.cpp -- commands in messages can be pasted into a shell.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/text/command_line.h"

#include <catch2/catch.hpp>

TEST_CASE("command line: words are quoted where a shell would read them otherwise", "[autotune]") {
  using seqtile::autotune::command_line;
  CHECK(command_line("tune", {{"", "linear"}, {"--set", "n=128"}, {"--device", ""}, {"--cache", "a/tuning-1.db"}}) ==
        "seqtile tune linear --set n=128 --cache a/tuning-1.db");
  CHECK(command_line("cache build", {{"--cache", "my tuning.db"}, {"--artifacts", "$(it's).db"}}) ==
        R"(seqtile cache build --cache 'my tuning.db' --artifacts '$(it'\''s).db')");
}
