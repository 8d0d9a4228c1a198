// tests/support/golden.cpp -- golden files: reading, comparing, leaving the new text behind.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace seqtile::testing {

std::string compare_golden(const std::string& name, std::string_view actual) {
  const auto path = std::filesystem::path(__FILE__).parent_path().parent_path() / "golden" / name;
  std::ifstream file(path, std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.is_open() && expected == actual) return "";

  const auto left = std::filesystem::absolute(path.filename().string() + ".actual");
  std::ofstream(left, std::ios::binary) << actual;
  const auto common = std::mismatch(expected.begin(), expected.end(), actual.begin(), actual.end()).first;
  const auto line = 1 + std::count(expected.begin(), common, '\n');
  return name + " differs from line " + std::to_string(line) + " on; to accept the new text: cp " + left.string() +
         " " + path.string();
}

}  // namespace seqtile::testing
