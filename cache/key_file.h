// cache/key_file.h -- the secret under which this user's compiled binaries are authenticated.
// SPDX-License-Identifier: Apache-2.0
//
// 32 random bytes, in a file of mode 0600 that belongs to this user, outside the cache folder so that shipping or
// sharing the cache never ships the key. Written aside and linked into place: readers see no key or a whole one, and of
// two processes that make it at once both end with the same. A file system without hard links gets an empty file, which
// the key replaces; readers wait for that.
#pragma once
#include <array>
#include <optional>
#include <string>

namespace seqtile::cache {

/// Each problem of a key begins so.
inline constexpr const char* kKeyProblem = "key file";

using MacKey = std::array<unsigned char, 32>;

/// The key; the file is made if absent. Without a usable key returns nullopt, and `problem` says what, value, next
/// step.
std::optional<MacKey> load_or_create_key(const std::string& path, std::string& problem);

}  // namespace seqtile::cache
