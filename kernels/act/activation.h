// kernels/act/activation.h -- the activations in kernels and references, with their derivatives.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

#include "seqtile/builder.h"
#include "seqtile/ops/rows.h"

namespace seqtile::kernels {

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
