// tests/planner/plan_files.h -- the golden problems.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace seqtile::testing {

constexpr const char* kPlanFiles[] = {"gpt_attn_384", "gpt_block_384", "gpt_mlp_384", "resnet18_b128_32px_2x2",
                                      "resnet50_b128_32px_2x2"};

inline std::string plan_file(const std::string& name) {
  return SEQTILE_SOURCE_DIR "/tests/golden/planner/" + name + ".json.gz";
}

}  // namespace seqtile::testing
