// kernels/act/activation.h -- the activations that fuse into other kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <string_view>

#include "jit/ir/builder.h"

namespace seqtile::kernels {

enum class Activation { none, silu, gelu, gelu_tanh };
inline constexpr std::array<std::string_view, 4> kActivationNames = {"none", "silu", "gelu", "gelu_tanh"};

/// The enumerator with this name. Errors: invalid_argument listing them.
Activation parse_activation(std::string_view name);
std::string_view activation_name(Activation activation);

/// Of an f32 tile or scalar.
Var activate(KernelBuilder& b, Activation activation, Var x);
/// The same in double, for references.
double activate(Activation activation, double x);

}  // namespace seqtile::kernels
