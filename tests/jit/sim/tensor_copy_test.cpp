// tests/jit/sim/tensor_copy_test.cpp -- bulk and tensor copies of every rank, swizzle and reduction.
// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "jit/sim/memory/sim_tensor_map.h"
#include "jit/sim/values/float_formats.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

using Extents = std::vector<int64_t>;

/// A tensor of 16-bit elements with rows of `pitch` elements, and a box in it.
struct TensorCase {
  Extents size, box, at;
  Swizzle swizzle = Swizzle::none;
  bool fill_nan = false;
  int64_t pitch = 0;  ///< elements from row to row, a multiple of 8

  size_t rank() const { return size.size(); }
  int64_t box_elements() const {
    int64_t count = 1;
    for (const int64_t extent : box) count *= extent;
    return count;
  }
  int64_t stride(size_t d) const {  // in elements
    int64_t stride = d == 0 ? 1 : pitch;
    for (size_t i = 1; i < d; ++i) stride *= size[i];
    return stride;
  }
  int64_t elements() const { return stride(rank() - 1) * size.back(); }
  /// Calls f(element of the box, element of the tensor or -1) for the whole box.
  void each(const std::function<void(int64_t, int64_t)>& f) const {
    for (int64_t e = 0; e < box_elements(); ++e) {
      int64_t rest = e, element = 0;
      for (size_t d = 0; d < rank(); ++d) {
        const int64_t position = at[d] + rest % box[d];
        rest /= box[d];
        if (position < 0 || position >= size[d]) element = -1;
        if (element >= 0) element += position * stride(d);
      }
      f(e, element);
    }
  }
  TensorMap map(const uint16_t* base) const {
    std::vector<uint64_t> sizes, strides;
    std::vector<uint32_t> boxes;
    for (size_t d = 0; d < rank(); ++d) {
      sizes.push_back(static_cast<uint64_t>(size[d])), boxes.push_back(static_cast<uint32_t>(box[d]));
      if (d > 0) strides.push_back(static_cast<uint64_t>(2 * stride(d)));
    }
    return encode_tensor_map(TensorElement::bf16, base, sizes, strides, boxes, swizzle, {}, fill_nan);
  }
  std::string coordinates() const {
    std::string text;
    for (const int64_t c : at) text += (text.empty() ? "" : ", ") + std::to_string(c);
    return text;
  }
};

/// Text that loads a box, copies shared memory to b0 as it is, and stores the box elsewhere; `store` is the store's
/// opcode.
std::string copy_text(const TensorCase& from, const TensorCase& to, const std::string& store) {
  const std::string words = std::to_string(from.box_elements() / 2), bytes = std::to_string(2 * from.box_elements());
  const std::string rank = std::to_string(from.rank());
  std::string text = kernel_text(R"(
mov.u32 %r1, smem;
mov.u32 %r2, barrier;
mov.b64 %rd10, m0;
mov.b64 %rd11, m1;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
prefetch.tensormap [%rd10];
mbarrier.init.shared::cta.b64 [%r2], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], )" +
                                     bytes +
                                     R"(;
cp.async.bulk.tensor.)" + rank + "d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd10, {" +
                                     from.coordinates() + R"(}], [%r2];
READY:
bar.warp.sync -1;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0, 10000;
@!%p2 bra WAIT;
mov.u32 %r3, %r0;
DUMP:
setp.ge.u32 %p3, %r3, )" + words + R"(;
@%p3 bra DUMPED;
mul.wide.u32 %rd4, %r3, 4;
add.s64 %rd5, %rd0, %rd4;
shl.b32 %r4, %r3, 2;
add.u32 %r4, %r4, %r1;
ld.shared.u32 %r5, [%r4];
st.global.u32 [%rd5], %r5;
add.u32 %r3, %r3, 32;
bra DUMP;
DUMPED:
bar.warp.sync -1;
@%p1 bra END;
)" + store + " [%rd11, {" + to.coordinates() +
                                     R"(}], [%r1];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
END:)",
                                 1, ".extern .shared .align 1024 .b8 smem[];\n.shared .align 8 .b8 barrier[8];\n");
  return replaced(text, ".param .u64 p0)",
                  ".param .u64 p0, .param .align 64 .b8 m0[128], .param .align 64 .b8 m1[128])");
}

