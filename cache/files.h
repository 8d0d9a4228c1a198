// cache/files.h -- file descriptors with a lifetime, and the folders that lead to a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <unistd.h>

#include <string>

namespace seqtile::cache {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_;
};

/// "." for a plain name.
std::string parent_folder(const std::string& path);

/// Makes the folders that lead to `path`, mode 0700, as the XDG base directory rules ask. Failure shows when the file
/// is opened.
void make_parent_folders(const std::string& path);

/// `path`, or the first of `path`2, `path`3, ... that no file has.
std::string free_name(const std::string& path);

}  // namespace seqtile::cache
