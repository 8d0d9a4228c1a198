// tests/jit/codegen/nvptx/ptx_test.cpp -- the PTX of small kernels.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "seqtile/builder.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

std::string ptx_of(KernelBuilder& b, const char* target = "sm_80") {
  const KernelBinary binary = compile(*b.finish(), gpu_target(target));
  CHECK(binary.stage == "ptx");
  const std::string text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
  // Drivers from CUDA 12.5 on take the text.
  int major = 99, minor = 0;
  CHECK(std::sscanf(text.c_str() + text.find(".version"), ".version %d.%d", &major, &minor) == 2);
  CHECK(10 * major + minor <= 85);
  return text;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// y = x + x on rows of `n` bf16.
std::string doubled_rows(int64_t n) {
  KernelBuilder b("doubled");
  b.align_rows(16);
  b.schedule({{"num_warps", int64_t{4}}});
  Var x = b.view("x", DType::bf16, {kDynamic, n}), y = b.view("y", DType::bf16, {kDynamic, n});
  Var row = b.program_id(0) * 4;
  Var value = b.load(x, {row, 0}, {4, n});
  b.store(y, {row, 0}, value + value);
  return ptx_of(b);
}

}  // namespace

TEST_CASE("ptx: rows that are whole vectors travel 16 bytes at a time", "[jit][nvptx]") {
  const std::string text = doubled_rows(1024);
  CHECK(count(text, "ld.global.v4.b32") == 4);
  CHECK(count(text, "st.global.v4.b32") == 4);
  CHECK(count(text, "ld.global") == 4);
  CHECK(count(text, ".reqntid 128, 1, 1") == 1);
}

TEST_CASE("ptx: rows of an odd size travel an element at a time", "[jit][nvptx]") {
  const std::string text = doubled_rows(1023);
  CHECK(count(text, ".v4.") == 0);
  CHECK(count(text, "ld.global.b16") > 0);
}

TEST_CASE("ptx: a sum goes through shuffles, and shared memory where warps share a row", "[jit][nvptx]") {
  for (const int64_t warps : {1, 4}) {
    KernelBuilder b("sum");
    b.schedule({{"num_warps", warps}});
    Var x = b.view("x", DType::f32, {kDynamic, 1024}), y = b.view("y", DType::f32, {kDynamic});
    Var row = b.program_id(0);
    b.store(y, {row}, b.sum(b.load(x, {row, 0}, {1, 1024}), 1));
    const std::string text = ptx_of(b);
    CHECK(count(text, "shfl.sync.bfly") == 5);
    CHECK((count(text, "bar.sync") > 0) == (warps > 1));
  }
}

TEST_CASE("ptx: a product is made of ldmatrix and mma", "[jit][nvptx]") {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    KernelBuilder b("product");
    b.schedule({{"num_warps", int64_t{4}}});
    Var x = b.view("x", dtype, {kDynamic, 32}), w = b.view("w", dtype, {64, 32});
    Var y = b.view("y", DType::f32, {kDynamic, 64});
    Var row = b.program_id(0) * 64;
    Var product = b.dot(b.load(x, {row, 0}, {64, 32}), b.trans(b.load(w, {0, 0}, {64, 32})), b.full({64, 64}, 0.0));
    b.store(y, {row, 0}, product);
    const std::string text = ptx_of(b);
    // The 64 x 64 results are tiles of 16 x 8; k = 32 has steps of 16, or of 8 with three products each; four warps
    // share the work.
    CHECK(count(text, "mma.sync") == 8 * (dtype == DType::f32 ? 4 * 3 : 2));
    CHECK(count(text, "ldmatrix") > 0);
  }
}