void check_copy(const TensorCase& from, const TensorCase& to, const std::string& reduction = "", uint32_t seed = 0) {
  const std::string rank = std::to_string(from.rank());
  const std::string store =
      reduction.empty() ? "cp.async.bulk.tensor." + rank + "d.global.shared::cta.bulk_group"
                        : "cp.reduce.async.bulk.tensor." + rank + "d.global.shared::cta." + reduction + ".bulk_group";
  std::vector<uint16_t> dump(static_cast<size_t>(from.box_elements())), in(static_cast<size_t>(from.elements())),
      out(static_cast<size_t>(to.elements()));
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(float_to_bf16(static_cast<float>(i % 101) - 50));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint16_t>(float_to_bf16(static_cast<float>(i % 37)));
  std::vector<uint16_t> want_dump(dump.size()), want = out;
  const auto place = [&](const TensorCase& c, int64_t e) {
    return static_cast<size_t>(swizzled(static_cast<uint32_t>(2 * e), c.swizzle) / 2);
  };
  from.each([&](int64_t e, int64_t i) {
    want_dump[place(from, e)] = i >= 0 ? in[static_cast<size_t>(i)] : from.fill_nan ? 0x7fc0 : 0;
  });
  to.each([&](int64_t e, int64_t i) {
    if (i < 0) return;
    uint16_t& old = want[static_cast<size_t>(i)];
    const uint16_t value = want_dump[place(to, e)];
    const float a = bf16_to_float(old), b = bf16_to_float(value);
    if (reduction.empty()) old = value;
    else
      old = static_cast<uint16_t>(float_to_bf16(reduction == "add"   ? a + b
                                                : reduction == "min" ? std::min(a, b)
                                                                     : std::max(a, b)));
  });
  Bench bench;
  bench.add(dump), bench.add(in), bench.add(out);
  bench.params.resize(8);
  append_param(bench.params, from.map(in.data())), append_param(bench.params, to.map(out.data()));
  bench.shape.shared_bytes = 2 * from.box_elements();
  bench.options.seed = seed;
  const LaunchResult result = bench.run(copy_text(from, to, store));
  INFO("rank " << rank << " " << reduction << " seed " << seed << "\n" << messages(result));
  REQUIRE(result.ok());
  REQUIRE(dump == want_dump);
  REQUIRE(out == want);
}

}  // namespace

TEST_CASE("ptx machine: tensor copies of one to five dimensions, cut at every edge", "[jit][sim]") {
  for (uint32_t seed = 0; seed < 2; ++seed) {
    check_copy({{100}, {64}, {60}, Swizzle::none, false, 104}, {{77}, {64}, {-3}, Swizzle::none, false, 80}, "", seed);
    check_copy({{37, 9}, {16, 8}, {-5, 3}, Swizzle::none, true, 40},
               {{19, 30}, {16, 8}, {11, -2}, Swizzle::none, false, 24}, "", seed);
    check_copy({{20, 5, 4}, {8, 4, 3}, {17, -1, 2}, Swizzle::none, false, 24},
               {{33, 6, 7}, {8, 4, 3}, {30, 4, 6}, Swizzle::none, false, 40}, "", seed);
    check_copy({{64, 10, 2, 3}, {64, 8, 2, 1}, {0, 5, 0, 2}, Swizzle::b128, false, 64},
               {{64, 10, 2, 3}, {64, 8, 2, 1}, {0, -4, 0, 1}, Swizzle::b128, false, 64}, "", seed);
    check_copy({{16, 3, 3, 3, 3}, {16, 2, 2, 2, 2}, {0, 2, -1, 1, 2}, Swizzle::b32, false, 16},
               {{16, 3, 3, 3, 3}, {16, 2, 2, 2, 2}, {0, -1, 2, 1, 0}, Swizzle::b32, false, 16}, "", seed);
  }
}

TEST_CASE("ptx machine: a box is loaded with one swizzle and stored with another", "[jit][sim]") {
  for (const auto& [swizzle, inner] : {std::pair{Swizzle::b128, 64}, {Swizzle::b64, 32}, {Swizzle::b32, 16}}) {
    const TensorCase plain{{inner, 40}, {inner, 16}, {0, 30}, Swizzle::none, false, inner};
    TensorCase swizzled_case = plain;
    swizzled_case.swizzle = swizzle;
    check_copy(swizzled_case, swizzled_case);
    check_copy(swizzled_case, plain);
    check_copy(plain, swizzled_case);
  }
}

TEST_CASE("ptx machine: tensor reductions add, and take the smaller or larger element", "[jit][sim]") {
  const TensorCase from{{40, 12}, {32, 8}, {5, 2}, Swizzle::b64, false, 40},
      to{{50, 9}, {32, 8}, {30, 4}, Swizzle::b64, false, 56};
  for (const char* reduction : {"add", "min", "max"}) check_copy(from, to, reduction);
}

/// Two CTAs of a cluster add 64 floats each to b0 by bulk reductions, from the data in b1. CTA 0 then sends its words
/// to CTA 1, which stores them to b2.
const std::string kBulk = kernel_text(R"(
mov.u32 %r1, smem;
mov.u32 %r2, %cluster_ctarank;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r1+512], 1;
mbarrier.init.shared::cta.b64 [%r1+520], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+512], 256;
mul.wide.u32 %rd4, %r2, 256;
add.s64 %rd5, %rd1, %rd4;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd5], 256, [%r1+512];
READY:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+512], 0;
@!%p2 bra WAIT;
@%p1 bra END;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r1], 256;
cp.async.bulk.commit_group;
setp.ne.u32 %p3, %r2, 0;
@%p3 bra RECEIVER;
mapa.shared::cluster.u32 %r3, %r1, 1;
add.u32 %r4, %r3, 256;
add.u32 %r5, %r3, 520;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%r1], 256, [%r5];
bra SENT;
RECEIVER:
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+520], 256;
RECEIVE:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+520], 0;
@!%p4 bra RECEIVE;
add.u32 %r4, %r1, 256;
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r4], 256;
cp.async.bulk.commit_group;
SENT:
cp.async.bulk.wait_group 0;
END:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
)",
                                      3, ".extern .shared .align 1024 .b8 smem[];\n");

