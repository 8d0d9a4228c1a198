// tests/kernels/graph_test.cpp -- operations captured at a capacity and replayed at lengths that the device reads.
// SPDX-License-Identifier: Apache-2.0
//
// A replay must give the bits of the eager call at its length with the capacity's configuration. It must leave rows
// beyond the length, padding and guards poisoned.
#include <catch2/catch.hpp>

#include <memory>
#include <random>

#include "autotune/call/call_values.h"
#include "autotune/call/device_mirror.h"
#include "autotune/call_sizes.h"
#include "seqtile/compiler.h"
#include "seqtile/engine.h"
#include "seqtile/operations.h"
#include "tests/cache/support.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/kernels/guarded_call.h"
#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {
namespace {

using autotune::ArgRole;

class CapturedCase {
 public:
  CapturedCase(const KernelCase& test_case, DType dtype, int64_t capacity, const char* device_name)
      : op_(library_op(test_case.operation)),
        workload_(normalized(test_case, dtype, 1)),
        capacity_(capacity),
        engine_(open(device_name, capacity)),
        device_(engine_->device()),
        handle_(engine_->prepare(workload_)),
        call_(op_, workload_, symbols(capacity), 5, kAlignment),
        mirror_(device_),
        length_(device_.memory(), sizeof(int64_t)),
        stream_(device_.streams()) {
    for (size_t i = 0; i < call_.memory().size(); ++i)
      mirror_.add(call_.memory()[i]->bytes(), call_.problem().schema->args[i].name);
    mirror_.upload();
    set_length(capacity);
    device_.streams().begin_capture(stream_);
    kept_ = handle_.capture(mirror_.at(call_.problem().tensors), capacity_, static_cast<int64_t*>(length_.data()), {},
                            stream_);
    graph_ = device_.streams().end_capture(stream_);
  }

  int num_kernels() const { return graph_->num_kernels(); }

  /// Compares the eager call and the replay at `length`. Empty if they agree and write nothing else.
  std::string compare(int64_t length) {
    const std::vector<Tensor> tensors = tensors_at(length);
    const auto eager = outputs_after([&] { handle_.call_as(capacity_, mirror_.at(tensors), length, {}, stream_); });
    const std::string untouched = check_untouched(tensors);
    if (!untouched.empty()) return "eager: " + untouched;
    set_length(length);
    if (outputs_after([&] { graph_->launch(stream_); }) != eager) return "the replay differs from the eager call";
    return check_untouched(tensors);
  }

  /// Empty if a replay of the invalid `length` writes nothing (below 1) or the outputs of the capacity (above it).
  std::string compare_out_of_range(int64_t length) {
    const int64_t counts = length < 1 ? 0 : capacity_;
    if (counts > 0) {
      (void)tensors_at(capacity_);
      set_length(capacity_);
      const auto full = outputs_after([&] { graph_->launch(stream_); });
      set_length(length);
      return outputs_after([&] { graph_->launch(stream_); }) == full ? "" : "differs from the capacity's";
    }
    set_length(length);
    call_.poison_outputs();
    const auto before = call_.output_bytes();
    return outputs_after([&] { graph_->launch(stream_); }) == before ? "" : "something was written";
  }

 private:
  static constexpr int64_t kAlignment = 16;

  std::unique_ptr<Engine> open(const char* device_name, int64_t capacity) {
    static const autotune::Registry registry = kernels::make_registry();
    return Engine::open({.device = device_name,
                         .threads = 1,
                         .cache = folder_.file("tuning.db"),
                         .artifacts = shared_artifacts(),
                         .policy = MissPolicy::fallback,
                         .max_length = capacity},
                        registry);
  }
  std::vector<int64_t> symbols(int64_t length) const {
    return autotune::call_symbols(op_, workload_, op_.schema(workload_), length);
  }
  void set_length(int64_t length) {
    device_.memory().copy(length_.data(), &length, sizeof length, stream_);
    device_.streams().synchronize(stream_);
  }

