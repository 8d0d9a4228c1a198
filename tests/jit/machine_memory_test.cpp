// tests/jit/machine_memory_test.cpp -- memory of machines and of control groups, from files as the system has them.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/machine_memory.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/temp_folder.h"

using namespace seqtile;

namespace {

constexpr double kGiB = 1 << 30;

/// What is read where these files are beside those of a machine of 16 GiB, 12 of them available.
MachineMemory memory_with(std::map<std::string, std::string> files) {
  const test::TempFolder folder;
  files.emplace("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        1 kB\nMemAvailable:   12582912 kB\n");
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = folder.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  return read_machine_memory(folder.path());
}

}  // namespace

TEST_CASE("machine memory: without a control group it is the machine's", "[jit]") {
  const MachineMemory memory = memory_with({});
  CHECK(memory.bytes == 16 * kGiB);
  CHECK(memory.available_bytes == 12 * kGiB);
  const MachineMemory unlimited =
      memory_with({{"proc/self/cgroup", "4:memory:/a\n0::/a\n"},
                   {"sys/fs/cgroup/a/memory.max", "max\n"},
                   {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"}});
  CHECK(unlimited.bytes == 16 * kGiB);
  CHECK(unlimited.available_bytes == 12 * kGiB);
}

TEST_CASE("machine memory: the least limit of the groups above a process counts, files' pages are not used", "[jit]") {
  const MachineMemory memory = memory_with({{"proc/self/cgroup", "0::/slice/unit\n"},
                                            {"sys/fs/cgroup/slice/memory.max", "2147483648\n"},
                                            {"sys/fs/cgroup/slice/memory.current", "2013265920\n"},
                                            {"sys/fs/cgroup/slice/memory.stat", "file 9\ninactive_file 1476395008\n"},
                                            {"sys/fs/cgroup/slice/unit/memory.max", "4294967296\n"},
                                            {"sys/fs/cgroup/slice/unit/memory.current", "1073741824\n"}});
  CHECK(memory.bytes == 2 * kGiB);
  CHECK(memory.available_bytes == 2147483648.0 - 2013265920 + 1476395008);
}

TEST_CASE("machine memory: the folder itself is a container's group", "[jit]") {
  const MachineMemory second = memory_with({{"proc/self/cgroup", "0::/\n"},
                                            {"sys/fs/cgroup/memory.max", "1073741824\n"},
                                            {"sys/fs/cgroup/memory.current", "1073741825\n"}});
  CHECK(second.bytes == kGiB);
  CHECK(second.available_bytes == 0);
  const MachineMemory first =
      memory_with({{"proc/self/cgroup", "5:cpu,memory:/docker/0123\n1:name=systemd:/\n0::/\n"},
                   {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"},
                   {"sys/fs/cgroup/memory/memory.usage_in_bytes", "805306368\n"},
                   {"sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 268435456\n"}});
  CHECK(first.bytes == kGiB);
  CHECK(first.available_bytes == kGiB / 2);
}

TEST_CASE("machine memory: this machine has some", "[jit]") {
  CHECK(machine_bytes() > 1e8);
  CHECK(read_machine_memory().available_bytes > 0);
}
