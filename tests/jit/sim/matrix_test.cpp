// tests/jit/sim/matrix_test.cpp -- tensor-core products and fragment moves against plain loops.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "jit/sim/memory/sim_tensor_map.h"
#include "jit/sim/values/float_formats.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

struct Element {
  const char* name;
  int bytes;
};
constexpr Element kBf16{"bf16", 2}, kF16{"f16", 2}, kTf32{"tf32", 4}, kE4m3{"e4m3", 1}, kE5m2{"e5m2", 1};
constexpr Element kS8{"s8", 1}, kU8{"u8", 1};

bool is(const Element& a, const Element& b) { return a.name == b.name; }
bool is_integer(const Element& type) { return is(type, kS8) || is(type, kU8); }

float widen(const Element& type, uint32_t bits) {
  if (type.bytes == 4) return tf32_to_float(bits);
  if (is(type, kS8)) return static_cast<int8_t>(bits);
  if (is(type, kU8)) return static_cast<float>(bits);
  if (type.bytes == 2) return is(type, kF16) ? half_to_float(bits) : bf16_to_float(bits);
  return is(type, kE4m3) ? e4m3_to_float(bits) : e5m2_to_float(bits);
}

/// Small numbers that all formats hold exactly, so that every order of sums gives the same result.
std::vector<uint8_t> random_matrix(const Element& type, int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count * type.bytes));
  for (int i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(random() % 9) - 4) * 0.5f;
    uint32_t bits = is_integer(type) ? static_cast<uint32_t>(random()) : std::bit_cast<uint32_t>(value);
    if (type.bytes == 2) bits = is(type, kF16) ? float_to_half(value) : float_to_bf16(value);
    if (type.bytes == 1 && !is_integer(type)) bits = float_to_fp8(value, is(type, kE4m3) ? 3 : 2);
    std::memcpy(&bytes[static_cast<size_t>(i * type.bytes)], &bits, static_cast<size_t>(type.bytes));
  }
  return bytes;
}

float at(const Element& type, const std::vector<uint8_t>& bytes, int index) {
  uint32_t bits = 0;
  std::memcpy(&bits, &bytes[static_cast<size_t>(index * type.bytes)], static_cast<size_t>(type.bytes));
  return widen(type, bits);
}

/// d = a b + a-zero accumulator for one m16n8 product; A and B are loaded from global memory as the fragments demand.
void check_mma(const Element& type, int k) {
  const int per_word = 4 / type.bytes, regs_a = k * type.bytes / 8, regs_b = regs_a / 2;
  std::vector<uint8_t> a = random_matrix(type, 16 * k, 1), b = random_matrix(type, 8 * k, 2);
  std::vector<float> d(128, -1);
  std::string body = "shr.u32 %r1, %r0, 2;\nand.b32 %r2, %r0, 3;\n";
  const auto load = [&](const std::string& to, int base, int row_add, int reg_k) {
    return "add.u32 %r3, %r1, " + std::to_string(row_add) + ";\nmad.lo.u32 %r4, %r3, " +
           std::to_string(k * type.bytes) + ", " + std::to_string(reg_k * per_word * 4 * type.bytes) +
           ";\nmad.lo.u32 %r4, %r2, 4, %r4;\ncvt.u64.u32 %rd4, %r4;\nadd.s64 %rd5, %rd" + std::to_string(base) +
           ", %rd4;\nld.global.u32 " + to + ", [%rd5];\n";
  };
  std::string list_a, list_b;
  for (int r = 0; r < regs_a; ++r) {
    body += load("%r" + std::to_string(20 + r), 1, 8 * (r & 1), r >> 1);
    list_a += (r ? ", %r" : "%r") + std::to_string(20 + r);
  }
  for (int r = 0; r < regs_b; ++r) {
    body += load("%r" + std::to_string(30 + r), 2, 0, r);
    list_b += (r ? ", %r" : "%r") + std::to_string(30 + r);
  }
  body += "mov.f32 %f1, 0f3F800000;\nmma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col.f32." + type.name + "." +
          type.name + ".f32 {%f2, %f3, %f4, %f5}, {" + list_a + "}, {" + list_b + "}, {%f1, %f1, %f1, %f1};\n";
  body +=
      "mul.lo.u32 %r5, %r1, 32;\nmad.lo.u32 %r5, %r2, 8, %r5;\ncvt.u64.u32 %rd6, %r5;\nadd.s64 %rd7, %rd0, %rd6;\n"
      "st.global.v2.f32 [%rd7], {%f2, %f3};\nst.global.v2.f32 [%rd7+256], {%f4, %f5};\n";
  Bench bench;
  bench.add(d), bench.add(a), bench.add(b);
  const LaunchResult result = bench.run(kernel_text(body, 3));
  INFO(type.name << " k " << k << "\n" << messages(result));
  REQUIRE(result.ok());
  CHECK(result.counters.mma == 1);
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      float want = 1;
      for (int q = 0; q < k; ++q) want += at(type, a, m * k + q) * at(type, b, n * k + q);
      REQUIRE(d[m * 8 + n] == want);
    }
}

