// planner/graph/torch_types.h -- number formats of tensors as PyTorch spells them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>

namespace seqtile::planner {

struct TorchType {
  const char *torch, *name;
  int64_t bytes;
};

inline constexpr std::array<TorchType, 17> kTorchTypes{{{"torch.float64", "f64", 8},
                                                        {"torch.float32", "f32", 4},
                                                        {"torch.float16", "f16", 2},
                                                        {"torch.bfloat16", "bf16", 2},
                                                        {"torch.int64", "i64", 8},
                                                        {"torch.int32", "i32", 4},
                                                        {"torch.int16", "i16", 2},
                                                        {"torch.int8", "i8", 1},
                                                        {"torch.uint8", "u8", 1},
                                                        {"torch.bool", "i1", 1},
                                                        {"torch.uint16", "u16", 2},
                                                        {"torch.uint32", "u32", 4},
                                                        {"torch.uint64", "u64", 8},
                                                        {"torch.complex64", "c64", 8},
                                                        {"torch.complex128", "c128", 16},
                                                        {"torch.float8_e4m3fn", "f8e4m3", 1},
                                                        {"torch.float8_e5m2", "f8e5m2", 1}}};

}  // namespace seqtile::planner
