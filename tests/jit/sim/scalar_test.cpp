// tests/jit/sim/scalar_test.cpp -- each scalar family against a plain C++ loop over random and awkward values.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <limits>

#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

constexpr int kCount = 256;

template <class T>
std::vector<T> random_values(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(kCount);
  for (int i = 0; i < kCount; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      const T awkward[] = {0,
                           T(-0.0),
                           1,
                           -1,
                           std::numeric_limits<T>::infinity(),
                           -std::numeric_limits<T>::infinity(),
                           std::numeric_limits<T>::max(),
                           T(0.5)};
      values[i] = i < 64 ? awkward[(i * (seed + 1)) % 8]
                         : static_cast<T>(static_cast<int64_t>(random() % 2000001) - 1000000) / 997;
    } else {
      const T awkward[] = {0,  1, static_cast<T>(-1), std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), 31,
                           33, 64};
      values[i] = i < 64 ? awkward[(i / (seed == 1 ? 1 : 8)) % 8] : static_cast<T>(random() >> (random() % 60));
    }
  }
  return values;
}

template <class T>
std::string suffix() {
  if (std::is_floating_point_v<T>) return sizeof(T) == 8 ? "f64" : "f32";
  return std::string(std::is_signed_v<T> ? "s" : "u") + std::to_string(8 * sizeof(T));
}
template <class T>
std::string reg(int number) {
  const char* bank = sizeof(T) == 2                ? "%rs"
                     : sizeof(T) == 8              ? (std::is_floating_point_v<T> ? "%fd" : "%rd")
                     : std::is_floating_point_v<T> ? "%f"
                                                   : "%r";
  return bank + std::to_string(number);
}

/// Runs `op d, a[, b[, c]]` on every element with registers d = 10, a = 11, b = 12, c = 13 and compares.
template <class D, class A, class B, class C>
void check_form(const std::string& op, const std::string& operands, const std::function<D(A, B, C)>& expected,
                double tolerance = 0) {
  std::vector<A> a = random_values<A>(1);
  std::vector<B> b = random_values<B>(2);
  std::vector<C> c = random_values<C>(3);
  std::vector<D> d(kCount);
  const auto load = [](const std::string& type, int bytes, const std::string& to, int from) {
    return "mul.wide.u32 %rd20, %r0, " + std::to_string(bytes) + ";\nadd.s64 %rd21, %rd" + std::to_string(from) +
           ", %rd20;\nld.global." + type + " " + to + ", [%rd21];\n";
  };
  std::string body = load(suffix<A>(), sizeof(A), reg<A>(11), 1) + load(suffix<B>(), sizeof(B), reg<B>(12), 2) +
                     load(suffix<C>(), sizeof(C), reg<C>(13), 3);
  body += op + " " + operands + ";\n";
  body += "mul.wide.u32 %rd20, %r0, " + std::to_string(sizeof(D)) + ";\nadd.s64 %rd21, %rd0, %rd20;\nst.global." +
          suffix<D>() + " [%rd21], " + reg<D>(10) + ";\n";
  Bench bench;
  bench.add(d), bench.add(a), bench.add(b), bench.add(c);
  bench.shape.threads = kCount;
  const LaunchResult result = bench.run(kernel_text(body, 4));
  INFO(op << "\n" << messages(result));
  REQUIRE(result.ok());
  for (int i = 0; i < kCount; ++i) {
    const D want = expected(a[i], b[i], c[i]);
    INFO("element " << i << " of " << +a[i] << ", " << +b[i] << ", " << +c[i] << ": " << +d[i] << ", expected "
                    << +want);
    if constexpr (std::is_floating_point_v<D>) {
      const bool is_same = (std::isnan(d[i]) && std::isnan(want)) || d[i] == want;
      REQUIRE((is_same || std::fabs(d[i] - want) <= tolerance * std::fabs(want)));
    } else {
      REQUIRE(d[i] == want);
    }
  }
}