  /// The call's tensors at `length` in the same memory, with new starts and lengths of sequences.
  std::vector<Tensor> tensors_at(int64_t length) {
    const autotune::Schema& schema = *call_.problem().schema;
    autotune::Problem problem = call_.problem();
    problem.symbols = symbols(length);
    const std::vector<Tensor> described = autotune::describe_args(schema, problem.symbols);
    for (size_t i = 0; i < problem.tensors.size(); ++i) problem.tensors[i].sizes = described[i].sizes;
    for (size_t i = 0; i < problem.tensors.size(); ++i) {
      if (schema.args[i].dtype != DType::i32 || !op_.fill) continue;
      op_.fill(problem, i, 5 + i);
      mirror_.upload(call_.memory()[i]->bytes());
    }
    return problem.tensors;
  }

  /// The memory of all outputs after `run` on poison.
  template <class Run>
  std::vector<std::vector<std::byte>> outputs_after(const Run& run) {
    call_.poison_outputs();
    for (size_t i = 0; i < call_.memory().size(); ++i)
      if (call_.problem().schema->args[i].role == ArgRole::output) mirror_.upload(call_.memory()[i]->bytes());
    run();
    device_.streams().synchronize(stream_);
    mirror_.download();
    return call_.output_bytes();
  }

  /// Empty if all bytes outside of the output tensors are poison.
  std::string check_untouched(const std::vector<Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (call_.problem().schema->args[i].role != ArgRole::output) continue;
      const auto bytes = call_.memory()[i]->bytes();
      std::vector<std::byte> rest(bytes.begin(), bytes.end());
      Tensor copy = tensors[i];
      copy.data = rest.data() + (static_cast<const std::byte*>(copy.data) - bytes.data());
      autotune::poison(copy);
      if (!autotune::is_poison(rest)) return call_.problem().schema->args[i].name + " was written beyond the length";
    }
    return "";
  }

  const autotune::OpDef& op_;
  autotune::Workload workload_;
  int64_t capacity_;
  test::TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  Device& device_;
  Handle handle_;
  GuardedCall call_;
  autotune::DeviceMirror mirror_;
  DeviceBuffer length_;
  OwnedStream stream_;
  std::shared_ptr<const void> kept_;
  std::unique_ptr<Graph> graph_;
};

/// Checks `replays` lengths, the extremes among them.
void check_replays_on(const char* device, const KernelCase& test_case, DType dtype, int64_t capacity, int replays) {
  CapturedCase captured(test_case, dtype, capacity, device);
  CHECK(captured.num_kernels() == 1);
  std::mt19937_64 random(7);
  for (int i = 0; i < replays; ++i) {
    const auto drawn = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(capacity));
    const int64_t length = i == 0 ? 1 : i == 1 ? capacity : drawn;
    INFO(test_case.operation << " on " << device << ", replay " << i << " at length " << length << " of " << capacity);
    REQUIRE(captured.compare(length) == "");
  }
}

void check_replays(const KernelCase& test_case, DType dtype, int64_t capacity, int replays) {
  for (const char* device : kSimulatedGpus) check_replays_on(device, test_case, dtype, capacity, replays);
}

KernelCase attention(const char* phase) {
  return {"attention_forward",
          {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"head_dim", int64_t{64}}, {"phase", std::string(phase)}}};
}

const KernelCase kNorm{"rms_norm", {{"n", int64_t{72}}, {"residual", int64_t{1}}}};
const KernelCase kLinear{"linear", {{"n", int64_t{72}}, {"k", int64_t{40}}, {"bias", int64_t{1}}}};
const KernelCase kRope{"rope", {{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}}};
const KernelCase kEmbedding{"embedding", {{"vocab", int64_t{99}}, {"n", int64_t{72}}}};

}  // namespace

TEST_CASE("graph: a thousand replays at changing lengths give the bits of eager calls", "[kernels][sim][graph]") {
  check_replays(kNorm, DType::bf16, 40, 1000);
}