TEST_CASE("ptx: signals release and waits acquire, atomics have their order, and all their scope", "[jit][nvptx]") {
  for (const std::string scope : {"cta", "gpu", "sys"})
    for (const std::string order : {"relaxed", "acquire", "release", "acq_rel"})
      for (const DType dtype : {DType::i32, DType::i64}) {
        KernelBuilder b("flags");
        Var flags = b.view("flags", dtype, {kDynamic});
        Var turn = b.scalar("turn", dtype);
        Var me = b.program_id(0);
        b.wait_ge(flags, {me}, turn, scope);
        Var old = b.atomic("add", flags, {me}, turn, order, scope);
        b.fence(scope);
        b.cas(flags, {me + 1}, old, turn, order, scope);
        b.signal("add", flags, {me + 2}, turn, scope);
        b.signal("set", flags, {me + 3}, turn, scope);
        const std::string text = ptx_of(b), bits = dtype == DType::i32 ? "32" : "64";
        INFO(text);
        // All accesses to the flags, with the words that order them.
        const std::vector<std::string> wanted = {"ld.acquire." + scope + ".global.s" + bits,
                                                 "atom." + order + "." + scope + ".global.add.u" + bits,
                                                 "fence.acq_rel." + scope + ";",
                                                 "atom." + order + "." + scope + ".global.cas.b" + bits,
                                                 "red.release." + scope + ".global.add.u" + bits,
                                                 "st.release." + scope + ".global.b" + bits};
        for (const std::string& part : wanted) CHECK(count(text, part) == 1);
        CHECK(count(text, ".global.") + count(text, "fence.") == wanted.size());
      }
}

TEST_CASE("ptx: a tile that does not fit the registers is refused before the compiler runs", "[jit][nvptx]") {
  KernelBuilder b("large");
  b.schedule({{"num_warps", int64_t{1}}});
  Var x = b.view("x", DType::f32, {kDynamic, 16384}), y = b.view("y", DType::f32, {kDynamic, 16384});
  b.store(y, {0, 0}, b.load(x, {0, 0}, {1, 16384}));
  try {
    ptx_of(b);
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    CHECK(std::string(error.what()).find("needs 512 values a thread with 1 warps, 256 fit") != std::string::npos);
  }
}

TEST_CASE("ptx: what needs more shared memory than a block has is refused before the compiler runs", "[jit][nvptx]") {
  const auto product = [](const char* target) {
    KernelBuilder b("deep");
    b.schedule({{"num_warps", int64_t{8}}});
    Var x = b.view("x", DType::bf16, {64, 768}), w = b.view("w", DType::bf16, {64, 768});
    Var y = b.view("y", DType::f32, {64, 64});
    b.store(y, {0, 0},
            b.dot(b.load(x, {0, 0}, {64, 768}), b.trans(b.load(w, {0, 0}, {64, 768})), b.full({64, 64}, 0.0)));
    return ptx_of(b, target);
  };
  CHECK(count(product("sm_90a"), "mma.sync") > 0);
  CHECK_THROWS_WITH(product("sm_80"),
                    "kernel deep: operation dot needs 196608 B of shared memory, a block on sm_80 has 166912 B; take "
                    "smaller tiles or fewer stages");
}

TEST_CASE("ptx: a block has a power of two of warps", "[jit][nvptx]") {
  for (const int64_t warps : {-1, 0, 3, 64}) {
    KernelBuilder b("block");
    b.schedule({{"num_warps", warps}});
    b.store(b.view("y", DType::f32, {32}), {0}, b.full({32}, 1.0));
    try {
      ptx_of(b);
      FAIL("not refused");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::compile_failed);
      CHECK(error.what() == "kernel block: num_warps is " + std::to_string(warps) +
                                "; a block of threads has 1, 2, 4, 8, 16 or 32 warps");
    }
  }
}

TEST_CASE("ptx: values that are used twice at every step do not double the time to compile", "[jit][nvptx]") {
  KernelBuilder b("doubling");
  b.align_rows(16);
  Var x = b.view("x", DType::f32, {128}), y = b.view("y", DType::f32, {128});
  Var before = b.load(x, {0}, {128}), value = before;
  for (int i = 0; i < 60; ++i) value = value + value;
  b.store(y, {0}, before);  // the store asks whether the load is needed later
  b.store(x, {0}, value);
  CHECK(count(ptx_of(b), "ld.global") == 1);
}

TEST_CASE("ptx: unknown GPU targets are named with those that exist", "[jit][nvptx]") {
  CHECK_THROWS_WITH(gpu_target("sm_70"), Catch::Contains("sm_70") && Catch::Contains("sm_80 and sm_90a"));
}

}  // namespace seqtile
