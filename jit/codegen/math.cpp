// jit/codegen/math.cpp -- minimax polynomials as straight-line IR; see math.h.
// SPDX-License-Identifier: Apache-2.0
//
// Rules of this file. (1) No llvm.floor, rint or fma: on x86-64 without FMA they become library calls. Multiply-adds
// are llvm.fmuladd, fused where the target can; the polynomials are good enough for either. (2) Rounding to an integer
// is adding and subtracting 1.5 * 2^23, so no fast-math flag may be set: reassociation would cancel it. (3) A clamp is
// written `x > limit ? limit : x`, which is one instruction and lets NaN through. Coefficients: Remez exchange in 40
// digits, minimising the relative error of the function, each coefficient rounded to f32 before the next is fitted.
#include "jit/codegen/math.h"

#include <algorithm>
#include <initializer_list>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

namespace seqtile::codegen {
namespace {

using llvm::Value;

/// Constants and operations of the shape of one argument (a scalar or a vector of any width).
class Emitter {
 public:
  Emitter(llvm::IRBuilderBase& builder, Value* x)
      : b(builder),
        f32(x->getType()),
        i32(f32->getWithNewType(builder.getInt32Ty())),
        f64(f32->getWithNewType(builder.getDoubleTy())),
        guard_(builder) {
    b.clearFastMathFlags();
  }

  Value* constant(double value) const { return llvm::ConstantFP::get(f32, value); }
  Value* constant64(double value) const { return llvm::ConstantFP::get(f64, value); }
  Value* integer(int64_t value) const { return llvm::ConstantInt::get(i32, static_cast<uint64_t>(value), true); }

  Value* multiply_add(Value* a, Value* x, Value* c) const {
    return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, x, c});
  }
  /// Horner's rule; coefficients from the highest power down.
  Value* polynomial(Value* x, std::initializer_list<float> coefficients) const {
    Value* sum = nullptr;
    for (float coefficient : coefficients)
      sum = sum ? multiply_add(sum, x, constant(coefficient)) : constant(coefficient);
    return sum;
  }
  Value* at_most(Value* x, double limit) const {
    return b.CreateSelect(b.CreateFCmpOGT(x, constant(limit)), constant(limit), x);
  }
  Value* at_least(Value* x, double limit) const {
    return b.CreateSelect(b.CreateFCmpOLT(x, constant(limit)), constant(limit), x);
  }
  Value* bits(Value* x) const { return b.CreateBitCast(x, i32); }
  Value* from_bits(Value* x) const { return b.CreateBitCast(x, f32); }
  Value* magnitude(Value* x) const { return from_bits(b.CreateAnd(bits(x), integer(0x7fffffff))); }
  Value* copy_sign(Value* to, Value* from) const {
    return from_bits(b.CreateOr(bits(to), b.CreateAnd(bits(from), integer(0x80000000))));
  }

  llvm::IRBuilderBase& b;
  llvm::Type *f32, *i32, *f64;

 private:
  llvm::IRBuilderBase::FastMathFlagGuard guard_;
};

/// sin(x) or cos(x), on |x|; the sign of a sine follows at the end, which keeps that of zero. The reduction runs in
/// f64, where n * kHi is exact (20 + 33 bits), so that it is as good without fused multiply-adds as with them.
Value* emit_sine(llvm::IRBuilderBase& builder, Value* x, bool is_cosine) {
  constexpr double kMagic = 0x1.8p52, kHi = 0x1.921fb544p0, kLo = 0x1.0b4611a626331p-34,
                   kTwoOverPi = 0x1.45f306dc9c883p-1;
  const Emitter e(builder, x);
  auto& b = e.b;
  Value* wide = b.CreateFPExt(e.magnitude(x), e.f64);
  Value* shifted = e.multiply_add(wide, e.constant64(kTwoOverPi), e.constant64(kMagic));
  Value* n = b.CreateFSub(shifted, e.constant64(kMagic));
  Value* reduced = b.CreateFSub(wide, b.CreateFMul(n, e.constant64(kHi)));
  reduced = b.CreateFSub(reduced, b.CreateFMul(n, e.constant64(kLo)));
  Value* r = b.CreateFPTrunc(reduced, e.f32);
  Value* bits = b.CreateBitCast(shifted, e.f32->getWithNewType(b.getInt64Ty()));
  Value* quadrant = b.CreateAdd(b.CreateTrunc(bits, e.i32), e.integer(is_cosine ? 1 : 0));

  Value* u = b.CreateFMul(r, r);
  Value* sine = e.polynomial(u, {-0x1.9953p-13f, 0x1.110776p-7f, -0x1.555546p-3f});
  sine = e.multiply_add(b.CreateFMul(r, u), sine, r);
  Value* cosine = e.polynomial(u, {0x1.99e82ap-16f, -0x1.6c0c28p-10f, 0x1.55554ap-5f, -0.5f, 1.0f});
  Value* is_odd = b.CreateICmpNE(b.CreateAnd(quadrant, e.integer(1)), e.integer(0));
  Value* sign = b.CreateShl(b.CreateAnd(quadrant, e.integer(2)), e.integer(30));
  if (!is_cosine) sign = b.CreateXor(sign, b.CreateAnd(e.bits(x), e.integer(0x80000000)));
  return e.from_bits(b.CreateXor(e.bits(b.CreateSelect(is_odd, cosine, sine)), sign));
}

}  // namespace

