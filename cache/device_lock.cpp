// cache/device_lock.cpp -- see device_lock.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/device_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "cache/database/files.h"
#include "jit/base/descriptor.h"
#include "jit/base/env.h"
#include "jit/base/hash.h"
#include "seqtile/error.h"

namespace seqtile::cache {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20}, kReportInterval{1000};

/// True for a folder in which all users of the machine may make files that no other user can remove.
bool is_shared(const char* folder) {
  struct stat info {};
  constexpr mode_t kShared = S_ISVTX | S_IWOTH | S_IXOTH;
  return stat(folder, &info) == 0 && S_ISDIR(info.st_mode) && (info.st_mode & kShared) == kShared;
}

/// Opens the file, or makes it so that all users can lock it. Locking needs no permission to write.
int open_lock_file(const std::string& path) {
  constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  for (int tries = 0; tries < 3; ++tries) {
    int file = open(path.c_str(), O_RDWR | kFlags);
    if (file < 0 && (errno == EACCES || errno == EROFS)) file = open(path.c_str(), O_RDONLY | kFlags);
    if (file >= 0 || errno != ENOENT) return file;
    file = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | kFlags, 0666);
    if (file >= 0) [[maybe_unused]]
      const int done = fchmod(file, 0666);  // undoes the umask
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

/// True if the path still names the open file. A removed file must not be locked: other processes would lock its
/// successor.
bool is_at(int file, const std::string& path) {
  struct stat opened {
  }, named{};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

std::string lock_path(const std::string& folder, const std::string& device) {
  return fmt::format("{}/seqtile-measure-{}.lock", folder, sha256_hex(device).substr(0, 16));
}

}  // namespace

std::optional<DeviceLock> DeviceLock::try_lock(const std::string& folder, const std::string& device) {
  const std::string path = lock_path(folder, device);
  make_parent_folders(path);
  const int file = open_lock_file(path);
  if (file < 0) {
    throw Error(ErrorCode::io,
                fmt::format("lock file {} cannot be opened ({}); set SEQTILE_LOCK_DIR to a writable folder", path,
                            std::strerror(errno)));
  }
  DeviceLock lock(file);
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
    throw Error(ErrorCode::io,
                fmt::format("lock file {} cannot be locked ({}); set SEQTILE_LOCK_DIR to a folder on a local disk",
                            path, std::strerror(errno)));
  }
  if (!is_at(file, path)) return std::nullopt;
  // The holder's name is for people who wait; the lock does not depend on it.
  const std::string holder = fmt::format("process {}\n", getpid());
  if (ftruncate(file, 0) == 0) {
    [[maybe_unused]] const ssize_t written = pwrite(file, holder.data(), holder.size(), 0);
  }
  return lock;
}

std::optional<DeviceLock> DeviceLock::lock(const std::string& folder, const std::string& device,
                                           std::chrono::milliseconds timeout, const OnWait& on_wait) {
  const auto start = std::chrono::steady_clock::now();
  auto next_report = start;
  while (true) {
    if (auto lock = try_lock(folder, device)) return lock;
    const auto now = std::chrono::steady_clock::now();
    if (now - start >= timeout) return std::nullopt;
    if (on_wait && now >= next_report) {
      if (!on_wait(device_lock_holder(folder, device))) return std::nullopt;
      next_report = now + kReportInterval;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

DeviceLock::DeviceLock(DeviceLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

DeviceLock& DeviceLock::operator=(DeviceLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

DeviceLock::~DeviceLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string machine_lock_folder() {
  if (const auto folder = env::lock_dir()) return *folder;
  for (const char* folder : {"/run/lock", "/tmp"})
    if (is_shared(folder)) return folder;
  return "";
}

std::string device_lock_holder(const std::string& folder, const std::string& device) {
  char text[64] = {};
  const Descriptor file(open(lock_path(folder, device).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  const ssize_t count = file.is_open() ? read(file.get(), text, sizeof text - 1) : 0;
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  holder = holder.substr(0, holder.find('\n'));
  return holder.empty() ? "another process" : holder;
}

}  // namespace seqtile::cache
