// cache/database/file_facts.cpp -- see file_facts.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/file_facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cache/database/files.h"
#include "cache/database/text.h"

namespace seqtile::cache {
namespace {

// SQLite takes a file of one byte for an empty one, which it would overwrite; none of its databases is that short.
constexpr off_t kMinDatabaseBytes = 512;

/// Whether there is such a file with something in it.
bool has_content(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && info.st_size > 0;
}

bool folder_is_writable(const std::string& path) { return access(parent_folder(path).c_str(), W_OK) == 0; }

std::string refusal_of_access(const std::string& path, bool is_write) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || access(path.c_str(), is_write ? W_OK : R_OK) == 0) return "";
  return fmt::format("cannot be {}: it belongs to user {} and has mode {:#o}, this is user {}; name a file of your own",
                     is_write ? "written" : "read", info.st_uid, info.st_mode & 07777, geteuid());
}

bool is_writable(const std::string& path) { return access(path.c_str(), W_OK) == 0; }

/// Changes that were not finished or not moved into the file lie beside it, and this process cannot do so.
std::string refusal_of_rest(const std::string& path) {
  const bool has_log = has_content(path + "-wal");
  if (!has_log && !has_content(path + "-journal")) return "";
  const std::string rest = path + (has_log ? "-wal" : "-journal");
  const char* fixed = !folder_is_writable(path) ? "the folder"
                      : !is_writable(path)      ? "the file"
                      : !is_writable(rest)      ? "that one"
                                                : nullptr;
  if (!fixed) return "";
  return fmt::format(
      "cannot be read: a program that ended early has left {}, which SQLite has to work into the file, and {} is not "
      "writable; copy both files to a folder that is, make the copies writable, and run there: sqlite3 {} "
      "'PRAGMA journal_mode=DELETE'",
      rest, fixed, std::filesystem::path(path).filename().string());
}

}  // namespace

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

std::string refusal_by_kind(const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) {
    const bool is_short = info.st_size > 0 && info.st_size < kMinDatabaseBytes;
    return is_short ? "not a SQLite database; it is left as it is; name another file" : "";
  }
  if (S_ISLNK(info.st_mode)) {
    const bool leads_nowhere = access(path.c_str(), F_OK) != 0;
    return leads_nowhere ? "is a symbolic link to nothing; remove it, or name another file"
                         : "is a symbolic link, which is not followed; name the file it points to";
  }
  if (S_ISDIR(info.st_mode)) return "is a folder; name a file in it";
  return "is not a regular file; name another path";
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(parent_folder(path), error);
  if (error) throw DatabaseError(SQLITE_CANTOPEN, fmt::format("folder {}: {}", parent_folder(path), error.message()));
  return (folder / std::filesystem::path(path).filename()).string();
}

bool is_whole_and_fixed(const std::string& path) {
  return access(path.c_str(), R_OK) == 0 && !folder_is_writable(path) && !has_content(path + "-wal") &&
         !has_content(path + "-journal");
}

std::string read_only_problem(const std::string& path) {
  struct stat info {};
  const bool is_others = stat(path.c_str(), &info) == 0 && info.st_uid != geteuid();
  return fmt::format("cannot be written (read-only file{}); stored rows are used, nothing is added",
                     is_others ? fmt::format(" of user {}", info.st_uid) : "");
}

namespace {

/// A file that is not there yet, in a folder where it cannot be made.
std::string refusal_of_creation(const DatabaseError& error, const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return "";
  const std::string folder = parent_folder(path);
  if (std::error_code ignored; !std::filesystem::is_directory(folder, ignored))
    return fmt::format("cannot be made ({}); name a file in a folder that can be written", error.what());
  if (folder_is_writable(path)) return "";
  return fmt::format("cannot be made: folder {} is not writable for user {}; name a file in another folder", folder,
                     geteuid());
}

}  // namespace

std::string cause_of(const DatabaseError& error, const std::string& path, bool is_write) {
  const int code = error.code() & 0xff, system = error.system_errno();
  const auto refuse_growth = [&](const std::string& limit) {
    return fmt::format("cannot be written: {}; make free space in {}, or name a file on another disk", limit,
                       parent_folder(path));
  };
  if (code == SQLITE_FULL || system == ENOSPC) return refuse_growth("the disk is full");
  if (system == EDQUOT) return refuse_growth(fmt::format("the disk quota of user {} is used up", geteuid()));
  if (system == EFBIG) return "cannot be written: a limit on the size of files is reached; raise it (ulimit -f)";
  if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM || code == SQLITE_AUTH) {
    if (const std::string refusal = refusal_of_creation(error, path); !refusal.empty()) return refusal;
    if (const std::string refusal = refusal_of_access(path, is_write); !refusal.empty()) return refusal;
    if (const std::string refusal = refusal_of_rest(path); !refusal.empty()) return refusal;
  }
  return fmt::format("cannot be {} ({}{}, SQLite code {}); check the folder, its permissions and the free space",
                     is_write ? "written" : "read", one_line(error.what(), kMaxReasonBytes),
                     system ? std::string(": ") + std::strerror(system) : "", error.code());
}

}  // namespace seqtile::cache
