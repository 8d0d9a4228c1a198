// tools/cli/file_conflicts.cpp -- see file_conflicts.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/file_conflicts.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "tools/cli/errors.h"

namespace seqtile::cli {
namespace {

struct NamedFile {
  std::string flag, path;
  bool is_output;
};

/// The path in a value: "FILE", "N=FILE" of --dump and --expect, "TYPE=@FILE" of --arg.
std::string path_in(const std::string& flag, const std::string& value) {
  const std::string before = flag == "--arg" ? "=@" : flag == "--dump" || flag == "--expect" ? "=" : "";
  if (before.empty()) return value;
  const size_t at = value.find(before);
  return at == std::string::npos ? "" : value.substr(at + before.size());
}

/// A value that names no regular file is another output, or nothing that could be lost.
std::vector<NamedFile> files_of(const CLI::App& command) {
  std::vector<NamedFile> files;
  for (const CLI::Option* option : command.get_options()) {
    const std::string flag = option->get_name();
    const bool is_output = flag == "--output" || flag == "--dump";
    const bool is_path = option->get_type_name().find("FILE") != std::string::npos || flag == "--arg";
    if (!is_output && !is_path) continue;
    for (const std::string& value : option->results()) {
      const std::string path = path_in(flag, value);
      std::error_code error;
      const bool is_file = std::filesystem::is_regular_file(path, error),
                 is_new = !std::filesystem::exists(path, error);
      if (is_file || (is_output && is_new)) files.push_back({flag, path, is_output});
    }
  }
  return files;
}

}  // namespace

bool is_same_path(const std::string& a, const std::string& b) {
  // A relative path with no existing part would stay relative. A path that the system cannot follow stays as given.
  const auto whole = [](const std::string& path) {
    std::error_code failure;
    const auto found = std::filesystem::weakly_canonical(std::filesystem::absolute(path, failure), failure);
    return failure ? std::filesystem::path(path).lexically_normal() : found;
  };
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) || whole(a) == whole(b);
}

void refuse_file_conflicts(const CLI::App& command) {
  const std::vector<NamedFile> files = files_of(command);
  for (const NamedFile& output : files)
    for (const NamedFile& other : files)
      if (&output != &other && output.is_output && is_same_path(output.path, other.path))
        bad_input(fmt::format("{} {}: is also the file of {}, which it would replace; give another path", output.flag,
                              output.path, other.flag));
}

}  // namespace seqtile::cli