TEST_CASE("ptx machine: mma of every element type equals a plain product", "[jit][sim]") {
  check_mma(kBf16, 16);
  check_mma(kF16, 16);
  check_mma(kBf16, 8);
  check_mma(kTf32, 8);
  check_mma(kTf32, 4);
  check_mma(kE4m3, 32);
  check_mma(kE5m2, 32);
}

TEST_CASE("ptx machine: ldmatrix and stmatrix move and transpose 8x8 blocks", "[jit][sim]") {
  std::vector<uint16_t> in(256), out(256);
  for (int i = 0; i < 256; ++i) in[i] = static_cast<uint16_t>(i);
  const std::string prologue = R"(
mul.wide.u32 %rd4, %r0, 16;
add.s64 %rd5, %rd1, %rd4;
add.s64 %rd6, %rd0, %rd4;
ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd5];
mov.u32 %r5, buffer;
shl.b32 %r6, %r0, 4;
add.u32 %r7, %r5, %r6;
st.shared.v4.u32 [%r7], {%r1, %r2, %r3, %r4};
bar.warp.sync -1;
)";
  const std::string epilogue = R"(
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r7], {%r10, %r11, %r12, %r13};
bar.warp.sync -1;
ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r7];
st.global.v4.u32 [%rd6], {%r1, %r2, %r3, %r4};
)";
  for (const bool trans : {false, true}) {
    Bench bench;
    bench.add(out), bench.add(in);
    const LaunchResult result =
        bench.run(kernel_text(prologue + "ldmatrix.sync.aligned.m8n8.x4" + (trans ? ".trans" : "") +
                                  ".shared.b16 {%r10, %r11, %r12, %r13}, [%r7];\n" + epilogue,
                              2, ".shared .align 16 .b8 buffer[512];\n"));
    INFO(messages(result));
    REQUIRE(result.ok());
    for (int m = 0; m < 4; ++m)
      for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) REQUIRE(out[m * 64 + r * 8 + c] == in[m * 64 + (trans ? c * 8 + r : r * 8 + c)]);
  }
}

/// A product of integers has 32-bit sums; .satfinite stops at their ends.
void check_integer_mma(const std::string& types, const std::string& finite, uint32_t start, int32_t want) {
  std::vector<int32_t> d(128, -1);
  Bench bench;
  bench.add(d);
  const LaunchResult result =
      bench.run(kernel_text("mov.b32 %r1, 0xfefefefe;\nmov.b32 %r2, " + std::to_string(start) +
                            ";\nmma.sync.aligned.m16n8k32.row.col" + finite + ".s32." + types +
                            ".s32 {%r3, %r4, %r5, %r6}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r2, %r2, %r2, %r2};\n" +
                            "mul.wide.u32 %rd4, %r0, 16;\nadd.s64 %rd5, %rd0, %rd4;\n"
                            "st.global.v4.u32 [%rd5], {%r3, %r4, %r5, %r6};\n"));
  INFO(types << finite << messages(result));
  REQUIRE(result.ok());
  for (const int32_t value : d) REQUIRE(value == want);
}

TEST_CASE("ptx machine: mma of bytes, signed or not, wraps or sticks to the ends", "[jit][sim]") {
  check_integer_mma("s8.s8", "", 5, 32 * 2 * 2 + 5);
  check_integer_mma("u8.u8", "", 0, 32 * 254 * 254);
  check_integer_mma("u8.s8", "", 7, 7 - 32 * 254 * 2);
  check_integer_mma("u8.u8", ".satfinite", 0x7ffffff0, INT32_MAX);
  check_integer_mma("u8.u8", "", 0x7fffffff, static_cast<int32_t>(0x7fffffffu + 32u * 254 * 254));
}

/// One wgmma m64 over shared memory in the order of the layout.
struct WgmmaCase {
  Element type;
  Swizzle swizzle;
  bool trans_a = false, trans_b = false;
  int n = 64;
  std::string sums = "f32";
  bool is_negated = false;
};