// 2^x = (2 * 2^r) * 2^(n-1) with n = round(x), r = x - n. Adding 1.5 * 2^23 + 126 rounds and leaves the biased exponent
// of 2^(n-1) in the low bits of the sum, one shift away from the factor. n = 128 gives 2^127, so that the product
// overflows exactly where 2^x does; n = -126 gives the factor 0: results up to 2^-125.5 are 0, -inf included.
Value* emit_exp2(llvm::IRBuilderBase& builder, Value* x) {
  const Emitter e(builder, x);
  auto& b = e.b;
  Value* magic = e.constant(0x1.8p23 + 126);
  Value* clamped = e.at_most(e.at_least(x, -126), 128);
  Value* shifted = b.CreateFAdd(clamped, magic);
  Value* r = b.CreateFSub(clamped, b.CreateFSub(shifted, magic));
  Value* mantissa = e.polynomial(
      r, {0x1.41ca7ap-12f, 0x1.5f0c7cp-9f, 0x1.3b2d98p-6f, 0x1.c6af76p-4f, 0x1.ebfbdcp-2f, 0x1.62e43p+0f, 2.0f});
  return b.CreateFMul(mantissa, e.from_bits(b.CreateShl(e.bits(shifted), e.integer(23))));
}

// x = 2^n * m with m in [sqrt(1/2), sqrt(2)), f = m - 1: log2(x) = n + f * P(f), so the result is accurate
// relative to itself around x = 1, where n = 0.
Value* emit_log2(llvm::IRBuilderBase& builder, Value* x) {
  constexpr int64_t kSqrtHalfBits = 0x3f3504f3;
  const Emitter e(builder, x);
  auto& b = e.b;
  Value* is_small = b.CreateFCmpOLT(x, e.constant(0x1p-126));
  Value* normal = b.CreateSelect(is_small, b.CreateFMul(x, e.constant(0x1p23)), x);
  Value* offset = b.CreateSub(e.bits(normal), e.integer(kSqrtHalfBits));
  Value* n = b.CreateSIToFP(b.CreateAShr(offset, e.integer(23)), e.f32);
  n = b.CreateFAdd(n, b.CreateSelect(is_small, e.constant(-23), e.constant(0)));
  Value* m = e.from_bits(b.CreateAdd(b.CreateAnd(offset, e.integer(0x7fffff)), e.integer(kSqrtHalfBits)));
  Value* f = b.CreateFSub(m, e.constant(1));
  Value* p = e.polynomial(f, {-0x1.ab4504p-5f, 0x1.403accp-3f, -0x1.9ab0f8p-3f, 0x1.ae733ep-3f, -0x1.e9b3d4p-3f,
                              0x1.272728p-2f, -0x1.715d3ap-2f, 0x1.ec7244p-2f, -0x1.71546ep-1f, 0x1.715476p+0f});
  Value* finite = e.multiply_add(f, p, n);
  Value* infinity = llvm::ConstantFP::getInfinity(e.f32);
  Value* zero_or_nan = b.CreateSelect(b.CreateFCmpOEQ(x, e.constant(0)), llvm::ConstantFP::getInfinity(e.f32, true),
                                      llvm::ConstantFP::getNaN(e.f32));
  Value* positive = b.CreateSelect(b.CreateFCmpOEQ(x, infinity), infinity, finite);
  return b.CreateSelect(b.CreateFCmpOGT(x, e.constant(0)), positive, zero_or_nan);
}