template <class T>
void check_integers() {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const std::string t = suffix<T>(), bits = "b" + std::to_string(8 * sizeof(T));
  const std::string d = reg<T>(10), a = reg<T>(11), b = reg<T>(12), c = reg<T>(13);
  const std::string dab = d + ", " + a + ", " + b, dabc = dab + ", " + c;
  const auto run = [&](const std::string& op, const std::string& operands, std::function<T(T, T, T)> f) {
    check_form<T, T, T, T>(op, operands, f);
  };
  run("add." + t, dab, [](T x, T y, T) { return T(U(x) + U(y)); });
  run("sub." + t, dab, [](T x, T y, T) { return T(U(x) - U(y)); });
  run("mul.lo." + t, dab, [](T x, T y, T) { return T(U(x) * U(y)); });
  run("mad.lo." + t, dabc, [](T x, T y, T z) { return T(U(x) * U(y) + U(z)); });
  run("mul.hi." + t, dab, [](T x, T y, T) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return T((Wide(x) * Wide(y)) >> (8 * sizeof(T)));
  });
  run("min." + t, dab, [](T x, T y, T) { return std::min(x, y); });
  run("max." + t, dab, [](T x, T y, T) { return std::max(x, y); });
  run("div." + t, dab, [](T x, T y, T) {
    return y == 0 ? T(-1) : std::is_signed_v<T> && y == T(-1) ? T(U(0) - U(x)) : T(x / y);
  });
  run("rem." + t, dab, [](T x, T y, T) { return y == 0 ? x : std::is_signed_v<T> && y == T(-1) ? T(0) : T(x % y); });
  run("and." + bits, dab, [](T x, T y, T) { return T(x & y); });
  run("or." + bits, dab, [](T x, T y, T) { return T(x | y); });
  run("xor." + bits, dab, [](T x, T y, T) { return T(x ^ y); });
  run("not." + bits, d + ", " + a, [](T x, T, T) { return T(~x); });
  check_form<T, T, uint32_t, uint32_t>("shl." + bits, d + ", " + a + ", %r12", [](T x, uint32_t n, uint32_t) {
    return n >= 8 * sizeof(T) ? T(0) : T(U(x) << n);
  });
  check_form<T, T, uint32_t, uint32_t>("shr." + t, d + ", " + a + ", %r12", [](T x, uint32_t n, uint32_t) {
    return n >= 8 * sizeof(T) ? T(x < 0 ? -1 : 0) : T(x >> n);
  });
}

TEST_CASE("ptx machine: integer arithmetic and bit operations of every width", "[jit][sim]") {
  check_integers<uint16_t>();
  check_integers<int16_t>();
  check_integers<uint32_t>();
  check_integers<int32_t>();
  check_integers<uint64_t>();
  check_integers<int64_t>();
}

