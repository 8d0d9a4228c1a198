// jit/runtime/loaded_library.cpp -- see loaded_library.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/loaded_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string>
#include <vector>

namespace seqtile {
namespace {

struct Search {
  std::initializer_list<std::string_view> names;
  std::vector<std::string> paths;
};

/// Opens nothing, because the loader is locked meanwhile.
int note_if_named(dl_phdr_info* info, size_t, void* search) {
  auto& wanted = *static_cast<Search*>(search);
  const std::string_view path = info->dlpi_name, name = path.substr(path.rfind('/') + 1);
  if (std::any_of(wanted.names.begin(), wanted.names.end(), [&](auto begin) { return name.starts_with(begin); }))
    wanted.paths.emplace_back(path);
  return 0;
}

}  // namespace

void* find_loaded_library(std::initializer_list<std::string_view> names, const char* function) {
  Search search{names, {}};
  dl_iterate_phdr(note_if_named, &search);
  for (const std::string& path : search.paths)
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD); library && dlsym(library, function))
      return library;
  return nullptr;
}

}  // namespace seqtile
