// tests/kernels/index_inputs_test.cpp -- calls whose index tensors lead out of the tensors that they index.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <set>

#include "autotune/call/device_mirror.h"
#include "jit/base/tensor_runs.h"
#include "jit/ir/row_alignment.h"
#include "jit/sim/device/sim_device.h"
#include "seqtile/engine.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"
#include "seqtile/operations.h"
#include "seqtile/ops/attention.h"
#include "seqtile/ops/rows.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/kernels/kernel_table.h"
#include "tests/support/temp_folder.h"

namespace seqtile::testing {
namespace {

/// A call with valid numbers; each test spoils one of them.
struct IndexedCall {
  KernelCase kernel;
  std::vector<int64_t> symbols;
  std::vector<std::pair<std::string, std::vector<int32_t>>> numbers;
};

KernelCase attention(const char* phase) {
  return {"attention_forward",
          {{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}, {"phase", std::string(phase)}}};
}
const KernelCase kBackward{"attention_backward",
                           {{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}}};

std::vector<IndexedCall> good_calls() {
  return {{attention("prefill"), {9, 14, 20, 2}, {{"q_start", {0, 9, 14}}, {"kv_start", {11, 0}}, {"kv_len", {9, 5}}}},
          {attention("extend"), {4, 6, 40, 2}, {{"q_start", {0, 2, 6}}, {"kv_start", {0, 3}}, {"kv_len", {30, 37}}}},
          {attention("decode"), {33, 2, 40, 2}, {{"q_start", {0, 1, 2}}, {"kv_start", {7, 0}}, {"kv_len", {33, 5}}}},
          {kBackward, {9, 14, 20, 2}, {{"q_start", {0, 9, 14}}, {"kv_start", {11, 0}}, {"kv_len", {9, 5}}}},
          {{"grouped_linear", {{"experts", int64_t{3}}, {"n", int64_t{64}}, {"k", int64_t{64}}}},
           {14},
           {{"offsets", {0, 9, 9, 14}}}},
          {{"embedding", {{"vocab", int64_t{20}}, {"n", int64_t{64}}}}, {4}, {{"ids", {0, 19, 3, 3}}}}};
}

/// One wrong number of an index tensor, and the message about it.
struct Spoilt {
  const char* kernel;
  const char* phase;
  const char* arg;
  int64_t element;
  int32_t value;
  const char* message;
};

const Spoilt kSpoilt[] = {
    {"attention_forward", "prefill", "q_start", 2, 15, "'q_start': element 2 is 15; it must be at most 14 (tokens)"},
    {"attention_forward", "prefill", "q_start", 0, -1, "'q_start': element 0 is -1; it must be at least 0"},
    {"attention_forward", "prefill", "q_start", 1, 10, "10 rows; at most 9 (length) expected"},
    {"attention_forward", "prefill", "kv_start", 0, 12, "'kv_start': element 0 is 12; with its 9 rows ('kv_len')"},
    {"attention_forward", "extend", "kv_len", 1, 38, "'kv_start': element 1 is 3; with its 38 rows ('kv_len')"},
    {"attention_forward", "extend", "kv_len", 0, -3, "'kv_len': element 0 is -3; it must be at least 0"},
    {"attention_forward", "decode", "q_start", 1, 2, "2 rows; at most 1 expected"},
    {"attention_forward", "decode", "q_start", 1, 0, "0 rows; at least 1 expected"},
    {"attention_forward", "decode", "kv_len", 1, 34, "'kv_len': element 1 is 34; it must be at most 33 (length)"},
    {"attention_forward", "decode", "kv_start", 0, 2000000000, "'kv_start': element 0 is 2000000000; with its"},
    {"attention_backward", "", "kv_len", 0, 10, "'kv_len': element 0 is 10; it must be at most 9 (length)"},
    {"attention_backward", "", "kv_start", 1, 8, "rows of two lists would be written twice"},
    {"grouped_linear", "", "offsets", 3, 15, "'offsets': element 3 is 15; it must be at most 14 (length)"},
    {"grouped_linear", "", "offsets", 0, -1, "'offsets': element 0 is -1; it must be at least 0"},
    {"grouped_linear", "", "offsets", 1, 10, "element 2 is 9; it must be at least 10, which is element 1"},
    {"embedding", "", "ids", 1, 20, "'ids': element 1 is 20; it must be at least 0 and below 20"},
    {"embedding", "", "ids", 3, -1, "'ids': element 3 is -1; it must be at least 0 and below 20"},
};

void write_numbers(const GuardedCall& call, const IndexedCall& numbers) {
  for (const auto& [name, values] : numbers.numbers)
    std::memcpy(call.tensor(name).data, values.data(), values.size() * sizeof(int32_t));
}

void check_refused(Handle& handle, const GuardedCall& call, const Spoilt& spoilt) {
  auto& number = static_cast<int32_t*>(call.tensor(spoilt.arg).data)[spoilt.element];
  const int32_t before = std::exchange(number, spoilt.value);
  const auto outputs = call.output_bytes();
  INFO(spoilt.kernel << " " << spoilt.phase << " " << spoilt.arg << "[" << spoilt.element << "] = " << spoilt.value);
  CHECK_THROWS_WITH(handle(call.problem().tensors, call.problem().symbols[0]), Catch::Contains(spoilt.message));
  CHECK(call.output_bytes() == outputs);
  number = before;
  CHECK_NOTHROW(handle(call.problem().tensors, call.problem().symbols[0]));
}

/// A random number: any, small, close to `near`, or below `near`.
int32_t wild_number(std::mt19937& random, int64_t near) {
  const auto raw = static_cast<int32_t>(random());
  switch (random() % 4) {
    case 0: return raw;
    case 1: return raw % 1000;
    case 2: return static_cast<int32_t>(near) + raw % 4;
    default: return static_cast<int32_t>(static_cast<uint32_t>(raw) % static_cast<uint32_t>(near + 1));
  }
}

/// The machine's first report that is no race. Races are right if two sequences got the same rows.
std::string fault_of(KernelRunner& runner, const autotune::Problem& problem, Device& device) {
  try {
    runner.run(problem);
  } catch (const Error&) {
    for (const sim::Report& report : dynamic_cast<sim::SimDevice&>(device).last_launch().reports)
      if (report.kind != sim::ReportKind::race) return report.message;
  }
  return "";
}

/// Checks that only the outputs change and that the PTX machine sees no access outside of the tensors.
void check_inside(Device& device, const IndexedCall& indexed, DType dtype, std::mt19937& random) {
  const auto workload = normalized(indexed.kernel, dtype, 1);
  const autotune::OpDef& op = library_op(workload.operation);
  GuardedCall call(op, workload, indexed.symbols, 5, kGpuAlignment);
  const auto nothing = call.want({});
  for (const auto& config : diverse_configs(op, workload, indexed.symbols[0], device.target(), 3)) {
    KernelRunner runner(op, workload, config, device.target(), Backend::compiled, device);
    for (int round = 0; round < 6; ++round) {
      for (const auto& [name, values] : indexed.numbers)
        for (size_t i = 0; i < values.size(); ++i)
          static_cast<int32_t*>(call.tensor(name).data)[i] = wild_number(random, indexed.symbols.back() * 10);
      autotune::DeviceMirror mirror(device);
      for (size_t i = 0; i < call.memory().size(); ++i)
        mirror.add(call.memory()[i]->bytes(), call.problem().schema->args[i].name);
      mirror.upload();
      autotune::Problem problem = call.problem();
      problem.tensors = mirror.at(call.problem().tensors);
      INFO(workload.json() << " " << config.json() << " " << device.target().name << ", round " << round);
      REQUIRE(fault_of(runner, problem, device) == "");
      mirror.download();
      REQUIRE(call.check({}, nothing) == "");
    }
  }
}

using Aliases = std::vector<std::pair<const char*, const char*>>;  // inputs and the outputs that share their memory

std::vector<std::pair<KernelCase, Aliases>> in_place_cases() {
  const auto norm = [](const char* operation, const char* normed = nullptr) {
    KernelCase kernel{operation, {{"n", int64_t{37}}, {"residual", int64_t{1}}}};
    if (normed) kernel.fields.set("normed", std::string(normed));
    return kernel;
  };
  const auto rope = [](const char* style, int64_t is_normed) {
    return KernelCase{"rope",
                      {{"heads", int64_t{3}},
                       {"kv_heads", int64_t{2}},
                       {"head_dim", int64_t{16}},
                       {"style", std::string(style)},
                       {"norm", is_normed}}};
  };
  std::vector<std::pair<KernelCase, Aliases>> cases = {
      {{"softmax", {{"n", int64_t{37}}}}, {{"x", "y"}}},
      {{"layer_norm", {{"n", int64_t{37}}}}, {{"x", "y"}}},
      {{"rms_norm", {{"n", int64_t{37}}}}, {{"x", "y"}}},
      {{"rms_norm_backward", {{"n", int64_t{37}}}}, {{"x", "dx"}}},
      {{"rms_norm_backward", {{"n", int64_t{37}}}}, {{"dy", "dx"}}},
      {norm("rms_norm_backward"), {{"residual", "dx"}}},
      {{"act_and_mul_backward", {{"n", int64_t{37}}}}, {{"x", "dx"}}},
      {{"linear", {{"n", int64_t{37}}, {"k", int64_t{20}}, {"residual", int64_t{1}}}}, {{"residual", "y"}}},
      {{"linear_wgrad", {{"n", int64_t{37}}, {"k", int64_t{20}}, {"accumulate", int64_t{1}}}}, {{"before", "dw"}}}};
  for (const char* style : {"half", "interleaved"})
    for (const int64_t is_normed : {0, 1})
      for (const Aliases& names : {Aliases{{"q", "q_out"}}, {{"k", "k_out"}}, {{"q", "q_out"}, {"k", "k_out"}}})
        cases.emplace_back(rope(style, is_normed), names);
  for (const KernelCase& kernel : {norm("layer_norm"), norm("rms_norm"), norm("rms_norm", "both"),
                                   norm("rms_norm", "sum"), norm("rms_norm", "x")}) {
    std::vector<Aliases> forms = {{{"x", "sum"}}, {{"residual", "sum"}}};
    const auto has_y = kernel.fields.get_string("normed", "") != "x";
    if (has_y)
      for (const Aliases& names : {Aliases{{"x", "y"}},
                                   {{"residual", "y"}},
                                   {{"x", "y"}, {"residual", "sum"}},
                                   {{"x", "sum"}, {"residual", "y"}}})
        forms.push_back(names);
    for (const Aliases& names : forms) cases.emplace_back(kernel, names);
  }
  return cases;
}

/// Copies input `in` [rows] into the memory of output `out`, where the problem reads it from now on.
void put_into(const GuardedCall& call, autotune::Problem& problem, const char* in, const char* out) {
  const Tensor &input = call.tensor(in), &output = call.tensor(out);
  for (int64_t row = 0; row < input.sizes[0]; ++row) {
    const auto values = read_row(input, row);
    const Tensor target = row_of(output, row);
    auto value = values.begin();
    for_each_run(target, [&](int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) write_element(target, offset + i, *value++);
    });
  }
  const auto& args = problem.schema->args;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name == in) problem.tensors[i] = output;
}

}  // namespace

