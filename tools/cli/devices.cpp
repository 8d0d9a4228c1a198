// tools/cli/devices.cpp -- `seqtile devices`: what this machine can run kernels on.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "jit/device.h"
#include "jit/error.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// Why there is no NVIDIA GPU.
std::string why_no_gpu() {
  try {
    open_device("cuda", 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "none was found";
}

int run(const Session&, const Options& options) {
  Json devices = Json::array();
  bool has_gpu = false;
  for (const DeviceInfo& device : list_devices()) {
    has_gpu = has_gpu || device.kind == "cuda";
    print_line(device.kind + ": " + device.name);
    Table table({"  fact", "value"});
    Json facts = Json::object();
    for (const auto& [name, value] : device.facts) {
      table.add({"  " + name, value});
      facts[name] = value;
    }
    table.print();
    devices.push_back({{"name", device.name}, {"kind", device.kind}, {"facts", std::move(facts)}});
  }
  const std::string why = has_gpu ? "" : why_no_gpu();
  if (!has_gpu) print_line("cuda: " + why);
  Json json{{"devices", std::move(devices)}};
  if (!has_gpu) json["no_gpu"] = why;
  if (options.json) print_json(json);
  return kDone;
}

}  // namespace

void add_devices(CLI::App& app, Session& session) {
  add_command(app, session, "devices", "List the devices of this machine and their facts",
              "  seqtile devices\n  seqtile devices --json | tail -n 1", std::make_shared<Options>(), run);
}

}  // namespace seqtile::cli