/// Offset of 16-byte chunk `chunk` of K-major row `row`: groups of eight rows, then (without swizzle) chunks apart.
uint32_t k_major_offset(const WgmmaCase& c, int row, int chunk, int rows) {
  const int pitch = 16 << static_cast<int>(c.swizzle);
  if (c.swizzle == Swizzle::none) return static_cast<uint32_t>(chunk * rows * 16 + row * 16);
  return swizzled(static_cast<uint32_t>(row * pitch + chunk * 16), c.swizzle);
}
/// Offset in the MN-major layout: `block` eight elements along m or n, at depth k of 16.
uint32_t mn_major_offset(const WgmmaCase& c, int block, int k, int blocks) {
  const int chunks = 1 << static_cast<int>(c.swizzle), pitch = 16 * chunks;
  if (c.swizzle == Swizzle::none) return static_cast<uint32_t>((k / 8) * blocks * 128 + block * 128 + k % 8 * 16);
  return swizzled(static_cast<uint32_t>(block / chunks * pitch * 16 + k * pitch + block % chunks * 16), c.swizzle);
}

uint64_t descriptor(const WgmmaCase& c, bool is_trans, uint32_t address, int extent) {
  const int pitch = 16 << static_cast<int>(c.swizzle);
  uint64_t leading = 16, stride = static_cast<uint64_t>(pitch) * 8;
  if (!is_trans && c.swizzle == Swizzle::none) leading = static_cast<uint64_t>(extent) * 16, stride = 128;
  if (is_trans)
    leading = c.swizzle == Swizzle::none ? static_cast<uint64_t>(extent / 8) * 128 : static_cast<uint64_t>(pitch) * 16,
    stride = c.swizzle == Swizzle::none ? 128 : static_cast<uint64_t>(pitch) * 8;
  static constexpr uint64_t kModes[] = {0, 3, 2, 1};
  return (address >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | kModes[static_cast<int>(c.swizzle)] << 62;
}

void place(const WgmmaCase& c, bool is_trans, const std::vector<uint8_t>& matrix, int extent, int k,
           std::vector<uint8_t>& image, int offset) {
  for (int row = 0; row < extent; ++row)
    for (int q = 0; q < k; ++q) {
      uint32_t to;
      if (is_trans) to = mn_major_offset(c, row / 8, q, extent / 8) + static_cast<uint32_t>(row % 8 * 2);
      else to = k_major_offset(c, row, q * c.type.bytes / 16, extent) + static_cast<uint32_t>(q * c.type.bytes % 16);
      std::memcpy(&image[static_cast<size_t>(offset) + to], &matrix[static_cast<size_t>((row * k + q) * c.type.bytes)],
                  static_cast<size_t>(c.type.bytes));
    }
}

void check_wgmma(const WgmmaCase& c) {
  const int k = 32 / c.type.bytes, n = c.n, per_block = c.sums == "f16" ? 2 : 4;
  std::vector<uint8_t> a = random_matrix(c.type, 64 * k, 5), b = random_matrix(c.type, n * k, 6),
                       image(static_cast<size_t>(16384 + 128 * n));
  place(c, c.trans_a, a, 64, k, image, 0);
  place(c, c.trans_b, b, n, k, image, 16384);
  std::vector<float> d(64 * n, -1);
  std::string accumulators, zero = ".reg .b32 %acc<128>;\n.reg .b16 %half<2>;\n";
  for (int i = 0; i < n / 8 * per_block; ++i) {
    accumulators += (i ? ", %acc" : "%acc") + std::to_string(i);
    zero += "mov.b32 %acc" + std::to_string(i) + ", 0;\n";
  }
  const bool is_16bit = c.type.bytes == 2;
  std::string body = R"(
mov.u32 %r1, smem;
mov.u32 %r2, %r0;
COPY:
mul.wide.u32 %rd4, %r2, 16;
add.s64 %rd5, %rd1, %rd4;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5];
cvt.u32.u64 %r8, %rd4;
add.u32 %r9, %r1, %r8;
st.shared.v4.u32 [%r9], {%r4, %r5, %r6, %r7};
add.u32 %r2, %r2, 128;
setp.lt.u32 %p1, %r2, )" +
                     std::to_string(image.size() / 16) +
                     R"(;
