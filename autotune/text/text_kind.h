// autotune/text/text_kind.h -- what a file is that was given in place of a text file.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::autotune {

/// By the first bytes: compressed files, weights, databases, pages of the web, pointers of git, texts in UTF-16 or
/// UTF-32; empty for anything that may be a text in UTF-8. The answer says what it is and the next step:
/// "a pointer of git-lfs, not the file itself; run `git lfs pull` where it was cloned".
std::string foreign_kind(std::string_view bytes);

/// Without the mark that some editors put before UTF-8.
std::string_view without_mark(std::string_view text);

}  // namespace seqtile::autotune
