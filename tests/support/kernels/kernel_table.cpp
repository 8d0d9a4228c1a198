// tests/support/kernels/kernel_table.cpp -- see kernel_table.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/kernel_table.h"

#include <catch2/catch.hpp>

#include <algorithm>

namespace seqtile::testing {
namespace {

using autotune::Fields;

// Tests are made of the table before main() begins: functions, as constants of other files may not be there yet.
const std::vector<int64_t>& few() {
  static const std::vector<int64_t> lengths = {1, 7, 65};
  return lengths;
}
const std::vector<int64_t>& all() { return test_lengths(); }

Fields with(Fields fields, std::initializer_list<std::pair<const std::string, autotune::FieldValue>> more) {
  for (const auto& [name, value] : more) fields.set(name, value);
  return fields;
}

CaseGroup rms_norm() {
  const Fields wide{{"n", 2304}, {"residual", 1}, {"weight_offset", 1.0}, {"eps", 1e-6}};
  return {"rms_norm",
          {{{"rms_norm", {{"n", 576}}}, all(), all()},
           {{"rms_norm", {{"n", 896}, {"residual", 1}}}, all(), all()},
           {{"rms_norm", wide}, all(), few()},
           {{"rms_norm", with(wide, {{"normed", "both"}})}, all(), few()},
           {{"rms_norm", {{"n", 897}, {"residual", 1}, {"normed", "x"}}}, all(), few()}},
          KernelCase{"rms_norm", {{"n", 37}, {"residual", 1}, {"weight_offset", 1.0}, {"normed", "both"}}}};
}

CaseGroup rms_norm_backward() {
  const Fields odd{{"n", 897}, {"residual", 1}, {"weight_offset", 1.0}, {"eps", 1e-6}};
  return {"rms_norm_backward",
          {{{"rms_norm_backward", {{"n", 576}}}, all(), {1, 7, 65, 257}}, {{"rms_norm_backward", odd}, all(), {1, 65}}},
          KernelCase{"rms_norm_backward", {{"n", 37}, {"residual", 1}, {"weight_offset", 1.0}}}};
}

CaseGroup layer_norm() {
  return {"layer_norm",
          {{{"layer_norm", {{"n", 576}}}, all(), all()},
           {{"layer_norm", {{"n", 897}, {"bias", 0}}}, all(), few()},
           {{"layer_norm", {{"n", 576}, {"residual", 1}}}, all(), few()}},
          KernelCase{"layer_norm", {{"n", 37}}}};
}

CaseGroup softmax() {
  return {"softmax",
          {{{"softmax", {{"n", 576}}}, all(), all()}, {{"softmax", {{"n", 2305}}}, all(), few()}},
          KernelCase{"softmax", {{"n", 37}}}};
}

CaseGroup act_and_mul() {
  return {"act_and_mul",
          {{{"act_and_mul", {{"n", 896}}}, all(), all()},
           {{"act_and_mul", {{"n", 1537}, {"activation", "gelu_tanh"}}}, all(), few()},
           {{"act_and_mul", {{"n", 97}, {"activation", "gelu"}}}, all(), few()},
           {{"act_and_mul", {{"n", 96}, {"activation", "relu_squared"}}}, all(), few()},
           {{"act_and_mul", {{"n", 96}, {"activation", "none"}}}, {1, 33}, {33}}},
          KernelCase{"act_and_mul", {{"n", 37}}}};
}

/// Rows of 8960 columns and more are processed in parts.
CaseGroup act_and_mul_backward() {
  return {"act_and_mul_backward",
          {{{"act_and_mul_backward", {{"n", 896}}}, all(), few()},
           {{"act_and_mul_backward", {{"n", 1537}}}, all(), {1, 65}},
           {{"act_and_mul_backward", {{"n", 97}, {"activation", "gelu"}}}, all(), few()},
           {{"act_and_mul_backward", {{"n", 96}, {"activation", "gelu_tanh"}}}, all(), few()},
           {{"act_and_mul_backward", {{"n", 97}, {"activation", "relu_squared"}}}, all(), few()},
           {{"act_and_mul_backward", {{"n", 96}, {"activation", "none"}}}, {1, 33}, {33}},
           {{"act_and_mul_backward", {{"n", 8960}, {"activation", "gelu"}}}, {1, 3, 17}, {3}},
           {{"act_and_mul_backward", {{"n", 8961}}}, {3}, {3}},
           {{"act_and_mul_backward", {{"n", 14337}}}, {3}, {3}}},
          KernelCase{"act_and_mul_backward", {{"n", 37}, {"activation", "gelu_tanh"}}}};
}

CaseGroup embedding() {
  return {"embedding",
          {{{"embedding", {{"vocab", 499}, {"n", 576}}}, all(), all()},
           {{"embedding", {{"vocab", 499}, {"n", 901}, {"scale", 3.0}}}, all(), few()}},
          KernelCase{"embedding", {{"vocab", 11}, {"n", 37}, {"scale", 3.0}}}};
}

CaseGroup rope() {
  const Fields half{{"heads", 9}, {"kv_heads", 3}, {"head_dim", 64}};
  const Fields normed = with(half, {{"norm", 1}, {"weight_offset", 1.0}});
  const Fields partial{{"heads", 4}, {"kv_heads", 1}, {"head_dim", 96}, {"rotary_dim", 72}};
  return {"rope",
          {{{"rope", half}, all(), {1, 65}},
           {{"rope", with(half, {{"style", "interleaved"}})}, all(), {7}},
           {{"rope", normed}, all(), {1, 65}},
           {{"rope", with(partial, {{"norm", 1}, {"eps", 1e-5}, {"style", "interleaved"}})}, all(), {7}},
           {{"rope", with(half, {{"inverse", 1}})}, all(), {7}},
           {{"rope", partial}, all(), {1, 65}}},
          KernelCase{"rope", {{"heads", 2}, {"kv_heads", 1}, {"head_dim", 10}, {"rotary_dim", 6}, {"norm", 1}}}};
}

CaseGroup linear() {
  return {"linear",
          {{{"linear", {{"n", 576}, {"k", 576}}}, all(), {1, 65}},
           {{"linear", {{"n", 192}, {"k", 2304}}}, {1, 7, 64, 257}, {1}}}};
}

CaseGroup fused_linear() {
  const Fields behind{{"n", 200}, {"k", 896}, {"bias", 1}, {"residual", 1}};
  const std::vector<int64_t> lengths = {1, 7, 65, 257};
  return {
      "linear with all that is fused",
      {{{"linear", with(behind, {{"activation", "silu"}})}, lengths, lengths},
       {{"linear", {{"n", 300}, {"k", 96}, {"gated", 1}, {"activation", "gelu"}}}, lengths, lengths},
       {{"linear", {{"n", 150}, {"n2", 13}, {"n3", 100}, {"k", 37}, {"bias", 1}}}, lengths, lengths},
       {{"linear", {{"n", 72}, {"n2", 24}, {"k", 96}}}, {1, 16, 63, 257}},
       {{"linear", {{"n", 72}, {"k", 96}, {"scale", -2.5}, {"soft_cap", 1.5}, {"residual", 1}}}, lengths, {1, 65}}}};
}

/// A group for slow tests.
CaseGroup wide_fused_linear() {
  const std::vector<int64_t> lengths = {1, 16, 63, 257};
  return {"linear, wide and fused",
          {{{"linear", {{"n", 300}, {"k", 576}, {"gated", 1}, {"activation", "silu"}}}, lengths},
           {{"linear", {{"n", 576}, {"n2", 192}, {"n3", 200}, {"k", 576}, {"bias", 1}}}, lengths}}};
}

CaseGroup transposed_linear() {
  return {"linear, transposed",
          {{{"linear", {{"n", 72}, {"k", 96}, {"weight_layout", "transposed"}}}, {1, 17, 64, 130}, {1, 17, 130}},
           {{"linear", {{"n", 200}, {"k", 576}, {"weight_layout", "transposed"}, {"residual", 1}}}, {1, 17, 64, 257}}}};
}

/// Few rows for many experts, and blocks of several sizes for few.
CaseGroup grouped_linear() {
  const char* operation = "grouped_linear";
  const Fields many{{"experts", 64}, {"n", 40}, {"k", 48}};
  return {operation,
          {{{operation, {{"experts", 5}, {"n", 72}, {"k", 96}}}, all(), {1, 17, 257}},
           {{operation, many}, {1, 2, 33, 64, 257, 1000}, {1, 65, 257}},
           {{operation, with(many, {{"experts", 7}, {"gated", 1}, {"activation", "silu"}})}, {1, 17, 130}, {1, 130}},
           {{operation, {{"experts", 1}, {"n", 37}, {"k", 51}, {"activation", "relu_squared"}}}, {1, 65}, {1, 65}}}};
}

CaseGroup linear_wgrad() {
  const auto wgrad = [](int64_t n, int64_t k, bool accumulate, const char* gradient) {
    return KernelCase{"linear_wgrad", {{"n", n}, {"k", k}, {"accumulate", accumulate}, {"gradient", gradient}}};
  };
  return {"linear_wgrad",
          {{wgrad(72, 96, false, "operand"), {1, 17, 130}, {1, 17, 130}},
           {wgrad(37, 51, true, "f32"), {1, 33, 65, 1000}, {1, 65}},
           {wgrad(256, 136, true, "operand"), {1, 33, 200}, {33, 200}},
           {wgrad(576, 192, false, "operand"), all()},
           {wgrad(77, 301, false, "operand"), {1, 7, 64, 257}},
           {wgrad(33, 64, false, "f32"), {3, 65}}}};
}

KernelCase attention(int64_t heads, int64_t kv_heads, int64_t head_dim, const char* phase,
                     std::initializer_list<std::pair<const std::string, autotune::FieldValue>> more = {}) {
  return {"attention_forward",
          with({{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"phase", phase}}, more)};
}

CaseGroup prefill() { return {"attention prefill", {{attention(9, 3, 64, "prefill"), all(), {65}}}}; }
CaseGroup extend() { return {"attention extend", {{attention(9, 3, 64, "extend"), {1, 7, 64, 127}, {1, 7, 64, 127}}}}; }
CaseGroup decode() { return {"attention decode", {{attention(9, 3, 64, "decode"), all(), all()}}}; }

CaseGroup attention_variants() {
  const std::vector<int64_t> lengths = {1, 17, 65, 127};
  return {"attention variants",
          {{attention(2, 1, 64, "prefill", {{"window", 33}}), {1, 65, 127}, {1, 65, 127}},
           {attention(4, 2, 96, "prefill", {{"window", 40}}), lengths, {1, 65}},
           {attention(2, 1, 128, "prefill", {{"soft_cap", 10.0}, {"scale", 0.1}}), lengths, {1, 17, 65}},
           {attention(2, 1, 256, "prefill", {{"causal", 0}}), lengths, {1, 17, 65}},
           {attention(4, 1, 96, "extend", {{"window", 40}}), lengths},
           {attention(8, 1, 128, "decode", {{"window", 100}, {"soft_cap", 10.0}}), {1, 64, 257}, {1, 64, 257}},
           // On GPUs heads take turns in sections: two sections of 16, a group larger than a section, heads that no
           // section divides.
           {attention(32, 8, 16, "prefill"), {1, 130}, {130}},
           {attention(34, 2, 16, "prefill"), {65}, {65}},
           {attention(17, 17, 16, "prefill"), {65}, {65}},
           {attention(2, 1, 96, "decode"), few(), few()},
           {attention(2, 1, 256, "decode"), few(), few()}}};
}

CaseGroup attention_backward() {
  const auto backward = [](int64_t heads, int64_t kv_heads, int64_t head_dim, bool causal) {
    return KernelCase{"attention_backward",
                      {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"causal", causal}}};
  };
  return {"attention_backward",
          {{backward(4, 2, 64, true), {1, 17, 65}, {1, 17, 65}},
           {backward(2, 1, 32, false), {1, 33}, {1, 33}},
           {backward(2, 1, 128, true), {7, 70}, {7, 70}},
           {backward(9, 3, 64, true), {1, 2, 7, 16, 17, 64, 65, 127, 257}},
           {backward(2, 1, 96, false), {1, 17, 65}},
           {backward(2, 2, 128, true), {63, 127}}}};
}

/// The case as one of three ranks.
KernelCase of_rank(const char* operation, Fields fields) { return {operation, with(fields, {{"world_size", 3}})}; }

CaseGroup gathered_linear() {
  const char* operation = "fused_allgather_and_linear";
  return {operation,
          {{of_rank(operation, {{"n", 40}, {"n2", 24}, {"k", 48}, {"bias", 1}}), all(), {1, 17, 65, 127}},
           {of_rank(operation, {{"n", 40}, {"k", 48}, {"scale", 0.5}, {"soft_cap", 1.5}}), {1, 17, 65}, {17}}}};
}

/// The group has a norm after sums that travel in f32.
CaseGroup summed_linear() {
  CaseGroup group{"fused sums over ranks", {}};
  for (const char* operation : {"fused_linear_and_reducescatter", "linear_and_allreduce"})
    for (const bool is_f32 : {true, false})
      group.cases.push_back(
          {of_rank(operation,
                   {{"n", 40}, {"k", 48}, {"residual", 1}, {"norm", is_f32}, {"transport", is_f32 ? "f32" : "bf16"}}),
           all(),
           {1, 17, 65, 127}});
  group.cases.push_back(
      {of_rank("fused_linear_and_reducescatter", {{"n", 40}, {"k", 48}, {"residual", 1}, {"scale", 0.25}}),
       {1, 17, 65},
       {17}});
  return group;
}

CaseGroup collectives() {
  CaseGroup group{"collectives", {}};
  const std::vector<int64_t> lengths = {1, 3, 17, 64, 127};
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce", "broadcast"})
    group.cases.push_back({of_rank(operation, {{"n", 75}}), all(), lengths});
  for (const int64_t heads : {6, 7})
    for (const char* direction : {"to_heads", "to_sequence"})
      group.cases.push_back(
          {of_rank("all_to_all", {{"heads", heads}, {"head_dim", 20}, {"direction", direction}}), all(), lengths});
  return group;
}

CaseGroup context_attention() {
  const char* operation = "context_attention_forward";
  const Fields fields{{"heads", 4}, {"kv_heads", 2}, {"head_dim", 24}, {"lse", 1}};
  return {operation,
          {{of_rank(operation, with(fields, {{"layout", "zigzag"}})), {1, 2, 7, 17, 65, 127}, {1, 17, 127}},
           {of_rank(operation, with(fields, {{"layout", "contiguous"}})), {2, 65, 127}, {65}},
           {of_rank(operation, with(fields, {{"layout", "contiguous"}, {"causal", 0}})), {2, 65, 127}}}};
}

CaseGroup context_attention_backward() {
  const char* operation = "context_attention_backward";
  const Fields fields{{"heads", 4}, {"kv_heads", 2}, {"head_dim", 24}};
  return {operation,
          {{of_rank(operation, with(fields, {{"layout", "zigzag"}})), {1, 2, 17, 65, 97, 127}, {1, 17, 97}},
           {of_rank(operation, with(fields, {{"layout", "contiguous"}})), {2, 65}, {65}},
           {of_rank(operation, with(fields, {{"layout", "contiguous"}, {"causal", 0}})), {2, 65}}}};
}

CaseGroup alltoall_linear() {
  const char* operation = "fused_alltoall_and_linear";
  const Fields fields{{"head_dim", 8}, {"n", 40}, {"bias", 1}, {"residual", 1}};
  return {operation,
          {{of_rank(operation, with(fields, {{"heads", 7}})), all(), {1, 17, 127}},
           {of_rank(operation, with(fields, {{"heads", 6}})), {2, 65, 127}}}};
}

CaseGroup linear_alltoall() {
  const char* operation = "fused_linear_and_alltoall";
  const Fields fields{{"heads", 8}, {"head_dim", 8}, {"k", 40}, {"bias", 1}};
  return {operation,
          {{of_rank(operation, with(fields, {{"kv_heads", 4}})), all(), {1, 17, 127}},
           {of_rank(operation, with(fields, {{"kv_heads", 2}})), {2, 65, 127}}}};
}

CaseGroup norm_backward_over_ranks() {
  const char* operation = "sequence_parallel_rms_norm_backward";
  return {operation, {{of_rank(operation, {{"n", 75}, {"residual", 1}}), {1, 2, 17, 65, 127}, {1, 17}}}};
}

CaseGroup matmul_backward() {
  const char *trailing = "sequence_parallel_trailing_matmul_backward",
             *leading = "sequence_parallel_leading_matmul_backward";
  const Fields one{{"n", 40}, {"k", 49}}, two = with(one, {{"n2", 24}});
  const Fields main{{"n", 40}, {"k", 49}, {"accumulate", 1}, {"gradient", "f32"}};
  return {"matmul backward",
          {{of_rank(trailing, one), {1, 2, 17, 65, 127}, {65}},
           {of_rank(trailing, main), {2, 3, 17, 64}, {3}},
           {of_rank(leading, two), {1, 2, 17, 65, 127}, {65}},
           {of_rank(leading, with(main, {{"n2", 24}, {"transport", "bf16"}})), {2, 3, 17, 64}, {3}}}};
}

}  // namespace

