// cache/device_lock.h -- one measuring process per device at a time.
// SPDX-License-Identifier: Apache-2.0
//
// The lock is an flock on a small file named after the device. The kernel drops the lock however its holder ends, so
// that a lock never outlives its process. The file itself stays, because removing it would let two processes lock two
// files of one name. Programs that the holder executes do not inherit the lock.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace seqtile::cache {

class DeviceLock {
 public:
  /// Returns the lock, or nullopt if another process or another lock of this process holds it. `folder` is made if
  /// absent. `device` is any text that identifies the device on this machine. Errors: io if the lock file cannot be
  /// made.
  static std::optional<DeviceLock> try_lock(const std::string& folder, const std::string& device);

  /// Called about once a second while waiting, with a text that names the holder. Returning false ends the wait.
  using OnWait = std::function<bool(const std::string& holder)>;
  /// Waits for the lock, at most `timeout`.
  static std::optional<DeviceLock> lock(const std::string& folder, const std::string& device,
                                        std::chrono::milliseconds timeout, const OnWait& on_wait = {});

  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;
  ~DeviceLock();

 private:
  explicit DeviceLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

/// The folder of locks for the whole machine, common to all users and stores: SEQTILE_LOCK_DIR, else the first of
/// /run/lock and /tmp in which all users may write. Empty if there is none.
std::string machine_lock_folder();

/// The holder as it wrote itself, "process 1234", or "another process".
std::string device_lock_holder(const std::string& folder, const std::string& device);

}  // namespace seqtile::cache
