// tests/kernels/simulated_faults_test.cpp -- the library's PTX under random schedules, and with faults put into it.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <span>

#include "autotune/launch.h"
#include "jit/compiler.h"
#include "jit/error.h"
#include "jit/sim/sim_device.h"
#include "tests/support/guarded_call.h"
#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

/// One call of a kernel's default configuration, whose PTX can be changed.
class TextCall {
 public:
  TextCall(const KernelCase& test_case, DType dtype, int64_t length)
      : op_(library_op(test_case.operation)),
        workload_(normalized(test_case, dtype, 1)),
        device_(sim::make_sim_device("sm_80")),
        call_(op_, workload_, op_.symbols ? op_.symbols(workload_, length) : std::vector<int64_t>{length}, 3, 16),
        config_(op_.default_config(workload_, length, device_->target())),
        binary_(compile(*autotune::build_kernel(op_, workload_, config_, device_->target()), device_->target())),
        rows_(call_.sample_rows(24)),
        want_(call_.want(rows_)) {
    for (size_t i = 0; i < call_.memory().size(); ++i)
      device_->register_memory(call_.problem().schema->args[i].name, call_.memory()[i]->bytes());
  }
  sim::SimDevice& device() { return *device_; }
  std::string text() const { return {reinterpret_cast<const char*>(binary_.code.data()), binary_.code.size()}; }

  /// Runs `text`: empty when the results are right, else the first report or the first wrong element.
  std::string run(const std::string& text) {
    KernelBinary binary = binary_;
    const auto bytes = std::as_bytes(std::span(text));
    binary.code.assign(bytes.begin(), bytes.end());
    const auto kernel = device_->load(std::move(binary));
    autotune::KernelCall call;
    autotune::CallLayout(*call_.problem().schema).bind(call_.problem().tensors, call_.problem().symbols[0], {}, call);
    call_.poison_outputs();
    try {
      device_->launch(*kernel, autotune::grid_of(op_.grid(workload_, config_), call.symbol_values()), call.block());
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::driver);
      return error.what();
    }
    return call_.check(rows_, want_);
  }

 private:
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  std::unique_ptr<sim::SimDevice> device_;
  GuardedCall call_;
  autotune::Config config_;
  KernelBinary binary_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<double>> want_;
};

/// `text` with occurrence `which` (from 0; from the end where negative) of `part` replaced.
std::string replaced(std::string text, const std::string& part, const std::string& by, int which = 0) {
  size_t at = which < 0 ? text.rfind(part) : text.find(part);
  for (int i = 0; i < which; ++i) at = text.find(part, at + 1);
  for (int i = -1; i > which; --i) at = text.rfind(part, at - 1);
  INFO(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), by);
}

const KernelCase kSoftmax{"softmax", {{"n", int64_t{2304}}}};
const KernelCase kNorm{"rms_norm", {{"n", int64_t{576}}}};
const KernelCase kLinear{"linear", {{"n", int64_t{192}}, {"k", int64_t{96}}}};
const KernelCase kAttention{
    "attention_forward",
    {{"heads", int64_t{3}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}, {"phase", std::string("prefill")}}};

}  // namespace

TEST_CASE("simulated: forty random schedules of every kind of kernel find nothing", "[kernels][sim]") {
  for (const KernelCase& test_case : {kSoftmax, kNorm, kLinear, kAttention}) {
    TextCall call(test_case, DType::bf16, 65);
    const std::string text = call.text();
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      call.device().options().seed = seed;
      INFO(test_case.operation << " seed " << seed);
      REQUIRE(call.run(text) == "");
    }
  }
}

// Attention's weights in f32 are left out: writing pairs of words from accumulators takes two turns.
TEST_CASE("simulated: main loops meet no bank conflict", "[kernels][sim]") {
  const auto check = [](const KernelCase& test_case, DType dtype) {
    TextCall call(test_case, dtype, 128);
    call.device().options().profile = true;
    REQUIRE(call.run(call.text()) == "");
    INFO(test_case.operation << " " << dtype_name(dtype));
    CHECK(call.device().last_launch().counters.bank_conflicts == 0);
  };
  for (const KernelCase& test_case : {kSoftmax, kNorm, kLinear}) check(test_case, DType::f32);
  for (const KernelCase& test_case : {kSoftmax, kNorm, kLinear, kAttention}) check(test_case, DType::bf16);
}

TEST_CASE("simulated: faults in the text are reported for what they are", "[kernels][sim][fault]") {
  struct Fault {
    const char* name;
    KernelCase kernel;
    std::string part, by;
    int which;
    const char* report;
  };
  const std::string none = "// ";
  const std::vector<Fault> faults = {
      {"a reduction's barrier dropped", kSoftmax, "bar.sync", none + "bar.sync", 0, "uninitialised"},
      {"the next reduction's barrier dropped", kSoftmax, "bar.sync", none + "bar.sync", 1, "race"},
      {"the barrier behind a turn's copies dropped", kLinear, "bar.sync", none + "bar.sync", 0, "uninitialised"},
      {"a misaligned matrix", kLinear, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "$LDM", 0, "misaligned"},
      {"a store past the tensor", kNorm, "st.global.v4.b32 [", "$STORE", -1, "out of bounds"},
      {"half a warp in a shuffle", kSoftmax, "shfl.sync.bfly.b32", "$SHFL", 0, "uninitialised"},
      {"an accumulator that nobody set", kLinear, "mov.f32", none + "mov.f32", 0, "uninitialised"},
  };
  for (const Fault& fault : faults) {
    TextCall call(fault.kernel, DType::bf16, 65);
    std::string text = call.text();
    REQUIRE(call.run(text) == "");
    const auto shift_address = [&](const std::string& part, const std::string& offset, int which) {
      // `[%r1]` or `[%r1+16]` becomes `[%r1+offset]`.
      size_t at = which < 0 ? text.rfind(part) : text.find(part);
      REQUIRE(at != std::string::npos);
      const size_t open = text.find('[', at), close = text.find(']', open);
      const size_t plus = std::min(text.find('+', open), close);
      text.replace(plus, close - plus, "+" + offset);
    };
    if (fault.by == "$LDM") shift_address(fault.part, "8", 0);
    else if (fault.by == "$STORE") shift_address(fault.part, "1048576", -1);
    else if (fault.by == "$SHFL") text = replaced(text, "shfl.sync.bfly.b32", "@%lower shfl.sync.bfly.b32");
    else text = replaced(text, fault.part, fault.by, fault.which);
    if (fault.by == "$SHFL") {
      const size_t body = text.find("ld.param");
      text.insert(body,
                  ".reg .pred %lower; .reg .b32 %half; mov.u32 %half, %laneid; setp.lt.u32 %lower, %half, 16;\n\t");
    }
    const std::string found = call.run(text);
    INFO(fault.name << ": " << found);
    CHECK(found.find(fault.report) != std::string::npos);
    CHECK(found.find("PTX line") != std::string::npos);
  }
}

}  // namespace seqtile::testing
