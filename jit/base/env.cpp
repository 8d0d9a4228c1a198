// jit/base/env.cpp -- see env.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/env.h"

#include <cstdlib>
#include <sstream>

namespace seqtile::env {
namespace {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

std::optional<std::string> user_dir(const char* own, const char* xdg, const char* home_suffix) {
  if (auto path = get(own)) return path;
  if (auto path = get(xdg)) return *path + "/seqtile";
  if (auto path = get("HOME")) return *path + home_suffix;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> log_level() { return get("SEQTILE_LOG"); }
std::optional<std::string> cpu_target() { return get("SEQTILE_CPU_TARGET"); }
std::optional<std::string> cache_dir() { return user_dir("SEQTILE_CACHE_DIR", "XDG_CACHE_HOME", "/.cache/seqtile"); }
std::optional<std::string> config_dir() {
  return user_dir("SEQTILE_CONFIG_DIR", "XDG_CONFIG_HOME", "/.config/seqtile");
}
std::optional<std::string> lock_dir() { return get("SEQTILE_LOCK_DIR"); }
std::optional<std::string> worker_program() { return get("SEQTILE_WORKER"); }
std::optional<std::string> ptxas_program() { return get("SEQTILE_PTXAS"); }
void set_ptxas_program(const std::string& program) { setenv("SEQTILE_PTXAS", program.c_str(), 1); }

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const auto root = get(name)) folders.push_back(*root + "/bin");
  std::istringstream path(get("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');)
    if (!folder.empty()) folders.push_back(folder);
  return folders;
}

}  // namespace seqtile::env
