// jit/runtime/cpu/host_info.cpp -- facts of the running machine; see cpu_device.h.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "jit/runtime/cpu/cpu_device.h"

#include <fmt/format.h>

namespace seqtile::cpu {
namespace {

/// Printable ASCII, single blanks, at most 64 characters: these strings end up in keys, tables and terminals.
std::string sanitize(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = c > ' ' && c < 127;
    if (is_plain) out += c;
    else if (!out.empty() && out.back() != ' ') out += ' ';
  }
  out.resize(std::min<size_t>(out.size(), 64));
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

/// The first processor's fields in /proc/cpuinfo.
std::map<std::string, std::string> read_cpuinfo() {
  std::map<std::string, std::string> fields;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    fields[sanitize(line.substr(0, colon))] = sanitize(line.substr(colon + 1));
  }
  return fields;
}

}  // namespace

DeviceInfo describe_host() {
  const Target& target = host_target();
  auto cpuinfo = read_cpuinfo();
  std::string name = cpuinfo["model name"];
  std::string model = name;
  // Names are often cut to the brand ("AMD EPYC"); the numbers tell generations apart.
  if (!cpuinfo["cpu family"].empty())
    model = fmt::format("{} family {} model {}", name, cpuinfo["cpu family"], cpuinfo["model"]);
  if (!cpuinfo["CPU part"].empty())
    model = name = fmt::format("ARM implementer {} part {}", cpuinfo["CPU implementer"], cpuinfo["CPU part"]);
  if (name.empty()) name = model = "unknown CPU";

  DeviceInfo info;
  info.kind = "cpu";
  info.name = name;
  info.facts = {{"cores", std::to_string(std::max(1u, std::thread::hardware_concurrency()))},
                {"l1_kib", std::to_string(target.l1_bytes >> 10)},
                {"l2_kib", std::to_string(target.l2_bytes >> 10)},
                {"l3_kib", std::to_string(target.l3_bytes >> 10)},
                {"model", sanitize(model)},
                {"target", target.name}};
  return info;
}

}  // namespace seqtile::cpu
