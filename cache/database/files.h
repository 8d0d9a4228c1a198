// cache/database/files.h -- names of files, and the folders that lead to them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace seqtile::cache {

/// "." for a plain name.
std::string parent_folder(const std::string& path);

/// Makes the folders that lead to `path`, mode 0700, as the XDG base directory rules ask. Returns which one cannot be
/// made and why, or nothing.
std::string make_parent_folders(const std::string& path);

/// `path`, or the first of `path`2, `path`3, ... that no file has.
std::string free_name(const std::string& path);

}  // namespace seqtile::cache
