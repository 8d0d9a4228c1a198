// tools/cli/devices.cpp -- `seqtile devices`: the devices of this machine, and the GPUs for which it can compile.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jit/device/gpu_facts.h"
#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// The reason why no NVIDIA GPU can be used.
std::string why_no_gpu() {
  try {
    open_device("cuda", 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "none was found";
}

/// Prints the profiles and returns them.
Json list_profiles() {
  print_line("profiles (compile and rank for a GPU that is not here: prewarm --device NAME):");
  Table table({"  profile", "GPU", "target", "memory", "multiprocessors"});
  Json profiles = Json::array();
  for (const DeviceProfile& profile : device_profiles()) {
    const GpuFacts& gpu = profile.facts;
    table.add({"  " + profile.name, gpu.name, gpu_target_name(gpu), format_bytes(static_cast<double>(gpu.memory_bytes)),
               std::to_string(gpu.num_multiprocessors)});
    Json facts = Json::object();
    for (const auto& [name, value] : key_facts(gpu)) facts[name] = value;
    profiles.push_back(
        {{"profile", profile.name}, {"name", gpu.name}, {"facts", std::move(facts)}, {"sources", profile.sources}});
  }
  table.print();
  return profiles;
}

int run(const Session&, const Options& options) {
  Json devices = Json::array();
  int num_gpus = 0;
  for (const DeviceInfo& device : list_devices()) {
    const bool is_gpu = device.kind == "cuda";
    const std::string id = is_gpu ? fmt::format("cuda:{}", num_gpus++) : device.kind;  // the value for --device
    print_line(id + ": " + device.name);
    Table table({"  fact", "value"});
    Json facts = Json::object();
    for (const auto& [name, value] : device.facts) {
      table.add({"  " + name, value});
      facts[name] = value;
    }
    table.print();
    devices.push_back({{"device", id}, {"name", device.name}, {"kind", device.kind}, {"facts", std::move(facts)}});
  }
  const std::string why = num_gpus ? "" : why_no_gpu();
  if (!num_gpus) print_line("cuda: " + why);
  Json json{{"devices", std::move(devices)}, {"profiles", list_profiles()}};
  if (!num_gpus) json["no_gpu"] = why;
  if (options.json) print_json(json);
  return kDone;
}

}  // namespace

void add_devices(CLI::App& app, Session& session) {
  add_command(app, session, "devices", "List the devices of this machine and their facts",
              "  seqtile devices\n  seqtile devices --json | tail -n 1", std::make_shared<Options>(), run);
}

}  // namespace seqtile::cli
