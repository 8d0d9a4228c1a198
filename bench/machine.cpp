// bench/machine.cpp -- reads facts from /proc, /sys and the build.
// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "bench/probe.h"
#include "jit/base/machine_memory.h"
#include "seqtile/target.h"

namespace seqtile::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The value of the first line of /proc/cpuinfo that starts with `name`.
std::string cpuinfo(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string cpu_model() {
  return cpuinfo("model name") + " (family " + cpuinfo("cpu family") + " model " + cpuinfo("model\t") + " stepping " +
         cpuinfo("stepping") + ")";
}

std::string or_unknown(std::string text) { return text.empty() ? "unknown" : text; }

}  // namespace

int64_t last_level_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string size = first_line("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    if (size.empty()) break;
    int64_t bytes = std::atoll(size.c_str());
    if (size.back() == 'K') bytes <<= 10;
    if (size.back() == 'M') bytes <<= 20;
    largest = std::max(largest, bytes);
  }
  return largest > 0 ? largest : int64_t{32} << 20;
}

int64_t available_bytes() {
  auto bytes = static_cast<int64_t>(read_machine_memory().available_bytes);
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, static_cast<int64_t>(own.rlim_cur));
  return bytes;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  utsname system{};
  uname(&system);
  return {
      {"date", utc_now()},
      {"commit", SEQTILE_BENCH_COMMIT},
      {"build_type", SEQTILE_BENCH_BUILD_TYPE},
      {"host_name", system.nodename},
      {"cpu", cpu_model()},
      {"num_cpus", std::to_string(usable_cores())},
      {"target", host_target().name},
      {"probe_isa", probe_isa()},
      {"last_level_cache_bytes", std::to_string(last_level_cache_bytes())},
      {"clock_mhz", cpuinfo("cpu MHz")},
      {"governor", or_unknown(first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))},
      {"transparent_hugepages", or_unknown(first_line("/sys/kernel/mm/transparent_hugepage/enabled"))},
      {"load_average", first_line("/proc/loadavg")},
      {"kernel", std::string(system.sysname) + " " + system.release},
      {"driver", "none (cpu)"},
  };
}

}  // namespace seqtile::bench
