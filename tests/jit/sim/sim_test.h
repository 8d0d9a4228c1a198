// tests/jit/sim/sim_test.h -- small PTX kernels, written in the test, on a machine of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <vector>

#include "jit/sim/exec/machine.h"

namespace seqtile::sim {

/// A kernel `k` with up to four 64-bit pointer parameters in %rd0..%rd3, its thread number in %r0 and generous
/// registers.
inline std::string kernel_text(const std::string& body, int pointers = 1, const std::string& module_text = "") {
  std::string text = ".version 8.0\n.target sm_90a\n.address_size 64\n" + module_text + ".visible .entry k(";
  for (int p = 0; p < pointers; ++p) text += std::string(p ? ", " : "") + ".param .u64 p" + std::to_string(p);
  text +=
      ")\n{\n.reg .pred %p<32>;\n.reg .b16 %rs<32>;\n.reg .b32 %r<64>;\n.reg .f32 %f<64>;\n.reg .b64 %rd<64>;\n.reg "
      ".f64 %fd<16>;\n";
  for (int p = 0; p < pointers; ++p)
    text += "ld.param.u64 %rd" + std::to_string(p) + ", [p" + std::to_string(p) + "];\n";
  return text + "mov.u32 %r0, %tid.x;\n" + body + "\nret;\n}\n";
}

/// Registers the buffers as "b0", "b1", ... and launches `k` with their addresses.
struct Bench {
  Machine machine;
  LaunchShape shape;
  Options options;
  std::vector<std::byte> params;
  int buffers = 0;

  template <class T>
  void add(std::vector<T>& data) {
    machine.register_memory("b" + std::to_string(buffers++), data.data(), data.size() * sizeof(T));
    append_param(params, data.data());
  }
  LaunchResult run(const std::string& text) {
    const Program program = decode_text(text, "k");
    return machine.launch(program, shape, params, options);
  }
};

inline std::string messages(const LaunchResult& result) {
  std::string text;
  for (const Report& report : result.reports) text += report.message + "\n";
  return text;
}

inline bool has(const LaunchResult& result, ReportKind kind) {
  for (const Report& report : result.reports)
    if (report.kind == kind) return true;
  return false;
}

/// `text` with the first `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// 1-based line of the first line of `text` that contains `part`.
inline int line_of(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

}  // namespace seqtile::sim
