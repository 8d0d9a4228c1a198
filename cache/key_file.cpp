// cache/key_file.cpp -- see key_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cache/database/files.h"
#include "jit/base/descriptor.h"

namespace seqtile::cache {
namespace {

constexpr const char* kRemoveIt = "remove it: a new one is made, and binaries under the old one are compiled anew";

std::string system_message(const std::string& action, const std::string& path) {
  return fmt::format("key file {}: cannot be {} ({}); check the folder and its permissions", path, action,
                     std::strerror(errno));
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
    problem = system_message("opened", path);
    return std::nullopt;
  }
  if (const std::string refusal = refusal_of(info); !refusal.empty()) {
    problem = fmt::format("key file {}: {}", path, refusal);
    return std::nullopt;
  }
  MacKey key{};
  // The buffer has one byte more than a key, so that a longer file is noticed.
  unsigned char bytes[sizeof key + 1] = {};
  const ssize_t count = read(file.get(), bytes, sizeof bytes);
  if (count != static_cast<ssize_t>(key.size())) {
    problem = fmt::format("key file {}: {} bytes are needed, it has {}; {}", path, key.size(),
                          static_cast<long long>(info.st_size), kRemoveIt);
    return std::nullopt;
  }
  std::memcpy(key.data(), bytes, key.size());
  sodium_memzero(bytes, sizeof bytes);
  return key;
}

bool create_key(const std::string& path, std::string& problem) {
  if (const std::string cause = make_parent_folders(path); !cause.empty()) {
    problem = fmt::format("key file {}: {}; check the folder, or set SEQTILE_CONFIG_DIR", path, cause);
    return false;
  }
  MacKey key;
  randombytes_buf(key.data(), key.size());
  const std::string aside = fmt::format("{}.{}.{:08x}", path, getpid(), randombytes_random());
  bool is_written = false;
  {
    const Descriptor file(open(aside.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
    is_written = file.is_open() && write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size()) &&
                 fsync(file.get()) == 0;
  }
  sodium_memzero(key.data(), key.size());
  // A key that another process has just linked there serves as well.
  const bool is_linked = is_written && (link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST);
  if (!is_linked) problem = system_message("made", path);
  unlink(aside.c_str());
  const Descriptor folder(open(parent_folder(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open()) fsync(folder.get());
  return is_linked;
}

}  // namespace

std::optional<MacKey> load_or_create_key(const std::string& path, std::string& problem) {
  if (sodium_init() < 0) {
    problem = "libsodium has no source of random numbers on this machine";
    return std::nullopt;
  }
  if (path.empty()) {
    problem = "key file: no path for it; set HOME or SEQTILE_CONFIG_DIR";
    return std::nullopt;
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 && errno == ENOENT && !create_key(path, problem)) return std::nullopt;
  return load_key(path, problem);
}

}  // namespace seqtile::cache
