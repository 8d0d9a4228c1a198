// autotune/misses.h -- the file of missed lengths: written by an engine, tuned by `seqtile prewarm --misses`.
// SPDX-License-Identifier: Apache-2.0
//
//   {"seqtile_misses": 1, "device": "cpu", "misses": [{"operation": "linear", "workload": {"dtype": "bf16",
//    "threads": 2, "n": 4096, "k": 4096, ...}, "lengths": [129, 144], "calls": 17}]}
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/engine.h"

namespace seqtile::autotune {

struct MissFile {
  std::string device;  ///< EngineOptions::device
  std::vector<Miss> misses;
};

std::string miss_file_text(const MissFile& file);
/// Errors: invalid_argument, with `name` and the place, on a text that is no such file.
MissFile read_miss_file(std::string_view text, const std::string& name);

/// Replaces the file as a whole, or leaves it. Errors: io; invalid_argument on an empty path.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace seqtile::autotune
