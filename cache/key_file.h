// cache/key_file.h -- the secret under which this user's compiled binaries are authenticated.
// SPDX-License-Identifier: Apache-2.0
//
// The key is 32 random bytes in a file of mode 0600 that belongs to this user. The file lies outside the cache folder,
// so that shipping or sharing the cache never ships the key. It is written under another name and linked into place:
// readers see no key or a whole one, and two processes that make it at once end with the same key.
#pragma once
#include <array>
#include <optional>
#include <string>

namespace seqtile::cache {

using MacKey = std::array<unsigned char, 32>;

/// The key; the file is made if absent. Without a usable key returns nullopt, and `problem` says what, value, next
/// step.
std::optional<MacKey> load_or_create_key(const std::string& path, std::string& problem);

}  // namespace seqtile::cache
