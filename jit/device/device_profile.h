// jit/device/device_profile.h -- the device of a profile.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "seqtile/device.h"

namespace seqtile {

/// A device that compiles for the profile and loads binaries to look at them. Launching and memory throw unsupported.
std::unique_ptr<Device> make_profile_device(const DeviceProfile& profile);

}  // namespace seqtile
