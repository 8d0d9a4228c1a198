// autotune/plan/torch_types.h -- number formats of tensors as PyTorch spells them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>

namespace seqtile::plan {

struct TorchType {
  const char *torch, *name;
  int64_t bytes;
};

inline constexpr std::array<TorchType, 10> kTorchTypes{{{"torch.float64", "f64", 8},
                                                        {"torch.float32", "f32", 4},
                                                        {"torch.float16", "f16", 2},
                                                        {"torch.bfloat16", "bf16", 2},
                                                        {"torch.int64", "i64", 8},
                                                        {"torch.int32", "i32", 4},
                                                        {"torch.int16", "i16", 2},
                                                        {"torch.int8", "i8", 1},
                                                        {"torch.uint8", "u8", 1},
                                                        {"torch.bool", "i1", 1}}};

}  // namespace seqtile::plan
