// tools/cli/devices.cpp -- `seqtile devices`: what this machine can run kernels on.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "jit/device.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

int run(const Session&, const Options& options) {
  Json devices = Json::array();
  for (const DeviceInfo& device : list_devices()) {
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
  if (options.json) print_json({{"devices", std::move(devices)}});
  return kDone;
}

}  // namespace

void add_devices(CLI::App& app, Session& session) {
  add_command(app, session, "devices", "List the devices of this machine and their facts",
              "  seqtile devices\n  seqtile devices --json | tail -n 1", std::make_shared<Options>(), run);
}

}  // namespace seqtile::cli
