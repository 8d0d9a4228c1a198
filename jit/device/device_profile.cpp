// jit/device/device_profile.cpp -- see device_profile.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device/device_profile.h"

#include "jit/base/forever.h"
#include "jit/compiler.h"
#include "jit/device/gpu_facts.h"
#include "jit/device/profiles/profile_texts.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

namespace seqtile {
namespace {

DeviceProfile parse_profile(std::string_view text) {
  const auto json = nlohmann::json::parse(text);
  DeviceProfile profile{json.at("profile"), {}, json.at("sources")};
  GpuFacts& facts = profile.facts;
  facts.name = json.at("name");
  facts.compute_capability = json.at("compute_capability");
  facts.num_multiprocessors = json.at("multiprocessors");
  facts.clock_mhz = json.at("clock_mhz");
  facts.memory_bytes = json.at("memory_bytes");
  facts.memory_gb_per_s = json.at("memory_gb_per_s");
  facts.l2_bytes = json.at("l2_bytes");
  facts.shared_bytes_per_block = json.at("shared_bytes_per_block");
  facts.shared_bytes_per_multiprocessor = json.at("shared_bytes_per_multiprocessor");
  facts.registers_per_multiprocessor = json.at("registers_per_multiprocessor");
  facts.threads_per_multiprocessor = json.at("threads_per_multiprocessor");
  facts.tensor_f16_tflops = json.at("tensor_tflops").at("f16");
  facts.tensor_tf32_tflops = json.at("tensor_tflops").at("tf32");
  facts.tensor_fp8_tflops = json.at("tensor_tflops").at("fp8");
  facts.f32_tflops = json.at("f32_tflops");
  facts.mig = json.at("mig");
  return profile;
}

class ProfileKernel final : public LoadedKernel {
 public:
  explicit ProfileKernel(KernelBinary binary) : LoadedKernel(std::move(binary)) {}
};

class ProfileDevice final : public Device {
 public:
  explicit ProfileDevice(const DeviceProfile& profile)
      : profile_(profile),
        target_(assembled(gpu_target(profile.facts))),
        info_{"cuda", profile.facts.name, key_facts(profile.facts)} {}

  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  DeviceMemory& memory() override { refuse("allocate memory"); }
  DeviceStreams& streams() override { refuse("make streams"); }
  const DeviceProfile& profile() const { return profile_; }

  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override {
    if (!is_made_for(binary, target_))
      throw Error(ErrorCode::invalid_argument, fmt::format("kernel {} is for {}, {} takes {}", binary.symbol,
                                                           binary.target, profile_.name, target_.name));
    return std::make_unique<ProfileKernel>(std::move(binary));
  }
  void launch(const LoadedKernel& kernel, const Grid&, std::span<const uint64_t>, Stream, GridRange) override {
    refuse("launch " + kernel.binary().symbol);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::unsupported,
                fmt::format("cannot {}: {} is the profile of a GPU, for compiling and ranking only; use --device cuda "
                            "where there is one, or sim:{}",
                            what, profile_.name, target_.name));
  }

  const DeviceProfile& profile_;
  Target target_;
  DeviceInfo info_;
};

}  // namespace

const std::vector<DeviceProfile>& device_profiles() {
  static const auto& profiles = forever([] {
    std::vector<DeviceProfile> parsed;
    for (const char* text : profile_texts()) parsed.push_back(parse_profile(text));
    return parsed;
  }());
  return profiles;
}

const DeviceProfile* find_profile(std::string_view name) {
  if (name == "sm_90a") name = "h200";
  if (name == "sm_80") name = "a100";
  for (const DeviceProfile& profile : device_profiles())
    if (profile.name == name) return &profile;
  return nullptr;
}

std::unique_ptr<Device> make_profile_device(const DeviceProfile& profile) {
  return std::make_unique<ProfileDevice>(profile);
}

const DeviceProfile* profile_of(const Device& device) {
  const auto* stand_in = dynamic_cast<const ProfileDevice*>(&device);
  return stand_in ? &stand_in->profile() : nullptr;
}

}  // namespace seqtile