LaunchResult bulk(const std::string& text, uint32_t seed = 0) {
  std::vector<float> sum(64, 1), in(128), out(64, 0);
  for (size_t i = 0; i < 128; ++i) in[i] = static_cast<float>(i);
  Bench bench;
  bench.add(sum), bench.add(in), bench.add(out);
  bench.shape.grid = bench.shape.cluster = {2, 1, 1};
  bench.shape.shared_bytes = 1024;
  bench.options.seed = seed;
  const LaunchResult result = bench.run(text);
  for (size_t i = 0; i < 64 && result.ok(); ++i) {
    REQUIRE(sum[i] == 1 + in[i] + in[i + 64]);
    REQUIRE(out[i] == in[i]);
  }
  return result;
}

TEST_CASE("ptx machine: bulk copies to and from a cluster's shared memory, and bulk reductions", "[jit][sim]") {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const LaunchResult result = bulk(kBulk, seed);
    INFO(messages(result));
    REQUIRE(result.ok());
  }
  CHECK_THAT(messages(bulk(replaced(kBulk, "[%r1+520], 256;", "[%r1+520], 240;"))), Catch::Contains("deadlock"));
  CHECK_THAT(messages(bulk(replaced(kBulk, "add.u32 %r5, %r3, 520", "add.u32 %r5, %r1, 520"))),
             Catch::Contains("the data and the mbarrier are in different CTAs"));
  CHECK(has(bulk(replaced(kBulk, "[%rd5], 256, [", "[%rd5], 250, [")), ReportKind::misaligned));
  CHECK(has(bulk(replaced(kBulk, "[%r1], 256;\ncp.async.bulk.commit_group;\nsetp",
                          "[%r1+900], 256;\ncp.async.bulk."
                          "commit_group;\nsetp")),
            ReportKind::misaligned));
}

TEST_CASE("ptx machine: tensor copies need 128-byte alignment in shared memory", "[jit][sim]") {
  const TensorCase c{{64, 8}, {64, 8}, {0, 0}, Swizzle::b128, false, 64};
  std::vector<uint16_t> dump(512), in(512), out(512);
  Bench bench;
  bench.add(dump), bench.add(in), bench.add(out);
  bench.params.resize(8);
  append_param(bench.params, c.map(in.data())), append_param(bench.params, c.map(out.data()));
  bench.shape.shared_bytes = 2048;
  const std::string text = replaced(copy_text(c, c, "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"),
                                    "[%r1], [%rd10", "[%r1+64], [%rd10");
  const LaunchResult result = bench.run(text);
  REQUIRE(has(result, ReportKind::misaligned));
  CHECK_THAT(result.reports[0].message, Catch::Contains("multiples of 128 are needed"));
}

/// A bulk store brings a value to another CTA. The flag may be raised when the data has arrived, not when the copy has
/// read it.
const std::string kPublish = kernel_text(R"(
mov.u32 %r1, smem;
mov.u32 %r2, %ctaid.x;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra END;
setp.ne.u32 %p2, %r2, 0;
@%p2 bra READER;
st.shared.v4.u32 [%r1], {5, 6, 7, 8};
fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
st.release.gpu.global.u32 [%rd1], 1;
bra END;
READER:
ld.acquire.gpu.global.u32 %r3, [%rd1];
setp.eq.u32 %p3, %r3, 0;
@%p3 bra READER;
ld.global.u32 %r4, [%rd0+4];
st.global.u32 [%rd2], %r4;
END:)",
                                         3, ".extern .shared .align 1024 .b8 smem[];\n");

TEST_CASE("ptx machine: a bulk store is visible behind its wait, not behind a wait for its source", "[jit][sim]") {
  const auto publish = [](const std::string& text) {
    alignas(16) static uint32_t data[4];
    std::vector<uint32_t> flag(1, 0), out(1, 0);
    Bench bench;
    bench.machine.register_memory("data", data, sizeof(data));
    append_param(bench.params, static_cast<uint32_t*>(data));
    bench.add(flag), bench.add(out);
    bench.shape.grid = {2, 1, 1}, bench.shape.shared_bytes = 1024;
    const LaunchResult result = bench.run(text);
    if (result.ok()) CHECK(out[0] == 6);
    return result;
  };
  const LaunchResult clean = publish(kPublish);
  INFO(messages(clean));
  CHECK(clean.ok());
  CHECK(has(publish(replaced(kPublish, "wait_group 0", "wait_group.read 0")), ReportKind::race));
  CHECK(has(publish(replaced(kPublish, "fence.proxy.async.shared::cta;", "")), ReportKind::missing_fence));
}

}  // namespace seqtile::sim
