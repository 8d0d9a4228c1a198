// tests/kernels/simulated_faults_test.cpp -- the library's PTX under random schedules, and with faults put into it.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <span>

#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "autotune/engine/launch.h"
#include "jit/sim/device/sim_device.h"
#include "seqtile/error.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/kernels/guarded_call.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ptx/text_faults.h"

namespace seqtile::testing {
namespace {

/// A kernel case to compile for a target, with the default configuration or some of its parameters changed.
struct TextCase {
  KernelCase kernel;
  const char* target = "sm_80";
  DType dtype = DType::bf16;
  int64_t length = 65;
  std::vector<std::pair<const char*, int64_t>> config = {};
  int host_threads = 1;
};

/// One call of a kernel whose PTX can be changed.
class TextCall {
 public:
  explicit TextCall(const TextCase& c)
      : op_(library_op(c.kernel.operation)),
        workload_(normalized(c.kernel, c.dtype, 1)),
        device_(sim::make_sim_device(c.target, c.host_threads)),
        call_(op_, workload_, autotune::call_symbols(op_, workload_, op_.schema(workload_), c.length), 3, 16),
        config_(op_.default_config(workload_, c.length, device_->target())) {
    for (const auto& [name, value] : c.config) config_.set(name, value);
    binary_ = compiled(*autotune::build_kernel(op_, workload_, config_, device_->target()), device_->target());
    rows_ = call_.sample_rows(24);
    want_ = call_.want(rows_);
    device_->options().record_writers = true;
    device_->options().instruction_limit = 5'000'000;
  }
  sim::SimDevice& device() { return *device_; }
  std::string text() const { return {reinterpret_cast<const char*>(binary_.code.data()), binary_.code.size()}; }

  /// Runs `text`: empty when the results are right, else the first report, or "wrong: " and the first wrong element
  /// with the store that wrote it last.
  std::string run(const std::string& text, uint32_t seed = 0) {
    KernelBinary binary = binary_;
    const auto bytes = std::as_bytes(std::span(text));
    binary.code.assign(bytes.begin(), bytes.end());
    device_->options().seed = seed;
    const auto kernel = device_->load(std::move(binary));
    autotune::KernelCall call;
    const autotune::CallLayout layout(*call_.problem().schema, true);
    layout.bind(call_.problem().tensors, call_.problem().symbols[0], {}, call);
    // The device must not remember memory of an earlier run.
    device_->forget_memory();
    append_workspaces(call);
    layout.finish({}, nullptr, call);
    call_.poison_outputs();
    for (size_t i = 0; i < call_.memory().size(); ++i)
      device_->register_memory(call_.problem().schema->args[i].name, call_.memory()[i]->bytes());
    try {
      device_->launch(*kernel, autotune::grid_of(op_.grid(workload_, config_), call.symbol_values()), call.block());
    } catch (const Error& error) {
      const sim::Report& report = device_->last_launch().reports.front();
      CHECK(error.code() == (report.kind == sim::ReportKind::limit ? ErrorCode::timeout : ErrorCode::driver));
      return report.message;
    }
    const std::string wrong = call_.check(rows_, want_);
    return wrong.empty() ? "" : "wrong: " + wrong + ", " + last_store(wrong);
  }

 private:
  void append_workspaces(autotune::KernelCall& call) {
    workspaces_.clear();
    if (!op_.workspaces) return;
    for (const autotune::Workspace& workspace : op_.workspaces(workload_, config_)) {
      const int64_t elements = workspace.elements.value(call.symbol_values());
      const autotune::Pages& pages =
          workspaces_.emplace_back(static_cast<size_t>(elements * dtype_bytes(workspace.dtype)));
      device_->register_memory(workspace.name, {pages.data(), pages.size()});
      autotune::append_workspace(call, pages.data(), elements);
    }
  }

  /// The last store to the element that a message of check() names: "y row 3 element 17: ...".
  std::string last_store(const std::string& wrong) {
    char name[32] = {};
    long row = 0, element = 0;
    if (std::sscanf(wrong.c_str(), "%31s row %ld element %ld", name, &row, &element) != 3) return "no element";
    const auto& args = call_.problem().schema->args;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].name != name) continue;
      const Tensor& tensor = call_.problem().tensors[i];
      int64_t row_elements = 1;
      for (int d = 1; d < tensor.rank; ++d) row_elements *= tensor.sizes[d];
      const auto* at = static_cast<const std::byte*>(tensor.data) +
                       (row * row_elements + element) * static_cast<int64_t>(dtype_bytes(tensor.dtype));
      const auto writer = device_->machine().last_writer(at);
      return writer ? fmt::format("last stored by PTX line {}, CTA {} warp {} lane {}", writer->line, writer->cta,
                                  writer->warp, writer->lane)
                    : "never stored";
    }
    return "no tensor";
  }

  const autotune::OpDef& op_;
  autotune::Workload workload_;
  std::unique_ptr<sim::SimDevice> device_;
  GuardedCall call_;
  autotune::Config config_;
  KernelBinary binary_;
  std::vector<autotune::Pages> workspaces_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<double>> want_;
};

