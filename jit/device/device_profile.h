// jit/device/device_profile.h -- GPUs that are not in this machine: enough facts to compile, rank and store for them.
// SPDX-License-Identifier: Apache-2.0
//
// A profile is a file in jit/profiles/, built into the library. open_device("h200") gives a device whose identity in
// keys equals that of the GPU itself, so that decisions and binaries made without it serve it. It cannot launch.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/device/device.h"
#include "jit/device/gpu_facts.h"

namespace seqtile {

struct DeviceProfile {
  std::string name;  ///< "h200"
  GpuFacts facts;
  std::vector<std::string> sources;  ///< the origins of the numbers
};

/// h200, h100_sxm, a100.
const std::vector<DeviceProfile>& device_profiles();
/// A profile by its name, or by a target that stands for one: "sm_90a" for h200, "sm_80" for a100. Null: there is none.
const DeviceProfile* find_profile(std::string_view name);

/// A device that compiles for the profile and loads binaries to look at them. Launching and memory throw unsupported.
std::unique_ptr<Device> make_profile_device(const DeviceProfile& profile);
/// The profile that `device` stands for; null for a device that can launch.
const DeviceProfile* profile_of(const Device& device);

/// The target of open_device(name), found without taking anything of the device: for processes that only compile.
/// Errors: as open_device().
Target device_target(const std::string& name);

}  // namespace seqtile
