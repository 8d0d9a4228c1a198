// cache/database/file_facts.h -- what a path is, and why SQLite cannot use it: the true cause in one line with the next
// step.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/. Nothing here opens a database file: a stray close() in this process would drop SQLite's locks.
#pragma once
#include <sys/stat.h>

#include <string>

#include "cache/database/sqlite.h"

namespace seqtile::cache {

bool is_same_file(const struct stat& a, const struct stat& b);

/// Empty when it may be a database or an empty file, else what it is and what to do.
std::string refusal_by_kind(const std::string& path, const struct stat& info);

/// The folder's own symlinks are resolved (a linked home is common), so that NOFOLLOW then refuses only the file's.
/// Errors: DatabaseError where the folder is not there.
std::string absolute_path(const std::string& path);

/// Whether the file alone is the whole database and nobody here can change it: its folder cannot be written, and no
/// log of changes lies beside it.
bool is_whole_and_fixed(const std::string& path);

/// Why a file that is open cannot be written, and what follows.
std::string read_only_problem(const std::string& path);

/// Why a statement failed that was to read, or to write, and what to do. Not for damage and locks.
std::string cause_of(const DatabaseError& error, const std::string& path, bool is_write);

}  // namespace seqtile::cache