TEST_CASE("index inputs: a number that leads out of a tensor is refused before anything is written", "[kernels]") {
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.path().c_str(), 1);
  const auto engine =
      Engine::open({.threads = 2, .cache = folder.file("tuning.db"), .artifacts = folder.file("artifacts.db")},
                   kernels::make_registry());
  for (const IndexedCall& good : good_calls()) {
    const auto workload = normalized(good.kernel, DType::f32);
    Handle handle = engine->prepare(workload);
    GuardedCall call(library_op(workload.operation), workload, good.symbols, 3);
    write_numbers(call, good);
    REQUIRE_NOTHROW(handle(call.problem().tensors, call.problem().symbols[0]));
    for (const Spoilt& spoilt : kSpoilt)
      if (spoilt.kernel == workload.operation && spoilt.phase == workload.fields.get_string("phase", ""))
        check_refused(handle, call, spoilt);
  }
}

TEST_CASE("index inputs: every integer input of an operation of one rank has a rule, or selects nothing", "[kernels]") {
  const std::set<std::string> select_nothing = {"positions", "table"};  // inputs of rope: any number is an angle
  int with_rules = 0;
  for (const CaseGroup& group : kernel_table())
    for (const TableCase& row : group.cases) {
      const auto workload = normalized(row.kernel, DType::f32);
      const autotune::Schema schema = library_op(workload.operation).schema(workload);
      for (const autotune::ArgSpec& arg : schema.args) {
        if (arg.dtype != DType::i32 && arg.dtype != DType::i64) continue;
        INFO(workload.operation << " " << arg.name);
        const bool has_rule = std::any_of(
            schema.indices.begin(), schema.indices.end(),
            [&](const autotune::IndexRule& rule) { return rule.arg == arg.name || rule.counts == arg.name; });
        CHECK(has_rule != select_nothing.contains(arg.name));
        with_rules += has_rule;
      }
    }
  CHECK(with_rules > 0);
}

