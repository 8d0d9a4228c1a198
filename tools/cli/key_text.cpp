// tools/cli/key_text.cpp -- see key_text.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/key_text.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace seqtile::cli {
namespace {

/// As a shell reads it back.
std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("_-+=./:,@%", c); };
  if (std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

autotune::Fields workload_fields(const cache::TuningKey& key) {
  const autotune::Fields all = autotune::Fields::parse(key.workload_json);
  autotune::Fields told;
  for (const auto& [name, value] : all.values())
    if (name != "threads" || key.device_kind == "cpu") told.set(name, value);
  return told;
}

std::string next_step(const std::string& command, const Options& options) {
  std::string line = "`seqtile " + command;
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) line += flag + ' ' + quoted(value);
  };
  add("", options.operation);
  for (const std::string& field : options.set) add(" --set", field);
  add(" --model", options.model);
  add(" --lengths", options.lengths);
  add(" --kv-lengths", options.kv_lengths);
  add(" --length", options.length);
  add(" --dtype", options.dtype);
  if (options.device == "cpu") add(" --threads", options.threads);
  else add(" --device", options.device);
  add(" --cache", options.cache);
  add(" --artifacts", options.artifacts);
  return line + "`";
}

std::string next_build(const Options& options) {
  Options taken;
  taken.device = options.device, taken.cache = options.cache, taken.artifacts = options.artifacts;
  return next_step("cache build", taken);
}

}  // namespace seqtile::cli
