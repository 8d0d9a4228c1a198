// cache/device_lock.h -- one measuring process per device at a time.
// SPDX-License-Identifier: Apache-2.0
//
// An flock on a small file named after the device. The kernel drops it when the holder ends in whatever way, so a lock
// never outlives its process; the file itself stays (removing it would let two processes lock two files of one name).
// It is not inherited by programs that the holder executes.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace seqtile::cache {

class DeviceLock {
 public:
  /// The lock, or nothing when another process (or another lock of this one) holds it.
  /// `folder` is made when absent; `device` is any text that identifies the device on this machine.
  /// Errors: io when the lock file cannot be made.
  static std::optional<DeviceLock> try_lock(const std::string& folder, const std::string& device);

  /// Asked about once a second while waiting, with a text that names the holder; false gives up.
  using OnWait = std::function<bool(const std::string& holder)>;
  /// Waits up to `timeout`.
  static std::optional<DeviceLock> lock(const std::string& folder, const std::string& device,
                                        std::chrono::milliseconds timeout, const OnWait& on_wait = {});

  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;
  ~DeviceLock();

 private:
  explicit DeviceLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

/// The folder of locks that hold for the whole machine, whoever the user is and wherever the stores lie:
/// SEQTILE_LOCK_DIR, else /run/lock or /tmp, whichever is first one that all may write. Empty where there is none.
std::string machine_lock_folder();

/// "process 1234" as the holder wrote it, or "another process".
std::string device_lock_holder(const std::string& folder, const std::string& device);

}  // namespace seqtile::cache