void check_all(const TextCase& test_case, const std::vector<TextFault>& faults) {
  TextCall call(test_case);
  std::string text = call.text();
  REQUIRE(call.run(text) == "");
  // The predicate is for one of the faults.
  text.insert(text.find("ld.param"),
              ".reg .pred %lower; .reg .b32 %half; mov.u32 %half, %laneid; setp.lt.u32 %lower, %half, 16;\n\t");
  check_faults(text, faults, [&](const std::string& changed, uint32_t seed) { return call.run(changed, seed); });
}

const KernelCase kSoftmax{"softmax", {{"n", int64_t{2304}}}};
const KernelCase kNorm{"rms_norm", {{"n", int64_t{576}}}};
const KernelCase kLinear{"linear", {{"n", int64_t{192}}, {"k", int64_t{320}}}};
const KernelCase kShortLinear{"linear", {{"n", int64_t{192}}, {"k", int64_t{96}}}};
const KernelCase kWgrad{"linear_wgrad", {{"n", int64_t{192}}, {"k", int64_t{96}}}};
const KernelCase kAttention{
    "attention_forward",
    {{"heads", int64_t{3}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}, {"phase", std::string("prefill")}}};
const KernelCase kAttentionBackward{"attention_backward",
                                    {{"heads", int64_t{3}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}}};
/// Four programs a group of heads; the last one to arrive merges the results of all from workspaces.
const TextCase kDecode{
    {"attention_forward",
     {{"heads", int64_t{3}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}, {"phase", std::string("decode")}}},
    "sm_80",
    DType::bf16,
    300,
    {{"splits", 4}}};
// Loops of the Hopper form: TMA, mbarriers and wgmma.
const TextCase kHopperLinear{kLinear,
                             "sm_90a",
                             DType::bf16,
                             130,
                             {{"block_m", 64}, {"block_n", 64}, {"block_k", 64}, {"num_warps", 4}, {"num_stages", 3}}};
const TextCase kHopperAttention{
    kAttention, "sm_90a", DType::bf16, 300, {{"block_m", 128}, {"block_n", 128}, {"num_warps", 8}, {"num_stages", 2}}};
/// Several outputs and blocks in pairs, which take programs in turn; the last rows and columns are not whole tiles.
const TextCase kHopperCluster{
    {"linear", {{"n", int64_t{96}}, {"n2", int64_t{64}}, {"n3", int64_t{72}}, {"k", int64_t{320}}}},
    "sm_90a",
    DType::bf16,
    700,
    {{"block_m", 128}, {"block_n", 64}, {"block_k", 64}, {"num_warps", 8}, {"num_stages", 3}, {"cluster", 2}}};

}  // namespace

TEST_CASE("simulated: forty random schedules of every kind of kernel find nothing", "[kernels][sim]") {
  std::vector<TextCase> cases = {{kSoftmax}, {kNorm},       {kLinear},        {kAttention},
                                 kDecode,    kHopperLinear, kHopperAttention, kHopperCluster};
  const autotune::Fields columns{{"n", int64_t{136}}},
      heads{{"heads", int64_t{3}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}};
  autotune::Fields extend = heads;
  extend.set("phase", std::string("extend"));
  for (KernelCase kernel : {KernelCase{"layer_norm", columns},
                            {"act_and_mul", columns},
                            {"rope", heads},
                            {"embedding", {{"vocab", int64_t{40}}, {"n", int64_t{136}}}},
                            {"attention_forward", extend},
                            kWgrad,
                            kAttentionBackward,
                            {"act_and_mul_backward", columns},
                            {"rms_norm_backward", columns}})
    cases.push_back({std::move(kernel)});
  for (const TextCase& test_case : cases) {
    TextCall call(test_case);
    const std::string text = call.text();
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      INFO(test_case.kernel.operation << " " << test_case.target << " seed " << seed);
      REQUIRE(call.run(text, seed) == "");
    }
  }
}

