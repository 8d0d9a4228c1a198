// tests/jit/runtime/cpu/cpu_device_test.cpp -- loading, grids, arenas and refusals, with machine code made by hand.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <bit>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/support/ptx/llvm_kernel.h"

namespace seqtile {
namespace {

/// out[pid0 + grid0 * (pid1 + grid1 * pid2)] += 1 + pid0 + 100 * pid1 + 10000 * pid2, by way of the arena.
constexpr const char* kCountPrograms = R"(
define void @count_programs(ptr %slots, ptr %pid, ptr %grid, ptr %arena) {
  %out = load ptr, ptr %slots
  %pid1p = getelementptr i64, ptr %pid, i64 1
  %pid2p = getelementptr i64, ptr %pid, i64 2
  %grid1p = getelementptr i64, ptr %grid, i64 1
  %x = load i64, ptr %pid
  %y = load i64, ptr %pid1p
  %z = load i64, ptr %pid2p
  %nx = load i64, ptr %grid
  %ny = load i64, ptr %grid1p
  %zy = mul i64 %z, %ny
  %row = add i64 %zy, %y
  %rows = mul i64 %row, %nx
  %index = add i64 %rows, %x
  %y100 = mul i64 %y, 100
  %z10000 = mul i64 %z, 10000
  %xy = add i64 %x, %y100
  %xyz = add i64 %xy, %z10000
  %value = add i64 %xyz, 1
  %last = getelementptr i8, ptr %arena, i64 4194296
  store volatile i64 %value, ptr %arena
  store volatile i64 %value, ptr %last
  %back = load volatile i64, ptr %last
  %place = getelementptr i64, ptr %out, i64 %index
  %old = load i64, ptr %place
  %new = add i64 %old, %back
  store i64 %new, ptr %place
  ret void
}
)";

KernelBinary count_programs() {
  KernelBinary binary = testing::compile_llvm(kCountPrograms, host_target(), 1);
  binary.arena_bytes = 4 << 20;
  return binary;
}

void expect_error(const std::function<void()>& action, ErrorCode code, const std::string& part) {
  try {
    action();
    FAIL("no error; expected one with: " << part);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK_THAT(error.what(), Catch::Contains(part));
    CHECK_THAT(error.what(), !Catch::Contains("\n"));
  }
}

TEST_CASE("cpu device: every program of a grid runs once, with its ids, on any number of threads", "[jit][device]") {
  for (const int threads : {1, 2, 4}) {
    const auto device = make_cpu_device(threads);
    const auto kernel = device->load(count_programs());
    const Grid grid{5, 3, 7};
    std::vector<int64_t> out(5 * 3 * 7);
    const uint64_t slots[] = {std::bit_cast<uint64_t>(out.data())};
    device->launch(*kernel, grid, slots);
    size_t i = 0;
    for (int64_t z = 0; z < 7; ++z)
      for (int64_t y = 0; y < 3; ++y)
        for (int64_t x = 0; x < 5; ++x, ++i) REQUIRE(out[i] == 1 + x + 100 * y + 10000 * z);
  }
}

TEST_CASE("cpu device: a range runs its part of the grid and nothing else", "[jit][device]") {
  const auto device = make_cpu_device(2);
  const auto kernel = device->load(count_programs());
  std::vector<int64_t> out(4 * 4 * 2);
  const uint64_t slots[] = {std::bit_cast<uint64_t>(out.data())};
  device->launch(*kernel, {4, 4, 2}, slots, {}, {7, 15});
  for (int64_t i = 0; i < 32; ++i) {
    INFO("program " << i);
    const bool is_inside = i >= 7 && i < 22;
    CHECK(out[i] == (is_inside ? 1 + i % 4 + 100 * (i / 4 % 4) + 10000 * (i / 16) : 0));
  }
  device->launch(*kernel, {4, 4, 2}, slots, {}, {32, 0});
  device->launch(*kernel, {4, 0, 2}, slots);
  expect_error(
      [&] {
        device->launch(*kernel, {4, 4, 2}, slots, {}, {30, 3});
      },
      ErrorCode::invalid_argument, "30 to 33");
  expect_error([&] { device->launch(*kernel, {4, -1, 2}, slots); }, ErrorCode::invalid_argument, "4 x -1 x 2");
}

TEST_CASE("cpu device: many threads may launch one kernel at once", "[jit][device]") {
  const auto device = make_cpu_device(2);
  const auto kernel = device->load(count_programs());
  std::vector<std::vector<int64_t>> outs(3, std::vector<int64_t>(60));
  std::vector<std::thread> callers;
  for (auto& out : outs)
    callers.emplace_back([&] {
      const uint64_t slots[] = {std::bit_cast<uint64_t>(out.data())};
      for (int repeat = 0; repeat < 100; ++repeat) device->launch(*kernel, {60, 1, 1}, slots);
    });
  for (std::thread& caller : callers) caller.join();
  for (const auto& out : outs)
    for (int64_t i = 0; i < 60; ++i) REQUIRE(out[static_cast<size_t>(i)] == 100 * (i + 1));
}

TEST_CASE("cpu device: refuses binaries that it cannot run, in one line", "[jit][device]") {
  const auto device = make_cpu_device(1);
  const auto with = [](auto change) {
    KernelBinary binary = count_programs();
    change(binary);
    return binary;
  };
  const auto refuse = [&](KernelBinary binary, ErrorCode code, const std::string& part) {
    expect_error([&] { device->load(std::move(binary)); }, code, part);
  };
#if defined(__x86_64__)
  refuse(with([](KernelBinary& b) { b.target = "cpu:neon"; }), ErrorCode::invalid_argument, "cpu:neon");
#endif
  refuse(with([](KernelBinary& b) { b.target = "sm_90a"; }), ErrorCode::invalid_argument, "sm_90a");
  refuse(with([](KernelBinary& b) { b.stage = "ptx"; }), ErrorCode::invalid_argument, "stage blob, not ptx");
  refuse(with([](KernelBinary& b) { b.code.clear(); }), ErrorCode::invalid_argument, "0 bytes of code");
  refuse(with([](KernelBinary& b) { b.arena_bytes = 1ull << 60; }), ErrorCode::out_of_resources, "1152921504606846976");
  // The thread can still run a kernel after a refused arena.
  const auto kernel = device->load(count_programs());
  std::vector<int64_t> out(2);
  const uint64_t slots[] = {std::bit_cast<uint64_t>(out.data()), 0};
  device->launch(*kernel, {2, 1, 1}, std::span(slots, 1));
  CHECK(out == std::vector<int64_t>{1, 2});
  expect_error([&] { device->launch(*kernel, {2, 1, 1}, slots); }, ErrorCode::invalid_argument, "2 argument slots");
}

TEST_CASE("device: names that are not in this machine or build are one clear error", "[jit][device]") {
  for (const char* name : {"cuda", "cuda:0"})
    expect_error([&] { open_device(name, 1); }, ErrorCode::unsupported, "take device cpu");
  expect_error([] { open_device("tpu", 1); }, ErrorCode::unsupported, "unknown device \"tpu\"");
  for (const char* name : {"cpux", "cpu:2", ""})
    expect_error([&] { open_device(name, 1); }, ErrorCode::unsupported, std::string("unknown device \"") + name);
}

TEST_CASE("device: the CPU describes itself with sorted, printable facts", "[jit][device]") {
  const auto devices = list_devices();
  REQUIRE_FALSE(devices.empty());
  const DeviceInfo& info = devices[0];
  CHECK_FALSE(info.name.empty());
  CHECK(std::is_sorted(info.facts.begin(), info.facts.end()));
  std::vector<std::string> names;
  for (const auto& [name, value] : info.facts) {
    names.push_back(name);
    CHECK_FALSE(value.empty());
    CHECK(std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < 127; }));
    if (name == "target") CHECK(value == host_target().name);
    if (name.ends_with("_kib")) CHECK(std::stoll(value) > 0);
  }
  CHECK(names == std::vector<std::string>{"cores", "l1_kib", "l2_kib", "l3_kib", "model", "target"});
}

TEST_CASE("target: names are looked up, unknown ones listed", "[jit][target]") {
  CHECK(cpu_target_names() == std::vector<std::string>{"amx", "avx512bf16", "avx512", "avx2", "generic", "neon"});
  CHECK(cpu_target("avx2").vector_bytes == 32);
  CHECK(cpu_target("avx2").name == "cpu:avx2");
  CHECK(is_executable(host_target()));
  expect_error([] { cpu_target("sse9"); }, ErrorCode::unsupported, "amx, avx512bf16, avx512, avx2, generic, neon");
}

}  // namespace
}  // namespace seqtile
