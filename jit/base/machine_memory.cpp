// jit/base/machine_memory.cpp -- see machine_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/machine_memory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace seqtile {
namespace {

/// The number behind `name` in a file of names and numbers; the first of the file where `name` is empty.
std::optional<double> number_in(const std::string& path, std::string_view name = {}) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const char* text = line.c_str() + name.size();
    char* end = nullptr;
    const double number = std::strtod(text, &end);
    if (end != text) return number;  // else a word such as "max"
  }
  return std::nullopt;
}

/// Names of one version's files. A count of pages of files is for a group with those below it.
struct GroupFiles {
  const char *folder, *limit, *used, *droppable;
};
constexpr GroupFiles kFirst{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file "};
constexpr GroupFiles kSecond{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

/// `group` and all groups above it. In a container the process's own group may be the folder itself.
void limit_by_groups(const std::string& root, const GroupFiles& files, std::filesystem::path group,
                     MachineMemory& memory) {
  while (true) {
    const std::filesystem::path folder = root + files.folder + group.string();
    if (const auto limit = number_in(folder / files.limit)) {
      const double used = number_in(folder / files.used).value_or(0);
      const double droppable = number_in(folder / "memory.stat", files.droppable).value_or(0);
      memory.bytes = std::min(memory.bytes, *limit);
      memory.available_bytes = std::min(memory.available_bytes, std::max(*limit - used + droppable, 0.0));
    }
    if (!group.has_relative_path()) return;
    group = group.parent_path();
  }
}

}  // namespace

MachineMemory read_machine_memory(const std::string& root) {
  const double total = 1024 * number_in(root + "/proc/meminfo", "MemTotal:").value_or(1 << 20);
  MachineMemory memory{total, 1024 * number_in(root + "/proc/meminfo", "MemAvailable:").value_or(total / 1024)};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/group" or "0::/group"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") limit_by_groups(root, kSecond, line.substr(second + 1), memory);
    if (controllers.find(",memory,") != std::string::npos)
      limit_by_groups(root, kFirst, line.substr(second + 1), memory);
  }
  return memory;
}

double machine_bytes() {
  static const double bytes = read_machine_memory().bytes;
  return bytes;
}

}  // namespace seqtile
