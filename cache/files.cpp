// cache/files.cpp -- see files.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace seqtile::cache {

std::string parent_folder(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string free_name(const std::string& path) {
  std::string name = path;
  for (int i = 2; access(name.c_str(), F_OK) == 0; ++i) name = path + std::to_string(i);
  return name;
}

void make_parent_folders(const std::string& path) {
  std::filesystem::path folder;
  for (const auto& part : std::filesystem::path(parent_folder(path))) {
    folder /= part;
    mkdir(folder.c_str(), 0700);
  }
}

}  // namespace seqtile::cache