@%p1 bra COPY;
fence.proxy.async.shared::cta;
bar.sync 0;
)" + zero + "wgmma.fence.sync.aligned;\nsetp.ne.b32 %p2, 1, 0;\nmov.u64 %rd6, " +
                     std::to_string(static_cast<int64_t>(descriptor(c, c.trans_a, 1024, 64))) + ";\nmov.u64 %rd7, " +
                     std::to_string(static_cast<int64_t>(descriptor(c, c.trans_b, 1024 + 16384, n))) +
                     ";\nwgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k" + std::to_string(k) + "." +
                     c.sums + "." + c.type.name + "." + c.type.name + " {" + accumulators + "}, %rd6, %rd7, %p2" +
                     (is_integer(c.type) ? ""
                      : c.is_negated     ? ", -1, 1"
                                         : ", 1, 1") +
                     (is_16bit ? std::string(", ") + (c.trans_a ? "1" : "0") + ", " + (c.trans_b ? "1" : "0") : "") +
                     ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
                     "shr.u32 %r10, %r0, 5;\nand.b32 %r11, %r0, 31;\nshr.u32 %r12, %r11, 2;\nand.b32 %r13, %r11, "
                     "3;\nmad.lo.u32 %r14, %r10, 16, %r12;\nmul.lo.u32 %r15, %r14, " +
                     std::to_string(4 * n) +
                     ";\n"
                     "mad.lo.u32 %r15, %r13, 8, %r15;\ncvt.u64.u32 %rd8, %r15;\nadd.s64 %rd9, %rd0, %rd8;\n";
  for (int j = 0; j < n / 8; ++j)
    for (int h = 0; h < 2; ++h) {
      const std::string first = std::to_string(j * 4 + h * 2), second = std::to_string(j * 4 + h * 2 + 1);
      if (c.sums == "f16")
        body += "mov.b32 {%half0, %half1}, %acc" + std::to_string(2 * j + h) +
                ";\ncvt.f32.f16 %f1, %half0;\ncvt.f32.f16 %f2, %half1;\n";
      else if (c.sums == "s32")
        body += "cvt.rn.f32.s32 %f1, %acc" + first + ";\ncvt.rn.f32.s32 %f2, %acc" + second + ";\n";
      else body += "mov.b32 %f1, %acc" + first + ";\nmov.b32 %f2, %acc" + second + ";\n";
      body += "st.global.v2.f32 [%rd9+" + std::to_string(j * 32 + h * 32 * n) + "], {%f1, %f2};\n";
    }
  Bench bench;
  bench.add(d), bench.add(image);
  bench.shape.threads = 128, bench.shape.shared_bytes = static_cast<int64_t>(image.size());
  const LaunchResult result = bench.run(kernel_text(body, 2, ".extern .shared .align 1024 .b8 smem[];\n"));
  INFO(c.type.name << " swizzle " << static_cast<int>(c.swizzle) << " trans " << c.trans_a << c.trans_b << "\n"
                   << messages(result));
  REQUIRE(result.ok());
  CHECK(result.counters.wgmma == 1);
  for (int m = 0; m < 64; ++m)
    for (int j = 0; j < n; ++j) {
      float want = 0;
      for (int q = 0; q < k; ++q) want += at(c.type, a, m * k + q) * at(c.type, b, j * k + q);
      REQUIRE(d[m * n + j] == (c.is_negated ? -want : want));
    }
}

TEST_CASE("ptx machine: wgmma of every n, kind of sum and sign", "[jit][sim]") {
  for (int n = 8; n <= 256; n += n < 64 ? 8 : 24) check_wgmma({.type = kBf16, .swizzle = Swizzle::b128, .n = n});
  check_wgmma({.type = kF16, .swizzle = Swizzle::b128, .n = 24, .sums = "f16"});
  check_wgmma({.type = kE5m2, .swizzle = Swizzle::b128, .n = 40, .sums = "f16"});
  check_wgmma({.type = kS8, .swizzle = Swizzle::b128, .n = 96, .sums = "s32"});
  check_wgmma({.type = kU8, .swizzle = Swizzle::none, .n = 24, .sums = "s32"});
  check_wgmma({.type = kBf16, .swizzle = Swizzle::b64, .is_negated = true});
  check_wgmma({.type = kTf32, .swizzle = Swizzle::b32, .n = 16, .is_negated = true});
}

TEST_CASE("ptx machine: wgmma with every type, swizzle and transposition", "[jit][sim]") {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) check_wgmma({kBf16, swizzle, trans_a, trans_b});
    check_wgmma({kF16, swizzle, false, true});
    check_wgmma({kTf32, swizzle, false, false});
    check_wgmma({kE4m3, swizzle, false, false});
  }
}

}  // namespace
}  // namespace seqtile::sim