TEST_CASE("ptx machine: wide products, bit fields and counts", "[jit][sim]") {
  check_form<uint64_t, uint32_t, uint32_t, uint64_t>(
      "mad.wide.u32", "%rd10, %r11, %r12, %rd13",
      [](uint32_t a, uint32_t b, uint64_t c) { return uint64_t{a} * b + c; });
  check_form<int64_t, int32_t, int32_t, uint32_t>("mul.wide.s32", "%rd10, %r11, %r12",
                                                  [](int32_t a, int32_t b, uint32_t) { return int64_t{a} * b; });
  check_form<uint32_t, uint16_t, uint16_t, uint32_t>("mul.wide.u16", "%r10, %rs11, %rs12",
                                                     [](uint16_t a, uint16_t b, uint32_t) { return uint32_t{a} * b; });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "popc.b32", "%r10, %r11", [](uint32_t a, uint32_t, uint32_t) { return uint32_t(std::popcount(a)); });
  check_form<uint32_t, uint64_t, uint32_t, uint32_t>(
      "clz.b64", "%r10, %rd11", [](uint64_t a, uint32_t, uint32_t) { return uint32_t(std::countl_zero(a)); });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>("bfe.u32", "%r10, %r11, 5, 9",
                                                     [](uint32_t a, uint32_t, uint32_t) { return a >> 5 & 511; });
  check_form<int32_t, int32_t, uint32_t, uint32_t>(
      "bfe.s32", "%r10, %r11, 5, 9", [](int32_t a, uint32_t, uint32_t) { return int32_t(uint32_t(a) << 18) >> 23; });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "bfi.b32", "%r10, %r11, %r12, 4, 8",
      [](uint32_t a, uint32_t b, uint32_t) { return (b & ~0xff0u) | (a & 0xff) << 4; });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "prmt.b32", "%r10, %r11, %r12, 0x5410", [](uint32_t a, uint32_t b, uint32_t) { return (a & 0xffff) | b << 16; });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "lop3.b32", "%r10, %r11, %r12, %r13, 0xE8",
      [](uint32_t a, uint32_t b, uint32_t c) { return (a & b) | (a & c) | (b & c); });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "shf.l.wrap.b32", "%r10, %r11, %r12, %r13",
      [](uint32_t a, uint32_t b, uint32_t c) { return uint32_t((uint64_t{b} << 32 | a) << (c & 31) >> 32); });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>("brev.b32", "%r10, %r11", [](uint32_t a, uint32_t, uint32_t) {
    uint32_t r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
}

TEST_CASE("ptx machine: f32 and f64 arithmetic", "[jit][sim]") {
  using F = float;
  const auto run = [](const std::string& op, const std::string& operands, std::function<F(F, F, F)> f,
                      double tolerance = 0) { check_form<F, F, F, F>(op, operands, f, tolerance); };
  run("add.f32", "%f10, %f11, %f12", [](F a, F b, F) { return a + b; });
  run("sub.rn.f32", "%f10, %f11, %f12", [](F a, F b, F) { return a - b; });
  run("mul.f32", "%f10, %f11, %f12", [](F a, F b, F) { return a * b; });
  run("fma.rn.f32", "%f10, %f11, %f12, %f13", [](F a, F b, F c) { return std::fma(a, b, c); });
  run("div.rn.f32", "%f10, %f11, %f12", [](F a, F b, F) { return a / b; });
  run("min.f32", "%f10, %f11, %f12", [](F a, F b, F) { return std::fmin(a, b); });
  run("max.f32", "%f10, %f11, %f12", [](F a, F b, F) { return std::fmax(a, b); });
  run("neg.f32", "%f10, %f11", [](F a, F, F) { return -a; });
  run("abs.f32", "%f10, %f11", [](F a, F, F) { return std::fabs(a); });
  run("sqrt.rn.f32", "%f10, %f11", [](F a, F, F) { return std::sqrt(a); });
  run(
      "rcp.approx.ftz.f32", "%f10, %f11",
      [](F a, F, F) {
        const F r = 1 / a;
        return std::fabs(r) < 0x1p-126f ? std::copysign(0.0f, r) : r;
      },
      1e-6);
  run(
      "rsqrt.approx.f32", "%f10, %f11", [](F a, F, F) { return 1 / std::sqrt(a); }, 1e-6);
  run(
      "ex2.approx.ftz.f32", "%f10, %f11",
      [](F a, F, F) {
        const F r = std::exp2(a);
        return r < 0x1p-126f ? 0 : r;
      },
      1e-6);
  run(
      "lg2.approx.f32", "%f10, %f11", [](F a, F, F) { return std::log2(a); }, 1e-6);
  run(
      "tanh.approx.f32", "%f10, %f11", [](F a, F, F) { return std::tanh(a); }, 1e-6);
  check_form<double, double, double, double>("fma.rn.f64", "%fd10, %fd11, %fd12, %fd13",
                                             [](double a, double b, double c) { return std::fma(a, b, c); });
  check_form<double, double, double, double>("mul.f64", "%fd10, %fd11, %fd12",
                                             [](double a, double b, double) { return a * b; });
}

TEST_CASE("ptx machine: packed halves compute both elements", "[jit][sim]") {
  const auto widen_half = [](uint32_t bits) { return half_to_float(bits); };
  const auto narrow_half = [](float value) { return float_to_half(value); };
  const auto widen_bf16 = [](uint32_t bits) { return bf16_to_float(bits); };
  const auto narrow_bf16 = [](float value) { return float_to_bf16(value); };
  const auto pairwise = [](uint32_t a, uint32_t b, auto widen, auto narrow, auto f) {
    return narrow(f(widen(a & 0xffff), widen(b & 0xffff))) | narrow(f(widen(a >> 16), widen(b >> 16))) << 16;
  };
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "add.rn.f16x2", "%r10, %r11, %r12", [&](uint32_t a, uint32_t b, uint32_t) {
        return pairwise(a, b, widen_half, narrow_half, [](float x, float y) { return x + y; });
      });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "mul.rn.bf16x2", "%r10, %r11, %r12", [&](uint32_t a, uint32_t b, uint32_t) {
        return pairwise(a, b, widen_bf16, narrow_bf16, [](float x, float y) { return x * y; });
      });
}

TEST_CASE("ptx machine: comparisons, selections and predicates", "[jit][sim]") {
  check_form<uint32_t, int32_t, int32_t, uint32_t>("setp.lt.s32 %p1, %r11, %r12;\nselp.b32", "%r10, 7, 9, %p1",
                                                   [](int32_t a, int32_t b, uint32_t) { return a < b ? 7u : 9u; });
  check_form<uint32_t, uint64_t, uint64_t, uint32_t>("setp.le.u64 %p1, %rd11, %rd12;\nselp.u32", "%r10, 1, 0, %p1",
                                                     [](uint64_t a, uint64_t b, uint32_t) { return a <= b ? 1u : 0u; });
  check_form<uint32_t, float, float, uint32_t>("setp.neu.f32 %p1, %f11, %f12;\nselp.u32", "%r10, 1, 0, %p1",
                                               [](float a, float b, uint32_t) { return a != b ? 1u : 0u; });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>(
      "setp.hi.u32 %p1, %r11, %r12;\nsetp.eq.b32 %p2, %r13, 0;\nor.pred %p3, %p1, %p2;\nselp.u32", "%r10, 1, 0, %p3",
      [](uint32_t a, uint32_t b, uint32_t c) { return a > b || c == 0 ? 1u : 0u; });
}

