// kernels/act/activation.cpp -- see activation.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/act/activation.h"

#include <cmath>
#include <numbers>

#include "jit/base/error.h"
#include "jit/ir/builder.h"

namespace seqtile::kernels {

Activation parse_activation(std::string_view name) {
  for (size_t i = 0; i < kActivationNames.size(); ++i)
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
  throw Error(ErrorCode::invalid_argument,
              "activation " + std::string(name) + " is unknown; use none, silu, gelu or gelu_tanh");
}

std::string_view activation_name(Activation activation) { return kActivationNames[static_cast<size_t>(activation)]; }

Var activate(KernelBuilder& b, Activation activation, Var x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return b.silu(x);
    case Activation::gelu: return b.gelu(x);
    case Activation::gelu_tanh: return b.gelu_tanh(x);
  }
  return x;
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

}  // namespace seqtile::kernels
