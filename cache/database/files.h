// cache/database/files.h -- names of files, and the folders that lead to them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace seqtile::cache {

/// The folder of `path`; "." for a plain name.
std::string parent_folder(const std::string& path);

/// Makes the folders that lead to `path`, mode 0700, as the XDG base directory rules ask. Returns the folder that
/// cannot be made and the reason, or an empty text.
std::string make_parent_folders(const std::string& path);

/// The first of `path`, `path`2, `path`3, ... that names no file.
std::string free_name(const std::string& path);

}  // namespace seqtile::cache