const std::vector<CaseGroup>& kernel_table() {
  static const std::vector<CaseGroup> table = {
      rms_norm(),
      rms_norm_backward(),
      layer_norm(),
      softmax(),
      act_and_mul(),
      act_and_mul_backward(),
      embedding(),
      rope(),
      linear(),
      fused_linear(),
      wide_fused_linear(),
      transposed_linear(),
      grouped_linear(),
      linear_wgrad(),
      prefill(),
      extend(),
      decode(),
      attention_variants(),
      attention_backward(),
  };
  return table;
}

const std::vector<CaseGroup>& rank_table() {
  static const std::vector<CaseGroup> table = {gathered_linear(),
                                               summed_linear(),
                                               collectives(),
                                               context_attention(),
                                               alltoall_linear(),
                                               linear_alltoall(),
                                               context_attention_backward(),
                                               norm_backward_over_ranks(),
                                               matmul_backward()};
  return table;
}

const std::vector<TableCase>& cases_of(const std::string& group) {
  for (const auto* table : {&kernel_table(), &rank_table()}) {
    const auto found = std::ranges::find(*table, group, &CaseGroup::name);
    if (found != table->end()) return found->cases;
  }
  FAIL("no cases of " << group);
  throw std::logic_error(group);
}

void check_on_cpus(const std::string& group) {
  for (const TableCase& c : cases_of(group))
    for (const DType dtype : kKernelDTypes) check_compiled(c.kernel, dtype, c.lengths);
}

void check_all_on_cpus(const std::string& group) {
  for (const TableCase& c : cases_of(group))
    for (const DType dtype : kKernelDTypes) check_compiled_at_all(c.kernel, dtype, c.lengths);
}

void simulate_few(const std::string& group) {
  for (const TableCase& c : cases_of(group))
    for (const DType dtype : kKernelDTypes) check_simulated(c.kernel, dtype, c.few);
}

void simulate_all(const std::string& group) {
  for (const TableCase& c : cases_of(group))
    for (const DType dtype : kKernelDTypes) check_simulated(c.kernel, dtype, c.lengths);
}

}  // namespace seqtile::testing
