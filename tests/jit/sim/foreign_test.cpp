// tests/jit/sim/foreign_test.cpp -- forms and launches of other compilers: blocks of any shape, rounding, pairs.
// SPDX-License-Identifier: Apache-2.0
#include <cfenv>
#include <cmath>
#include <cstring>

#include "jit/sim/values/float_formats.h"
#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

TEST_CASE("ptx launch: blocks of three dimensions, the last warp not full", "[jit][sim]") {
  std::vector<uint32_t> data(5 * 3 * 7, 0);
  Bench bench;
  bench.shape.threads = 5, bench.shape.threads_yz = {3, 7};
  bench.add(data);
  const LaunchResult result = bench.run(kernel_text(R"(
  mov.u32 %r1, %tid.y;
  mov.u32 %r2, %tid.z;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %ntid.y;
  mad.lo.s32 %r5, %r2, %r4, %r1;
  mad.lo.s32 %r5, %r5, %r3, %r0;
  mul.wide.u32 %rd1, %r5, 4;
  add.s64 %rd1, %rd0, %rd1;
  mad.lo.s32 %r6, %r2, 100, %r1;
  mad.lo.s32 %r6, %r6, 100, %r0;
  bar.sync 0;
  st.global.u32 [%rd1], %r6;)"));
  CHECK(messages(result) == "");
  for (uint32_t z = 0; z < 7; ++z)
    for (uint32_t y = 0; y < 3; ++y)
      for (uint32_t x = 0; x < 5; ++x) CHECK(data[(z * 3 + y) * 5 + x] == (z * 100 + y) * 100 + x);
}

TEST_CASE("ptx launch: a barrier with votes counts the threads that there are", "[jit][sim]") {
  std::vector<uint32_t> data(100 * 3, 0);
  Bench bench;
  bench.shape.threads = 100;
  bench.add(data);
  const LaunchResult result = bench.run(kernel_text(R"(
  mul.wide.u32 %rd1, %r0, 12;
  add.s64 %rd1, %rd0, %rd1;
  setp.ge.u32 %p1, %r0, 0;
  setp.gt.u32 %p2, %r0, 98;
  bar.red.popc.u32 %r1, 0, %p1;
  bar.red.and.pred %p3, 0, %p1;
  bar.red.and.pred %p4, 0, %p2;
  bar.red.or.pred %p5, 0, %p2;
  selp.b32 %r2, 1, 0, %p3;
  selp.b32 %r3, 2, 0, %p4;
  selp.b32 %r4, 4, 0, %p5;
  add.s32 %r2, %r2, %r3;
  add.s32 %r2, %r2, %r4;
  st.global.u32 [%rd1], %r1;
  st.global.u32 [%rd1+4], %r2;
  vote.sync.ballot.b32 %r5, %p1, -1;
  popc.b32 %r5, %r5;
  st.global.u32 [%rd1+8], %r5;)"));
  CHECK(messages(result) == "");
  for (size_t i = 0; i < 100; ++i) {
    CHECK(data[3 * i] == 100);
    CHECK(data[3 * i + 1] == 5);
    CHECK(data[3 * i + 2] == (i < 96 ? 32 : 4));
  }
}

TEST_CASE("ptx launch: shapes that the kernel or a device does not take", "[jit][sim]") {
  const auto refusal = [](const std::string& directives, std::array<int, 3> block) -> std::string {
    const std::string text =
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n" + directives + "{ ret; }\n";
    const Program program = decode_text(text, "k");
    LaunchShape shape;
    shape.threads = block[0], shape.threads_yz = {block[1], block[2]};
    Machine machine;
    try {
      machine.launch(program, shape, {});
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  CHECK(refusal("", {1, 1, 1}) == "");
  CHECK(refusal("", {33, 31, 1}) == "");
  CHECK_THAT(refusal("", {33, 32, 1}), Catch::Contains("a block of 33,32,1: 1 to 1024 threads"));
  CHECK_THAT(refusal("", {1, 1, 65}), Catch::Contains("at most 64 along z"));
  CHECK_THAT(refusal("", {0, 1, 1}), Catch::Contains("a block of 0,1,1"));
  CHECK(refusal(".reqntid 64, 2\n", {64, 2, 1}) == "");
  CHECK_THAT(refusal(".reqntid 128\n", {64, 2, 1}), Catch::Contains("a block of 64,2,1, the kernel requires 128,1,1"));
  CHECK_THAT(refusal(".maxntid 64\n", {65, 1, 1}),
             Catch::Contains("65 threads per block, the kernel takes at most 64"));
  CHECK_THAT(refusal(".reqnctapercluster 2\n", {32, 1, 1}),
             Catch::Contains("clusters of 1,1,1, the kernel requires 2,1,1"));
}

TEST_CASE("ptx launch: a matrix product needs a full warp", "[jit][sim]") {
  Bench bench;
  bench.shape.threads = 16;
  std::vector<uint32_t> data(4);
  bench.add(data);
  const LaunchResult result = bench.run(kernel_text(
      "mov.b32 %r1, 0;\nmov.f32 %f1, 0f00000000;\nmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f1,%f1,%f1}, "
      "{%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};"));
  CHECK(has(result, ReportKind::divergence));
}

/// Runs an instruction on three floats of each lane and returns its result's bits.
template <class T>
std::vector<T> of_lanes(const std::string& instruction, const std::vector<T>& a, const std::vector<T>& b,
                        const std::vector<T>& c, const std::string& target = "sm_90a") {
  const bool is_wide = sizeof(T) == 8;
  const std::string reg = is_wide ? "%fd" : "%f", type = is_wide ? "f64" : "f32";
  std::string body = "mul.wide.u32 %rd4, %r0, " + std::to_string(sizeof(T)) + ";\n";
  for (int p = 0; p < 4; ++p) body += "add.s64 %rd" + std::to_string(5 + p) + ", %rd" + std::to_string(p) + ", %rd4;\n";
  for (int p = 0; p < 3; ++p)
    body += "ld.global." + type + " " + reg + std::to_string(p + 1) + ", [%rd" + std::to_string(6 + p) + "];\n";
  body += instruction + "\nst.global." + type + " [%rd5], " + reg + "0;\n";
  std::vector<T> d(32, T(0)), x(a), y(b), z(c);
  x.resize(32, T(1)), y.resize(32, T(1)), z.resize(32, T(1));
  Bench bench;
  bench.add(d), bench.add(x), bench.add(y), bench.add(z);
  const LaunchResult result = bench.run(replaced(kernel_text(body, 4), "sm_90a", target));
  CHECK(messages(result) == "");
  return d;
}

TEST_CASE("ptx float: arithmetic that rounds toward zero, down and up", "[jit][sim]") {
  std::mt19937 random(7);
  const auto values = [&](int scale) {
    std::vector<float> result(32);
    for (float& v : result) v = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -20 - scale);
    return result;
  };
  const auto a = values(0), b = values(5), c = values(2);
  for (const std::string mode : {"rz", "rm", "rp"}) {
    // long double holds the sums and products of these f32 values exactly
    const auto rounded = [&](long double exact) {
      float nearest = static_cast<float>(exact);
      const bool is_up = mode == "rp" || (mode == "rz" && exact < 0);
      if (is_up && nearest < exact) nearest = std::nextafterf(nearest, INFINITY);
      if (!is_up && nearest > exact) nearest = std::nextafterf(nearest, -INFINITY);
      return nearest;
    };
    const auto add = of_lanes<float>("add." + mode + ".f32 %f0, %f1, %f2;", a, b, c);
    const auto sub = of_lanes<float>("sub." + mode + ".f32 %f0, %f1, %f2;", a, b, c);
    const auto mul = of_lanes<float>("mul." + mode + ".f32 %f0, %f1, %f2;", a, b, c);
    const auto fma = of_lanes<float>("fma." + mode + ".f32 %f0, %f1, %f2, %f3;", a, b, c);
    const auto div = of_lanes<float>("div." + mode + ".f32 %f0, %f1, %f2;", a, b, c);
    bool differs = false;
    for (size_t i = 0; i < 32; ++i) {
      const long double x = a[i], y = b[i], z = c[i];
      CHECK(add[i] == rounded(x + y));
      CHECK(sub[i] == rounded(x - y));
      CHECK(mul[i] == rounded(x * y));
      CHECK(fma[i] == rounded(x * y + z));
      CHECK(div[i] == rounded(x / y));
      differs |= div[i] != a[i] / b[i];
    }
    CHECK(differs);
  }
  CHECK(of_lanes<float>("fma.rz.sat.f32 %f0, %f1, %f2, %f3;", {4, -4, 0.25f}, {1, 1, 1}, {0, 0, 0})[0] == 1);
  CHECK(of_lanes<float>("add.rz.ftz.f32 %f0, %f1, %f2;", {0x1p-130f}, {0}, {})[0] == 0);
  CHECK(of_lanes<float>("sqrt.rp.f32 %f0, %f1;", {2}, {}, {})[0] == std::nextafterf(std::sqrt(2.0f), 2.0f));
  CHECK(of_lanes<double>("rcp.rp.f64 %fd0, %fd1;", {3}, {}, {})[0] > 1.0 / 3);
  CHECK(of_lanes<double>("add.rm.f64 %fd0, %fd1, %fd2;", {1}, {-0x1p-80}, {})[0] == std::nextafter(1.0, 0.0));
  CHECK(of_lanes<double>("rcp.approx.ftz.f64 %fd0, %fd1;", {4}, {}, {})[0] == Approx(0.25));
  CHECK(of_lanes<double>("rsqrt.approx.ftz.f64 %fd0, %fd1;", {4}, {}, {})[0] == Approx(0.5));
}

TEST_CASE("ptx float: smallest and largest of three, sums with 16-bit floats, pairs", "[jit][sim]") {
  const float nan = NAN;
  const auto least = of_lanes<float>("min.f32 %f0, %f1, %f2, %f3;", {3, 1, nan}, {2, 5, 4}, {7, -6, nan}, "sm_100");
  CHECK(std::vector(least.begin(), least.begin() + 3) == std::vector<float>{2, -6, 4});
  const auto most = of_lanes<float>("max.NaN.f32 %f0, %f1, %f2, %f3;", {3, 1, nan}, {2, 5, 4}, {7, -6, 1}, "sm_100");
  CHECK((most[0] == 7 && most[1] == 5 && std::isnan(most[2])));
  const std::string narrow = "cvt.rn.f16.f32 %rs1, %f1;\ncvt.rn.bf16.f32 %rs2, %f2;\n";
  CHECK(of_lanes<float>(narrow + "add.rn.f32.f16 %f0, %rs1, %f3;", {1.5f}, {}, {0.25f}, "sm_100")[0] == 1.75f);
  CHECK(of_lanes<float>(narrow + "sub.f32.bf16 %f0, %rs2, %f3;", {}, {1.5f}, {0.25f}, "sm_100")[0] == 1.25f);
  CHECK(of_lanes<float>(narrow + "mov.b16 %rs3, %rs1;\nfma.rn.f32.f16 %f0, %rs1, %rs3, %f3;", {3}, {}, {0.5f},
                        "sm_100")[0] == 9.5f);
  const std::string pair = "mov.b64 %rd20, {%f1, %f2};\nmov.b64 %rd21, {%f2, %f3};\n";
  const std::string unpack = "mov.b64 {%f4, %f5}, %rd22;\nmul.f32 %f0, %f4, 0f42C80000;\nadd.f32 %f0, %f0, %f5;";
  CHECK(of_lanes<float>(pair + "add.rn.f32x2 %rd22, %rd20, %rd21;\n" + unpack, {1}, {2}, {3}, "sm_100")[0] == 305);
  CHECK(of_lanes<float>(pair + "mul.f32x2 %rd22, %rd20, %rd21;\n" + unpack, {1}, {2}, {3}, "sm_100")[0] == 206);
  CHECK(of_lanes<float>(pair + "fma.rn.f32x2 %rd22, %rd20, %rd21, %rd20;\n" + unpack, {1}, {2}, {3}, "sm_100")[0] ==
        308);
  for (const char* form :
       {"add.rn.f32x2 %rd1, %rd2, %rd3;", "add.f32.f16 %f1, %rs1, %f2;", "min.f32 %f1, %f2, %f3, %f4;"})
    CHECK_THROWS_WITH(decode_text(kernel_text(form), "k"),
                      Catch::Contains("needs sm_100, the text says .target sm_90a"));
}

/// The result of an instruction on %r1 = `a`, %r2 = `b`, %r3 = `c` in lane 0.
uint32_t of_words(const std::string& instruction, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
  std::vector<uint32_t> data = {a, b, c};
  Bench bench;
  bench.add(data);
  const LaunchResult result = bench.run(kernel_text(
      "ld.global.u32 %r1, [%rd0];\nld.global.u32 %r2, [%rd0+4];\nld.global.u32 %r3, [%rd0+8];\nbar.warp.sync -1;\n" +
      instruction + "\nst.global.u32 [%rd0], %r4;"));
  CHECK(messages(result) == "");
  return data[0];
}

TEST_CASE("ptx integer: products of halves and bytes, the shift of the leading bit", "[jit][sim]") {
  const uint32_t a = 0xfffe0003, b = 0x80050207;  // halves -2 and 3; bytes 7, 2, 5, -128
  CHECK(of_words("dp2a.lo.s32.s32 %r4, %r1, %r2, %r3;", a, b, 100) == 100 + 3 * 7 - 2 * 2);
  CHECK(of_words("dp2a.hi.s32.s32 %r4, %r1, %r2, %r3;", a, b, 100) == 100 + 3 * 5 - 2 * -128);
  CHECK(of_words("dp2a.hi.u32.u32 %r4, %r1, %r2, %r3;", a, b, 100) == 100 + 3 * 5 + 0xfffeu * 128);
  CHECK(of_words("bfind.shiftamt.u32 %r4, %r1;", 0x00010000) == 15);
  CHECK(of_words("bfind.shiftamt.u32 %r4, %r1;", 0) == ~0u);
  CHECK(of_words("bfind.shiftamt.s32 %r4, %r1;", 0xfffffff0) == 28);
}

TEST_CASE("ptx compare: a comparison whose result is a number", "[jit][sim]") {
  CHECK(of_words("set.lt.u32.s32 %r4, %r1, %r2;", ~0u, 3) == ~0u);
  CHECK(of_words("set.lt.u32.u32 %r4, %r1, %r2;", ~0u, 3) == 0);
  CHECK(of_words("set.gt.f32.s32 %r4, %r1, %r2;", 4, 3) == 0x3f800000);
  CHECK(of_words("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nset.lt.f32.f32 %r4, %f1, %f2;", 0x3f800000, 0x40000000) ==
        0x3f800000);
  CHECK(of_words("mov.b32 %f1, %r1;\nset.ltu.ftz.u32.f32 %r4, %f1, %f1;", 0x7fc00000) == ~0u);
  const uint32_t a = 0x40003c00, b = 0x3c003c00;  // halves 1 and 2, compared with 1 and 1
  CHECK(of_words("set.eq.f16x2.f16x2 %r4, %r1, %r2;", a, b) == 0x00003c00);
  CHECK(of_words("set.gt.f16x2.f16x2 %r1, %r1, %r2;\nmov.b32 %r4, %r1;", a, b) == 0x3c000000);
  CHECK(of_words("set.ge.bf16x2.bf16x2 %r4, %r1, %r2;", 0x3f804000, 0x3f803f80) == 0x3f803f80);
  CHECK(of_words("mov.b32 {%rs1, %rs2}, %r1;\nset.gt.f16.f16 %rs3, %rs2, %rs1;\ncvt.u32.u16 %r4, %rs3;", a) == 0x3c00);
}

TEST_CASE("ptx move: which space an address is in", "[jit][sim]") {
  const auto ask = [](const std::string& space, const std::string& address) {
    return of_words(
        ".local .b8 own[4];\n.shared .b8 tile[4];\nmov.u64 %rd2, own;\ncvta.local.u64 %rd2, %rd2;\n"
        "mov.u64 %rd3, tile;\ncvta.shared.u64 %rd3, %rd3;\nisspacep." +
            space + " %p1, " + address + ";\nselp.b32 %r4, 1, 0, %p1;",
        0);
  };
  const std::pair<const char*, const char*> spaces[] = {{"global", "%rd0"}, {"local", "%rd2"}, {"shared", "%rd3"}};
  for (const auto& [space, own] : spaces)
    for (const auto& [other, address] : spaces) CHECK(ask(space, address) == (space == other ? 1 : 0));
}

TEST_CASE("ptx launch: the barrier of a cooperative grid has a workspace", "[jit][sim]") {
  // The code of cooperative groups: the last block's arrival flips the sign of a counter.
  const std::string text = kernel_text(R"(
  mov.u32 %r1, %envreg2;
  mov.u32 %r2, %envreg1;
  mov.b64 %rd1, {%r1, %r2};
  setp.eq.s64 %p1, %rd1, 0;
  @%p1 trap;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd2, %rd0, %rd2;
  setp.ne.u32 %p2, %r0, 0;
  @%p2 bra MET;
  st.global.u32 [%rd2], %r3;
  setp.eq.u32 %p3, %r3, 0;
  sub.s32 %r5, -2147483647, %r4;
  selp.b32 %r6, %r5, 1, %p3;
  fence.acq_rel.gpu;
  atom.add.release.gpu.u32 %r7, [%rd1+4], %r6;
AGAIN:
  ld.acquire.gpu.u32 %r8, [%rd1+4];
  xor.b32 %r9, %r8, %r7;
  setp.gt.s32 %p4, %r9, -1;
  @%p4 bra AGAIN;
  sub.s32 %r10, %r4, 1;
  sub.s32 %r10, %r10, %r3;
  mul.wide.u32 %rd3, %r10, 4;
  add.s64 %rd3, %rd0, %rd3;
  ld.global.u32 %r11, [%rd3];
  st.global.u32 [%rd2+64], %r11;
MET:
)");
  std::vector<uint32_t> data(32, 0);
  Bench bench;
  bench.shape.grid = {16, 1, 1}, bench.shape.cooperative = true;
  bench.add(data);
  CHECK(messages(bench.run(text)) == "");
  for (uint32_t i = 0; i < 16; ++i) CHECK(data[16 + i] == 15 - i);
  Bench alone;
  alone.add(data);
  CHECK(has(alone.run(text), ReportKind::trap));
}

/// A product of fragments: their shapes, types and layouts as in the text.
struct Product {
  int m, n, k;
  std::string a_layout, b_layout, d_layout, type, sum;
};

int bytes_of(const std::string& type) {
  return type == "f64" ? 8 : type[0] == 's' && type != "s32" ? 1 : type == "f16" || type == "bf16" ? 2 : 4;
}

/// Stores a small whole number, exact in every type.
void put(std::vector<std::byte>& into, size_t index, const std::string& type, int value) {
  const auto write = [&](auto bits) { std::memcpy(&into[index * sizeof(bits)], &bits, sizeof(bits)); };
  if (type == "f64") write(static_cast<double>(value));
  else if (type == "f16") write(static_cast<uint16_t>(float_to_half(static_cast<float>(value))));
  else if (type == "bf16") write(static_cast<uint16_t>(float_to_bf16(static_cast<float>(value))));
  else if (type == "s8") write(static_cast<int8_t>(value));
  else if (type == "s32") write(static_cast<int32_t>(value));
  else write(static_cast<float>(value));
}

std::string registers_of(const std::string& prefix, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + prefix + std::to_string(first + i);
  return text + "}";
}

void check_product(const Product& p) {
  INFO(p.m << "x" << p.n << "x" << p.k << " " << p.type << " " << p.sum << " " << p.a_layout << p.b_layout
           << p.d_layout);
  const std::string shape = "m" + std::to_string(p.m) + "n" + std::to_string(p.n) + "k" + std::to_string(p.k);
  const int kPad = 16;  // gap between rows or columns, in elements
  const auto at = [&](const std::string& layout, int row, int column, int rows, int columns) {
    return static_cast<size_t>(layout == "row" ? row * (columns + kPad) + column : column * (rows + kPad) + row);
  };
  const auto stride = [&](const std::string& layout, int rows, int columns) {
    return std::to_string((layout == "row" ? columns : rows) + kPad);
  };
  const auto value = [](int row, int column) { return (row * 7 + column * 3) % 5 - 2; };
  const size_t room = static_cast<size_t>(64) * 64;
  std::vector<std::byte> a(room * 8), b(room * 8), c(room * 8), expected(room * 8);
  for (int r = 0; r < p.m; ++r)
    for (int k = 0; k < p.k; ++k) put(a, at(p.a_layout, r, k, p.m, p.k), p.type, value(r, k));
  for (int k = 0; k < p.k; ++k)
    for (int n = 0; n < p.n; ++n) put(b, at(p.b_layout, k, n, p.k, p.n), p.type, value(k + 1, n));
  for (int r = 0; r < p.m; ++r)
    for (int n = 0; n < p.n; ++n) {
      int sum = value(r, n + 2);
      put(c, at(p.d_layout, r, n, p.m, p.n), p.sum, sum);
      for (int k = 0; k < p.k; ++k) sum += value(r, k) * value(k + 1, n);
      put(expected, at(p.d_layout, r, n, p.m, p.n), p.sum, sum);
    }
  const bool is_double = p.type == "f64";
  const auto registers = [&](const std::string& type, int elements) {
    return std::max(1, (type == "f16" && elements != p.m * p.n / 32 ? 16 : elements) * std::min(bytes_of(type), 4) / 4);
  };
  const int num_a = p.type == "f16" ? 8 : registers(p.type, p.m * p.k / 32);
  const int num_b = p.type == "f16" ? 8 : registers(p.type, p.k * p.n / 32);
  const int num_c = p.m * p.n / 32 * std::min(bytes_of(p.sum), 4) / 4;
  const std::string reg = is_double ? "%fd" : "%r";
  const std::string ra = registers_of(reg, 1, num_a), rb = registers_of(reg, 1 + num_a, num_b),
                    rc = registers_of(reg, 1 + num_a + num_b, num_c);
  const std::string types = p.type == "f16" ? p.sum + "." + p.sum : p.sum + "." + p.type + "." + p.type + "." + p.sum;
  Bench bench;
  bench.add(a), bench.add(b), bench.add(c);
  const LaunchResult result = bench.run(kernel_text(
      "wmma.load.a.sync.aligned." + p.a_layout + "." + shape + "." + p.type + " " + ra + ", [%rd0], " +
          stride(p.a_layout, p.m, p.k) + ";\nwmma.load.b.sync.aligned." + p.b_layout + "." + shape + ".global." +
          p.type + " " + rb + ", [%rd1], " + stride(p.b_layout, p.k, p.n) + ";\nwmma.load.c.sync.aligned." +
          p.d_layout + "." + shape + ".global." + p.sum + " " + rc + ", [%rd2], " + stride(p.d_layout, p.m, p.n) +
          ";\nwmma.mma.sync.aligned." + p.a_layout + "." + p.b_layout + "." + shape + "." + types + " " + rc + ", " +
          ra + ", " + rb + ", " + rc + ";\nwmma.store.d.sync.aligned." + p.d_layout + "." + shape + ".global." + p.sum +
          " [%rd2], " + rc + ", " + stride(p.d_layout, p.m, p.n) + ";",
      3));
  CHECK(messages(result) == "");
  CHECK(c == expected);
}

TEST_CASE("ptx wmma: products of every type, shape and layout", "[jit][sim]") {
  for (const char* a : {"row", "col"})
    for (const char* b : {"row", "col"})
      for (const char* d : {"row", "col"}) {
        for (const auto& [m, n] : {std::pair(16, 16), std::pair(8, 32), std::pair(32, 8)}) {
          check_product({m, n, 16, a, b, d, "f16", "f32"});
          check_product({m, n, 16, a, b, d, "f16", "f16"});
          check_product({m, n, 16, a, b, d, "bf16", "f32"});
          check_product({m, n, 16, a, b, d, "s8", "s32"});
        }
        check_product({16, 16, 8, a, b, d, "tf32", "f32"});
        check_product({8, 8, 4, a, b, d, "f64", "f64"});
      }
}

TEST_CASE("ptx wmma: loads and stores are checked like others", "[jit][sim]") {
  const auto reports = [](const std::string& body, size_t bytes) {
    std::vector<std::byte> data(bytes);
    Bench bench;
    bench.add(data);
    return messages(bench.run(kernel_text(body, 1, ".shared .align 32 .b8 tile[512];\n")));
  };
  const std::string load = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, ";
  CHECK(reports(load + "[%rd0], 16;", 512) == "");
  CHECK_THAT(reports(load + "[%rd0], 16;", 496), Catch::Contains("out of bounds") && Catch::Contains("b0 + 496"));
  CHECK_THAT(reports(load + "[%rd0+2], 16;", 1024), Catch::Contains("misaligned"));
  CHECK_THAT(reports(replaced(load, "global", "shared") + "[tile], 16;", 8), Catch::Contains("uninitialised"));
  CHECK_THROWS_WITH(decode_text(kernel_text(replaced(load, "m16n16k16", "m16n16k8") + "[%rd0], 16;"), "k"),
                    Catch::Contains("the type in this shape"));
}

TEST_CASE("ptx mma: bytes of k 16 and sums in halves of k 8", "[jit][sim]") {
  // a[row][k] = row + k, b[k][column] = k - column; lane 4g+t holds rows g, g+8 and columns 2t, 2t+1
  std::vector<uint32_t> in(32 * 8), out(32 * 4);
  const auto pack = [](int a, int b, int c, int d) {
    return static_cast<uint32_t>((a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24);
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, k = lane % 4 * 4;
    in[static_cast<size_t>(lane) * 8] = pack(g + k, g + k + 1, g + k + 2, g + k + 3);
    in[static_cast<size_t>(lane) * 8 + 1] = pack(g + 8 + k, g + 9 + k, g + 10 + k, g + 11 + k);
    in[static_cast<size_t>(lane) * 8 + 2] = pack(k - g, k + 1 - g, k + 2 - g, k + 3 - g);
    const auto half = [](int v) { return float_to_half(static_cast<float>(v)); };
    const int k2 = lane % 4 * 2;
    in[static_cast<size_t>(lane) * 8 + 3] = half(g + k2) | half(g + k2 + 1) << 16;
    in[static_cast<size_t>(lane) * 8 + 4] = half(g + 8 + k2) | half(g + 9 + k2) << 16;
    in[static_cast<size_t>(lane) * 8 + 5] = half(k2 - g) | half(k2 + 1 - g) << 16;
  }
  const std::string head = R"(
  mul.wide.u32 %rd2, %r0, 32;
  add.s64 %rd2, %rd0, %rd2;
  mul.wide.u32 %rd3, %r0, 16;
  add.s64 %rd3, %rd1, %rd3;
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2];
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2+16];
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
  mov.u32 %r12, 0;
  mov.u32 %r13, 0;
)";
  const auto sum = [](int row, int column, int length) {
    int total = 0;
    for (int k = 0; k < length; ++k) total += (row + k) * (k - column);
    return total;
  };
  for (const bool is_half : {false, true}) {
    Bench bench;
    bench.add(in), bench.add(out);
    const std::string product =
        is_half ? "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r10, %r11}, {%r4, %r5}, {%r6}, {%r10, %r11};\n"
                : "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r10, %r11, %r12, %r13}, {%r1, %r2}, {%r3}, "
                  "{%r10, %r11, %r12, %r13};\n";
    CHECK(messages(bench.run(kernel_text(head + product + "st.global.v4.u32 [%rd3], {%r10, %r11, %r12, %r13};", 2))) ==
          "");
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < 4; ++r) {
        const int row = lane / 4 + (r >= 2 ? 8 : 0), column = lane % 4 * 2 + r % 2;
        const size_t at = static_cast<size_t>(lane) * 4;
        if (is_half)
          CHECK(half_to_float(out[at + static_cast<size_t>(r / 2)] >> (r % 2 * 16) & 0xffff) == sum(row, column, 8));
        else CHECK(static_cast<int32_t>(out[at + static_cast<size_t>(r)]) == sum(row, column, 16));
      }
  }
}

}  // namespace
}  // namespace seqtile::sim
