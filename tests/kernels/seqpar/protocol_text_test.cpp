// tests/kernels/seqpar/protocol_text_test.cpp -- orders and scopes in the PTX of every operation over ranks.
// SPDX-License-Identifier: Apache-2.0
//
// What ranks share is never read through the non-coherent cache, and flags are released and acquired at the system's
// scope: by the text of all kernels, and by what the PTX machine says of one in which an order is weaker.
#include <catch2/catch.hpp>

#include <span>
#include <string>
#include <string_view>

#include "jit/compiler.h"
#include "jit/error.h"
#include "tests/support/op_on_ranks.h"
#include "tests/support/rank_operations.h"

using namespace seqtile;
using namespace seqtile::testing;
using autotune::Workload;

namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size(), ++count)
    text.replace(at, from.size(), to);
  return count > 0 ? text : throw Error(ErrorCode::internal, "the text has no " + std::string(from));
}

/// What the machine says of a kernel in which every `from` is `to`.
std::string report_of_fault(const ConfiguredOp& of, std::string_view from, std::string_view to) {
  OpOnRanks op(of.workload, "sim:sm_80", {{64}, {1}, {40}, {64}}, of.config);
  RankOptions options;
  options.edit_ptx = [&](std::string text) { return replaced(std::move(text), from, to); };
  try {
    return "no report; " + op.run(options);
  } catch (const Error& error) {
    return error.what();
  }
}

void check_text(const OpOnRanks& op, const Target& target) {
  const KernelBinary binary = compile(*op.kernel(), target);
  const std::string_view text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
  const auto has = [&](const char* part) { return text.find(part) != std::string_view::npos; };
  INFO(op.workload().operation << " " << op.config().json() << " on " << target.name);
  for (const char* order :
       {"st.release.sys.global.b64", "ld.acquire.sys.global.u64", "atom.acq_rel.gpu.global.add.u32"}) {
    INFO(order);
    CHECK(has(order));
  }
  for (const char* weak :
       {"ld.global.nc", ".volatile", "ld.acquire.gpu.global.u64", "st.release.gpu.global.b64", "ldu."}) {
    INFO(weak);
    CHECK(!has(weak));
  }
  CHECK(binary.gpu.is_cooperative);
  CHECK(binary.gpu.is_persistent);
  CHECK(binary.gpu.is_in_order);
}

}  // namespace

TEST_CASE(
    "protocol text: no operation over ranks reads what they share by ld.global.nc, orders are those of the protocol",
    "[seqpar][nvptx]") {
  for (const char* gpu : {"sm_80", "sm_90a"})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Workload& workload : forms_on_ranks(2, dtype))
        check_text(OpOnRanks(workload, "sim:" + std::string(gpu), {{300}}), gpu_target(gpu));
}

namespace {

struct Fault {
  std::string_view from, to;
};

/// By every operation, and others in turn.
constexpr Fault kRelaxed[] = {{"st.release.sys.global.b64", "st.relaxed.sys.global.b64"},
                              {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
                              {"atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32"}};
constexpr Fault kOthers[] = {{"st.release.sys.global.b64", "st.release.gpu.global.b64"},
                             {"ld.acquire.sys.global.u64", "ld.acquire.gpu.global.u64"},
                             {"st.release.sys.global.b64", "st.global.b64"},
                             {"ld.acquire.sys.global.u64", "ld.volatile.global.u64"}};

void check_report(const ConfiguredOp& op, const Fault& fault) {
  INFO(op.workload.operation << ": " << fault.from << " -> " << fault.to);
  // Where the data has not even come, the machine says that first.
  CHECK_THAT(report_of_fault(op, fault.from, fault.to),
             Catch::Contains("race") || Catch::Contains("scope") || Catch::StartsWith("uninitialised memory"));
}

}  // namespace

TEST_CASE("protocol text: a weaker order or scope of a flag or counter is reported as the race it is",
          "[seqpar][sim]") {
  const Target target = gpu_target("sm_80");
  for (size_t next = 0; const ConfiguredOp& op : with_both_reductions(operations_on_ranks(2, DType::bf16), target)) {
    for (const Fault& fault : kRelaxed) check_report(op, fault);
    check_report(op, kOthers[next++ % std::size(kOthers)]);
  }
}

TEST_CASE("protocol text: every weaker order or scope of all forms is reported", "[seqpar][sim][slow]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ConfiguredOp& op : with_both_reductions(forms_on_ranks(2, dtype), gpu_target("sm_80")))
      for (const auto& faults : {std::span<const Fault>(kRelaxed), std::span<const Fault>(kOthers)})
        for (const Fault& fault : faults) check_report(op, fault);
}