TEST_CASE("index inputs: on simulated GPUs no number leads out of the tensors", "[kernels][sim]") {
  std::mt19937 random(11);
  on_simulated_gpus([&](Device& device) {
    for (const IndexedCall& call : good_calls()) check_inside(device, call, DType::bf16, random);
  });
}

TEST_CASE("index inputs: an id outside of the table gives zeros on GPUs", "[kernels][sim]") {
  on_simulated_gpus([](Device& device) {
    const IndexedCall indexed = good_calls().back();
    const auto workload = normalized(indexed.kernel, DType::f32, 1);
    GuardedCall call(library_op("embedding"), workload, indexed.symbols, 3, kGpuAlignment);
    write_numbers(call, {indexed.kernel, indexed.symbols, {{"ids", {-1, 20, 5, INT32_MIN}}}});
    check_call_on(device, call, workload, indexed.symbols[0]);  // the reference gives zeros too
  });
}

TEST_CASE("in place: operations that may work in place do, and compute the same", "[kernels]") {
  const auto device = make_cpu_device(2);
  for (const auto& [kernel, names] : in_place_cases()) {
    const auto workload = normalized(kernel, DType::f32);
    const autotune::OpDef& op = library_op(workload.operation);
    for (const auto& config : diverse_configs(op, workload, 70, host_target(), 4)) {
      INFO(workload.json() << " " << config.json());
      for (const auto& [in, out] : names) UNSCOPED_INFO(out << " over " << in);
      GuardedCall call(op, workload, {70}, 9);
      const auto rows = call.sample_rows(100);
      const auto want = call.want(rows);
      autotune::Problem problem = call.problem();
      for (const auto& [in, out] : names) put_into(call, problem, in, out);
      KernelRunner runner(op, workload, config, host_target(), Backend::compiled, *device);
      runner.run(problem);
      REQUIRE(call.check(rows, want) == "");
    }
  }
}

}  // namespace seqtile::testing
