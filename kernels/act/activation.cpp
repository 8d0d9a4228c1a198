// kernels/act/activation.cpp -- see activation.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/act/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/ranges.h>

#include "jit/base/nearest_word.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile::kernels {
namespace {

// gelu_tanh(x) = x/2 (1 + tanh(kScale (x + kCube x^3)))
constexpr double kScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCube = 0.044715;
constexpr double kNormalDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // of the normal distribution at 0

}  // namespace

Activation parse_activation(std::string_view name) {
  const auto found = std::ranges::find(kActivationNames, name);
  if (found != kActivationNames.end()) return static_cast<Activation>(found - kActivationNames.begin());
  throw Error(ErrorCode::invalid_argument,
              fmt::format("activation {} is unknown; use one of {}{}", name, fmt::join(kActivationNames, ", "),
                          did_you_mean(name, kActivationNames)));
}

Var activate(KernelBuilder& b, Activation activation, Var x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return b.silu(x);
    case Activation::gelu: return b.gelu(x);
    case Activation::gelu_tanh: return b.gelu_tanh(x);
    case Activation::relu_squared: {
      Var positive = b.max(x, 0.0);
      return positive * positive;
    }
  }
  return x;
}

double activate(Activation activation, double x) { return slope_of(activation, x).value; }

Slope<Var> slope_of(KernelBuilder& b, Activation activation, Var x) {
  switch (activation) {
    case Activation::none: {
      const ir::Type& type = x.type();
      return {x, b.full({type.shape.begin(), type.shape.begin() + type.rank}, 1.0)};
    }
    case Activation::silu: {
      Var s = b.sigmoid(x);
      return {x * s, s * (1.0 + x * (1.0 - s))};
    }
    case Activation::gelu: {
      Var below = 0.5 + 0.5 * b.unary(ir::OpKind::erf, x * (1.0 / std::numbers::sqrt2));
      Var density = kNormalDensity * b.exp(-0.5 * (x * x));
      return {x * below, below + x * density};
    }
    case Activation::gelu_tanh: {
      Var square = x * x;
      Var t = b.unary(ir::OpKind::tanh, x * (kScale + kScale * kCube * square));
      Var inner = kScale + 3 * kScale * kCube * square, half = 0.5 * x;
      Var below = 0.5 + 0.5 * t, bend = half * (1.0 - t * t);
      return {x * below, below + bend * inner};
    }
    case Activation::relu_squared: {
      Var positive = b.max(x, 0.0);
      return {positive * positive, 2.0 * positive};
    }
  }
  return {x, x};
}

Slope<double> slope_of(Activation activation, double x) {
  switch (activation) {
    case Activation::none: return {x, 1};
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Activation::gelu: {
      const double below = (1 + std::erf(x / std::numbers::sqrt2)) / 2;
      return {x * below, below + x * kNormalDensity * std::exp(-x * x / 2)};
    }
    case Activation::gelu_tanh: {
      const double t = std::tanh(kScale * (x + kCube * x * x * x));
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * kScale * (1 + 3 * kCube * x * x)};
    }
    case Activation::relu_squared: return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0};
  }
  return {x, 1};
}

}  // namespace seqtile::kernels