TEST_CASE("ptx machine: conversions round, saturate and extend", "[jit][sim]") {
  check_form<int64_t, int32_t, uint32_t, uint32_t>("cvt.s64.s32", "%rd10, %r11",
                                                   [](int32_t a, uint32_t, uint32_t) { return int64_t{a}; });
  check_form<uint32_t, uint64_t, uint32_t, uint32_t>("cvt.u32.u64", "%r10, %rd11",
                                                     [](uint64_t a, uint32_t, uint32_t) { return uint32_t(a); });
  check_form<int32_t, int32_t, uint32_t, uint32_t>(
      "cvt.s32.s8", "%r10, %r11", [](int32_t a, uint32_t, uint32_t) { return int32_t{static_cast<int8_t>(a)}; });
  check_form<uint16_t, uint32_t, uint32_t, uint32_t>("cvt.u16.u32", "%rs10, %r11",
                                                     [](uint32_t a, uint32_t, uint32_t) { return uint16_t(a); });
  check_form<float, int32_t, uint32_t, uint32_t>("cvt.rn.f32.s32", "%f10, %r11",
                                                 [](int32_t a, uint32_t, uint32_t) { return float(a); });
  check_form<float, uint64_t, uint32_t, uint32_t>("cvt.rn.f32.u64", "%f10, %rd11",
                                                  [](uint64_t a, uint32_t, uint32_t) { return float(a); });
  check_form<double, float, uint32_t, uint32_t>("cvt.f64.f32", "%fd10, %f11",
                                                [](float a, uint32_t, uint32_t) { return double(a); });
  check_form<float, double, uint32_t, uint32_t>("cvt.rn.f32.f64", "%f10, %fd11",
                                                [](double a, uint32_t, uint32_t) { return float(a); });
  check_form<int32_t, float, uint32_t, uint32_t>("cvt.rzi.s32.f32", "%r10, %f11", [](float a, uint32_t, uint32_t) {
    return a != a ? 0 : a >= 2147483648.0f ? INT32_MAX : a <= -2147483648.0f ? INT32_MIN : int32_t(a);
  });
  check_form<float, float, uint32_t, uint32_t>("cvt.rmi.f32.f32", "%f10, %f11",
                                               [](float a, uint32_t, uint32_t) { return std::floor(a); });
  check_form<uint32_t, float, float, uint32_t>("cvt.rn.bf16x2.f32", "%r10, %f11, %f12", [](float a, float b, uint32_t) {
    return float_to_bf16(a) << 16 | float_to_bf16(b);
  });
  check_form<uint32_t, float, float, uint32_t>("cvt.rn.f16x2.f32", "%r10, %f11, %f12", [](float a, float b, uint32_t) {
    return float_to_half(a) << 16 | float_to_half(b);
  });
  check_form<float, uint16_t, uint32_t, uint32_t>("cvt.f32.f16", "%f10, %rs11",
                                                  [](uint16_t a, uint32_t, uint32_t) { return half_to_float(a); });
  check_form<uint32_t, uint32_t, uint32_t, uint32_t>("mov.b32 {%rs1, %rs2}, %r11;\nmov.b32", "%r10, {%rs2, %rs1}",
                                                     [](uint32_t a, uint32_t, uint32_t) { return a >> 16 | a << 16; });
  check_form<uint64_t, uint32_t, uint32_t, uint32_t>(
      "mov.b64", "%rd10, {%r11, %r12}", [](uint32_t a, uint32_t b, uint32_t) { return uint64_t{b} << 32 | a; });
}

TEST_CASE("float formats: every half survives the way to float and back", "[jit][sim]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (std::isnan(half_to_float(bits))) continue;
    REQUIRE(float_to_half(half_to_float(bits)) == bits);
    REQUIRE(float_to_bf16(bf16_to_float(bits)) == (std::isnan(bf16_to_float(bits)) ? 0x7fff : bits));
  }
  for (uint32_t bits = 0; bits < 256; ++bits) {
    if (!std::isnan(e4m3_to_float(bits))) REQUIRE(float_to_fp8(e4m3_to_float(bits), 3) == bits);
    if (std::isfinite(e5m2_to_float(bits))) REQUIRE(float_to_fp8(e5m2_to_float(bits), 2) == bits);
  }
}

}  // namespace
}  // namespace seqtile::sim
