// tests/kernels/seqpar/exchange/protocol_text_test.cpp -- orders and scopes in the PTX of every operation over ranks.
// SPDX-License-Identifier: Apache-2.0
//
// Kernels never read the ranks' shared data through the non-coherent cache, and release and acquire flags at the
// system's scope. rank_protocol_test.cpp checks that the PTX machine reports weaker orders.
#include <catch2/catch.hpp>

#include <string>
#include <string_view>

#include "tests/support/kernels/compiled.h"
#include "tests/support/ranks/op_on_ranks.h"
#include "tests/support/ranks/rank_operations.h"

using namespace seqtile;
using namespace seqtile::testing;
using autotune::Workload;

namespace {

void check_text(const OpOnRanks& op, const Target& target) {
  const KernelBinary binary = compiled(*op.kernel(), target);
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