TEST_CASE("graph: products and attention replay at any length up to the capacity", "[kernels][sim][graph]") {
  check_replays(kLinear, DType::bf16, 70, 12);
  check_replays(attention("prefill"), DType::bf16, 70, 8);
  check_replays(attention("decode"), DType::bf16, 700, 12);
}

TEST_CASE("graph: what is summed over the length ends where the replay does", "[kernels][sim][graph]") {
  check_replays({"linear_wgrad", {{"n", int64_t{136}}, {"k", int64_t{72}}}}, DType::bf16, 70, 8);
  check_replays({"linear_wgrad", {{"n", int64_t{24}}, {"k", int64_t{40}}, {"accumulate", int64_t{1}}}}, DType::f32, 70,
                6);
  check_replays({"rms_norm_backward", {{"n", int64_t{72}}, {"residual", int64_t{1}}}}, DType::bf16, 70, 8);
  check_replays({"attention_backward", {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"head_dim", int64_t{64}}}},
                DType::bf16, 70, 6);
}

TEST_CASE("graph: results that leave by TMA end at the length of the replay", "[kernels][sim][graph]") {
  const KernelCase wide{"linear", {{"n", int64_t{768}}, {"k", int64_t{256}}, {"residual", int64_t{1}}}};
  constexpr int64_t kCapacity = 600;
  const autotune::OpDef& op = library_op(wide.operation);
  const autotune::Workload workload = normalized(wide, DType::bf16, 1);
  const Target target = gpu_target("sm_90a");
  const auto config = op.default_config(workload, kCapacity, target);
  REQUIRE(compile(*autotune::build_kernel(op, workload, config, target), target).gpu.is_persistent);
  check_replays(wide, DType::bf16, kCapacity, 12);
}

TEST_CASE("gpu: captured calls replay at any length up to the capacity", "[kernels][gpu][graph]") {
  if (!open_gpu()) return;
  check_replays_on("cuda:0", kNorm, DType::bf16, 40, 1000);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const KernelCase& test_case : {kLinear, kRope, kEmbedding})
      check_replays_on("cuda:0", test_case, dtype, 70, 12);
    check_replays_on("cuda:0", attention("prefill"), dtype, 70, 12);
    check_replays_on("cuda:0", attention("decode"), dtype, 700, 12);
  }
  check_replays_on("cuda:0", {"linear_wgrad", {{"n", int64_t{136}}, {"k", int64_t{72}}}}, DType::bf16, 70, 12);
  check_replays_on("cuda:0", {"linear", {{"n", int64_t{512}}, {"k", int64_t{256}}}}, DType::bf16, 600, 12);
}

TEST_CASE("graph: every operation, dtype and many lengths", "[kernels][sim][graph][slow]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const KernelCase& test_case :
         {kNorm, kLinear, kRope, kEmbedding, KernelCase{"softmax", {{"n", int64_t{100}}}},
          KernelCase{"layer_norm", {{"n", int64_t{72}}}}, KernelCase{"act_and_mul", {{"n", int64_t{72}}}},
          KernelCase{"act_and_mul_backward", {{"n", int64_t{72}}}}})
      check_replays(test_case, dtype, 70, 30);
    for (const char* phase : {"prefill", "decode"}) check_replays(attention(phase), dtype, 300, 30);
  }
}

TEST_CASE("graph: a length of 0 writes nothing, one beyond the capacity counts as the capacity",
          "[kernels][sim][graph]") {
  for (const KernelCase& test_case : {kNorm, kLinear}) {
    CapturedCase captured(test_case, DType::f32, 24, "sim:sm_80");
    CHECK(captured.compare_out_of_range(0) == "");
    CHECK(captured.compare_out_of_range(-5) == "");
    CHECK(captured.compare_out_of_range(25) == "");
    CHECK(captured.compare_out_of_range(int64_t{1} << 40) == "");
    CHECK(captured.compare(7) == "");
  }
}

}  // namespace seqtile::testing
