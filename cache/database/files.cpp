// cache/database/files.cpp -- see files.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

std::string make_parent_folders(const std::string& path) {
  std::filesystem::path folder;
  for (const auto& part : std::filesystem::path(parent_folder(path))) {
    folder /= part;
    if (mkdir(folder.c_str(), 0700) == 0) continue;
    const int cause = errno;  // EEXIST and others also come from an existing folder in which nothing can be made
    if (cause != EEXIST && access(folder.c_str(), F_OK) != 0)
      return fmt::format("folder {} cannot be made: {}", folder.string(), std::strerror(cause));
    if (std::error_code error; !std::filesystem::is_directory(folder, error) && !error)
      return folder.string() + " is not a folder";
  }
  return "";
}

}  // namespace seqtile::cache
