// cache/database/file_facts.h -- the kind of file at a path, and the reason why SQLite cannot use it.
// SPDX-License-Identifier: Apache-2.0
//
// Private to cache/. Each message gives the true cause in one line, with the next step. Nothing here opens a database
// file: a stray close() in this process would drop SQLite's locks.
#pragma once
#include <sys/stat.h>

#include <string>

#include "cache/database/sqlite.h"

namespace seqtile::cache {

bool is_same_file(const struct stat& a, const struct stat& b);

/// Empty if the file may be a database or is empty; else its kind and the next step.
std::string refusal_by_kind(const std::string& path, const struct stat& info);

/// Resolves the symlinks of the folder (a linked home is common), so that NOFOLLOW then refuses only a linked file.
/// Errors: DatabaseError if the folder does not exist.
std::string absolute_path(const std::string& path);

/// True if the file alone is the whole database and this process cannot change it: the folder is not writable, and no
/// log of changes lies beside the file.
bool is_whole_and_fixed(const std::string& path);

/// The reason why an open file cannot be written, and the consequence.
std::string read_only_problem(const std::string& path);

/// The reason why a read or write failed, and the next step. Requires: `error` is neither damage nor a lock.
std::string cause_of(const DatabaseError& error, const std::string& path, bool is_write);

}  // namespace seqtile::cache