TEST_CASE("simulated: programs that meet in atomics are right on several host threads", "[kernels][sim]") {
  TextCase decode = kDecode, norm{{"rms_norm_backward", {{"n", int64_t{72}}}}};
  decode.length = 1000, norm.length = 300;
  for (TextCase* test_case : {&decode, &norm}) {
    test_case->host_threads = 4;
    TextCall call(*test_case);
    const std::string text = call.text();
    REQUIRE(text.find("atom.") != std::string::npos);
    for (int turn = 0; turn < 5; ++turn) {
      INFO(test_case->kernel.operation << " turn " << turn);
      REQUIRE(call.run(text) == "");
    }
  }
}

// Attention in f32 is a known exception: its weights and their gradients are operands of the next product. Accumulators
// hold pairs of words, and half a warp's pairs lie in half of the banks of memory that ldmatrix reads without conflict.
TEST_CASE("simulated: main loops meet no bank conflict", "[kernels][sim]") {
  const auto conflicts = [](TextCase test_case) {
    test_case.length = 128;
    TextCall call(test_case);
    call.device().options().profile = true;
    REQUIRE(call.run(call.text()) == "");
    return call.device().last_launch().counters.bank_conflicts;
  };
  for (const char* target : {"sm_80", "sm_90a"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      INFO(target << " " << dtype_name(dtype));
      const bool is_f32 = dtype == DType::f32;
      for (const KernelCase& test_case : {kSoftmax, kNorm, kShortLinear, kWgrad}) {
        INFO(test_case.operation);
        CHECK(conflicts({test_case, target, dtype}) == 0);
      }
      CHECK(conflicts({kAttention, target, dtype}) == (is_f32 ? 320 * 3 : 0));
      CHECK(conflicts({kAttentionBackward, target, dtype}) == (is_f32 ? 960 * 3 : 0));
    }
  for (const TextCase& test_case : {kHopperLinear, kHopperAttention}) {
    INFO(test_case.kernel.operation);
    CHECK(conflicts(test_case) == 0);
  }
}

TEST_CASE("simulated: faults in the portable form are reported for what they are", "[kernels][sim][fault]") {
  const char* const store = R"((st\.global\.v4\.b32 \[%rd\d+)(\+\d+)?\])";
  const char* const load = R"((ld\.global[^\[]*\[%rd\d+)(\+\d+)?\])";
  const char* const matrix = R"((ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 \{[^}]*\}, \[%r\d+)(\+\d+)?\])";
  check_all(
      {kSoftmax},
      {
          {"a reduction's barrier is missing", R"(bar\.sync[^;]*;)", "", 0, "uninitialised memory", "shared + "},
          {"the next reduction's barrier is missing", R"(bar\.sync[^;]*;)", "", 1, "race", "shared + "},
          {"half a warp in a shuffle", R"(shfl\.sync\.bfly)", "@%lower shfl.sync.bfly", 0, "divergence", "lane 16"},
          {"a store past the tensor", store, "$1+1048576]", -1, "out of bounds", " + "},
          {"a load past the tensor", load, "$1+1048576]", -1, "out of bounds", " + "},
          {"a store beside its alignment", store, "$1+2]", -1, "misaligned", "y + "},
          {"a store in bounds but to the wrong place", store, "$1+16]", -1, "wrong", "y row 0 element"},
          {"a store is missing", R"((@%p\d+ )?st\.global\.v4\.b32[^;]*;)", "", -1, "wrong", "never stored"},
      });
  check_all({kNorm}, {{"a store past the tensor", store, "$1+1048576]", -1, "out of bounds", " + "}});
  check_all(
      {kLinear},
      {
          {"a turn's copies are not waited for", R"(cp\.async\.wait_group \d+;)", "cp.async.wait_group 8;", 0,
           "missing wait", "shared + "},
          {"the barrier behind a turn's copies is missing", R"(bar\.sync[^;]*;)", "", 0, "race", "shared + "},
          {"copies are never committed", R"(cp\.async\.commit_group;)", "", 1, "missing wait", "shared + "},
          {"a misaligned matrix", matrix, "$1+8]", 0, "misaligned", "shared + "},
          {"a matrix past shared memory", matrix, "$1+131072]", 0, "out of bounds", "shared + "},
          {"an accumulator that nobody set", R"(mov\.f32\s+%f\d+, 0f00000000;)", "", 0, "uninitialised register", "%f"},
          {"one row too many is written", R"(setp\.lt\.s64(\s+%p\d+, %rd\d+, %rd\d+;))", "setp.le.s64$1", -1,
           "out of bounds", "y + "},
          {"the turns have no end", R"(@%p\d+ bra\s+\$L__BB0_3;)", "", 0, "limit", ""},
      });
}

TEST_CASE("simulated: faults between the programs of a decode step are reported for what they are",
          "[kernels][sim][fault]") {
  const char* const arrival = R"(atom\.acq_rel\.gpu)";
  const char* const barrier = R"(bar\.sync\s+0;)";
  const std::string text = TextCall(kDecode).text();
  int behind = 0;  // the number of the first barrier behind the arrival
  for (size_t at = text.find("bar.sync"); at < text.find("atom.acq_rel"); at = text.find("bar.sync", at + 1)) ++behind;
  check_all(kDecode,
            {{"the arrival is relaxed", arrival, "atom.relaxed.gpu", 0, "race", "partial_"},
             {"the arrival does not release", arrival, "atom.acquire.gpu", 0, "race", "partial_"},
             {"the arrival does not acquire", arrival, "atom.release.gpu", 0, "race", "partial_"},
             {"the arrival is for the block only", arrival, "atom.acq_rel.cta", 0, "scope too narrow", "arrived + "},
             {"the block arrives before all of it has stored", barrier, "", behind - 1, "race", "shared + "},
             {"threads do not wait for the arrival's answer", barrier, "", behind, "race", "shared + "}});
}

TEST_CASE("simulated: faults in the Hopper form are reported for what they are", "[kernels][sim][fault]") {
  const char* const init = R"((mbarrier\.init\.shared::cta\.b64 \[%r\d+\]), %r\d+;)";
  const char* const expect = R"((expect_tx\.release\.cta\.shared::cta\.b64 _, \[%r\d+\]), %r\d+;)";
  const std::vector<TextFault> common = {
      {"a stage is released one arrival late", init, "$1, 29;", 1, "deadlock", "arrivals missing"},
      {"a stage needs an arrival that nobody sends", init, "$1, 2;", 0, "deadlock", "1 of 2 arrivals missing"},
      {"fewer bytes are expected than come", expect, "$1, 64;", 0, "deadlock", "0 of 1 arrivals missing, -"},
      {"the barrier behind the mbarriers' init is missing", R"(bar\.sync\s+0;)", "", 0, "race",
       "the mbarrier at shared + "},
      {"the consumers do not wait for data", R"(@!p bra W(\d+);)", "", -1, "race|uninitialised memory", "shared + "},
      {"wgmma is not waited for", R"(wgmma\.wait_group\.sync\.aligned 0;)", "", 0, "missing wait",
       "an accumulator of a wgmma in flight"},
      {"wgmma.commit_group is missing", R"(wgmma\.commit_group\.sync\.aligned;)", "", 0, "missing wait",
       "an accumulator of a wgmma in flight"},
  };
  REQUIRE(TextCall(kHopperLinear).text().find("wgmma.mma_async") != std::string::npos);
  REQUIRE(TextCall(kHopperAttention).text().find("wgmma.mma_async") != std::string::npos);
  check_all(kHopperLinear, common);
  check_all(kHopperLinear,
            {{"a stage is released one arrival early", init, "$1, 3;", 1, "race", "a wgmma of CTA"},
             {"a stage is never released", R"(mbarrier\.arrive\.release\.cta\.shared::cta\.b64[^;]*;)", "", 0,
              "deadlock", "arrivals missing"},
             {"wgmma.fence is missing", R"(wgmma\.fence\.sync\.aligned;)", "", 0, "missing fence", "wgmma.fence"},
             {"a tile comes from the wrong column", R"(\{%r\d+,(%r\d+)\})", "{0,$1}", 0, "wrong", "y row"},
             {"results are copied before TMA can see them", R"(fence\.proxy\.async\.shared::cta;)", "", -1,
              "missing fence", "shared + "},
             {"the next program's results overwrite those that are copied", R"(cp\.async\.bulk\.wait_group\.read 0;)",
              "", 0, "race", "shared + "},
             {"the block ends while its results are copied", R"(cp\.async\.bulk\.wait_group\.read 0;)", "", -1,
              "early exit", "with a bulk store in flight"},
             {"stmatrix writes a row too low", R"((stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 \[%r\d+)\])",
              "$1+128]", 0, "race", "writes shared + "},
             {"the consumers leave programs out", R"((mov\.u32\s+%r\d+), %nctaid\.x;)", "$1, 64;", -1, "deadlock",
              "arrivals missing"}});
  check_all(kHopperAttention, common);
  check_all(
      kHopperAttention,
      {{"a stage is released one arrival early", init, "$1, 7;", 1, "race", "a wgmma of CTA"},
       {"fence.proxy.async is missing", R"(fence\.proxy\.async\.shared::cta;)", "", 0, "missing fence", "shared + "},
       {"the barrier behind staging is missing", R"(bar\.sync 1, \d+;)", "", 0, "race", "shared + "}});
}

}  // namespace seqtile::testing