// An odd polynomial up to 0.8, where 1 - 2 / (e^2x + 1) would cancel, and that formula above.
Value* emit_tanh(llvm::IRBuilderBase& builder, Value* x) {
  const Emitter e(builder, x);
  auto& b = e.b;
  Value* a = e.magnitude(x);
  Value* u = b.CreateFMul(a, a);
  Value* p = e.polynomial(
      u, {0x1.a007fcp-10f, -0x1.e5e506p-8f, 0x1.5d160ap-6f, -0x1.b92b2ep-5f, 0x1.110b58p-3f, -0x1.55553ep-2f});
  Value* small = e.multiply_add(b.CreateFMul(a, u), p, a);
  Value* power = emit_exp2(b, b.CreateFMul(a, e.constant(0x1.715476p+1)));
  Value* large = b.CreateFSub(e.constant(1), b.CreateFDiv(e.constant(2), b.CreateFAdd(power, e.constant(1))));
  return e.copy_sign(b.CreateSelect(b.CreateFCmpOLT(a, e.constant(0.8f)), small, large), x);
}

// An odd polynomial up to 0.92; above, 1 - erfc with a polynomial for log2(erfc), which is 1 in f32 from 4 on.
Value* emit_erf(llvm::IRBuilderBase& builder, Value* x) {
  const Emitter e(builder, x);
  auto& b = e.b;
  Value* a = e.magnitude(x);
  Value* p = e.polynomial(b.CreateFMul(a, a), {-0x1.3ac558p-11f, 0x1.476872p-8f, -0x1.b6938ep-6f, 0x1.ce1b0ep-4f,
                                               -0x1.8126eap-2f, 0x1.06eba6p-3f});
  Value* small = e.multiply_add(a, p, a);
  Value* q = e.polynomial(e.at_most(a, 4), {-0x1.fe94f6p-16f, 0x1.489e34p-11f, -0x1.8a5d7ap-8f, 0x1.28dfecp-5f,
                                            -0x1.3fedacp-3f, -0x1.d3d3f6p-1f, -0x1.a129e6p+0f, 0x1.0841c4p-12f});
  Value* large = b.CreateFSub(e.constant(1), emit_exp2(b, q));
  return e.copy_sign(b.CreateSelect(b.CreateFCmpOLT(a, e.constant(0.92f)), small, large), x);
}

Value* emit_sin(llvm::IRBuilderBase& b, Value* x) { return emit_sine(b, x, false); }
Value* emit_cos(llvm::IRBuilderBase& b, Value* x) { return emit_sine(b, x, true); }

Value* emit_philox(llvm::IRBuilderBase& b, Value* seed, Value* counter) {
  constexpr uint32_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57}, kSteps[2] = {0x9E3779B9, 0xBB67AE85};
  llvm::Type *word = b.getInt32Ty(), *wide = b.getInt64Ty();
  Value* x[4] = {counter, b.getInt32(0), b.getInt32(0), b.getInt32(0)};
  Value* key[2] = {b.CreateTrunc(seed, word), b.CreateTrunc(b.CreateLShr(seed, 32), word)};
  for (int round = 0; round < 10; ++round) {
    Value *low[2], *high[2];
    for (int j = 0; j < 2; ++j) {
      Value* product = b.CreateMul(b.CreateZExt(x[2 * j], wide), b.getInt64(kMultipliers[j]));
      low[j] = b.CreateTrunc(product, word), high[j] = b.CreateTrunc(b.CreateLShr(product, 32), word);
    }
    Value* next[4] = {b.CreateXor(b.CreateXor(high[1], x[1]), key[0]), low[1],
                      b.CreateXor(b.CreateXor(high[0], x[3]), key[1]), low[0]};
    std::copy(next, next + 4, x);
    for (int j = 0; j < 2; ++j) key[j] = b.CreateAdd(key[j], b.getInt32(kSteps[j]));
  }
  Value* bits = b.CreateUIToFP(b.CreateLShr(x[0], 8), b.getFloatTy());
  return b.CreateFMul(bits, llvm::ConstantFP::get(b.getFloatTy(), 0x1p-24));
}

}  // namespace seqtile::codegen
