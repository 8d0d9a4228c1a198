// cache/paths.cpp -- the default paths of the files.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/env.h"
#include "seqtile/stores.h"

namespace seqtile::cache {
namespace {

/// The path in the folder, or empty without a folder. A store opened at an empty path always misses and says so.
std::string in_folder(const std::optional<std::string>& folder, const char* name) {
  return folder ? *folder + "/" + name : "";
}

}  // namespace

std::string default_tuning_path() { return in_folder(env::cache_dir(), "tuning.db"); }
std::string default_artifacts_path() { return in_folder(env::cache_dir(), "artifacts.db"); }
std::string default_key_path() { return in_folder(env::config_dir(), "artifacts.key"); }

}  // namespace seqtile::cache
