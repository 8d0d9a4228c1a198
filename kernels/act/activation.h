// kernels/act/activation.h -- the activations that fuse into other kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <string_view>

namespace seqtile {
class KernelBuilder;
class Var;
}  // namespace seqtile

namespace seqtile::kernels {

enum class Activation { none, silu, gelu, gelu_tanh, relu_squared };
inline constexpr std::array<std::string_view, 5> kActivationNames = {"none", "silu", "gelu", "gelu_tanh",
                                                                     "relu_squared"};

/// The enumerator with this name. Errors: invalid_argument listing them.
Activation parse_activation(std::string_view name);

/// The activation of an f32 tile or scalar.
Var activate(KernelBuilder& b, Activation activation, Var x);
/// The same in double, for references.
double activate(Activation activation, double x);

/// An activation and its derivative.
template <class T>
struct Slope {
  T value, slope;
};
/// An activation of an f32 tile, with its derivative.
Slope<Var> slope_of(KernelBuilder& b, Activation activation, Var x);
/// The same in double, for references.
Slope<double> slope_of(Activation activation, double x);

}  // namespace seqtile::kernels
