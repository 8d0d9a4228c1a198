// cache/key_file.cpp -- see key_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "cache/database/files.h"
#include "jit/base/descriptor.h"

namespace seqtile::cache {
namespace {

constexpr const char* kRemoveIt = "remove it: a new one is made, and binaries under the old one are compiled anew";

constexpr int kMaxMakingWaits = 50;  ///< of 2 ms each, for the process that is making the key

/// `path` is empty for a problem that is not of one file.
std::string key_problem(const std::string& path, const std::string& what) {
  return fmt::format("{}{}{}: {}", kKeyProblem, path.empty() ? "" : " ", path, what);
}

std::string system_problem(const std::string& action, const std::string& path, int cause) {
  return key_problem(path, fmt::format("cannot be {} ({}); check the folder, its permissions and the free space",
                                       action, std::strerror(cause)));
}

/// The reason why another user could know or have made the key, and the next step; empty if it is the user's alone.
std::string refusal_of(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return "is not a regular file; move it away: a key is made in its place";
  if (info.st_uid != geteuid())
    return fmt::format("has owner {}, this is user {}; move it away, or set SEQTILE_CONFIG_DIR to your own folder",
                       info.st_uid, geteuid());
  if ((info.st_mode & 077) != 0)
    return fmt::format("mode 0600 is needed, it has {:#o}, and others may know the key; run chmod 600 on it, or {}",
                       info.st_mode & 07777, kRemoveIt);
  return {};
}

std::optional<MacKey> load_key(const std::string& path, std::string& problem) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.is_open() || fstat(file.get(), &info) != 0) {
    const int cause = errno;
    std::error_code ignored;
    problem = std::filesystem::is_symlink(path, ignored)
                  ? key_problem(path, "is a symbolic link, which is not followed; put a copy of the key there")
                  : system_problem("opened", path, cause);
    return std::nullopt;
  }
  if (const std::string refusal = refusal_of(info); !refusal.empty()) {
    problem = key_problem(path, refusal);
    return std::nullopt;
  }
  MacKey key{};
  // The buffer has one byte more than a key, so that a longer file is noticed.
  unsigned char bytes[sizeof key + 1] = {};
  const ssize_t count = read(file.get(), bytes, sizeof bytes);
  if (count != static_cast<ssize_t>(key.size())) {
    problem = key_problem(
        path, fmt::format("{} bytes are needed, it has {}; {}", key.size(), int64_t{info.st_size}, kRemoveIt));
    return std::nullopt;
  }
  std::memcpy(key.data(), bytes, key.size());
  sodium_memzero(bytes, sizeof bytes);
  return key;
}

/// Writes a new key and returns 0, or an errno value.
int write_key(const std::string& path) {
  MacKey key;
  randombytes_buf(key.data(), key.size());
  errno = 0;
  const Descriptor file(open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool is_written = file.is_open() &&
                          write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size()) &&
                          fsync(file.get()) == 0;
  const int cause = is_written ? 0 : errno ? errno : ENOSPC;  // a short write sets no errno
  sodium_memzero(key.data(), key.size());
  return cause;
}

/// Gives the file `aside` the name `path`, which no file may have. Returns 0, or an errno value.
int put_in_place(const std::string& aside, const std::string& path) {
  if (link(aside.c_str(), path.c_str()) == 0) return 0;
  if (errno == EEXIST) return EEXIST;
  // The file system has no hard links. An empty file claims the name, and the key takes its place as a whole.
  const Descriptor claim(open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!claim.is_open()) return errno;
  if (rename(aside.c_str(), path.c_str()) == 0) return 0;
  const int cause = errno;
  unlink(path.c_str());
  return cause;
}

bool create_key(const std::string& path, std::string& problem) {
  if (const std::string cause = make_parent_folders(path); !cause.empty()) {
    problem = key_problem(path, cause + "; check the folder, or set SEQTILE_CONFIG_DIR");
    return false;
  }
  const std::string aside = fmt::format("{}.{}.{:08x}", path, getpid(), randombytes_random());
  int cause = write_key(aside);
  if (cause == 0) cause = put_in_place(aside, path);
  unlink(aside.c_str());
  if (cause != 0 && cause != EEXIST) {  // a key that another process has just put there is as good
    problem = system_problem("made", path, cause);
    return false;
  }
  const Descriptor folder(open(parent_folder(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open()) fsync(folder.get());
  return true;
}

/// Whether an empty file is there: a key that a process is making on a file system without hard links.
bool is_being_made(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

}  // namespace

std::optional<MacKey> load_or_create_key(const std::string& path, std::string& problem) {
  if (sodium_init() < 0) {
    problem = key_problem(path, "libsodium has no source of random numbers on this machine");
    return std::nullopt;
  }
  if (path.empty()) {
    problem = key_problem("", "no path for it; set HOME or SEQTILE_CONFIG_DIR");
    return std::nullopt;
  }
  struct stat info {};
  const bool is_absent = lstat(path.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
  if (is_absent && !create_key(path, problem)) return std::nullopt;
  for (int i = 0; i < kMaxMakingWaits && is_being_made(path); ++i) usleep(2000);
  return load_key(path, problem);
}

}  // namespace seqtile::cache
