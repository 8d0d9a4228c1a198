// kernels/seqpar/operations/matmul_backward.cpp -- see matmul_backward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/operations/matmul_backward.h"

#include <algorithm>

#include "kernels/linear/linear_tile.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tolerance.h"
#include "kernels/op/workload_reader.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "kernels/seqpar/rank_call.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;
using linear_op::numbered;
using matmul_backward_op::Schedule;
using matmul_backward_op::Shape;

namespace {

constexpr const char *kTrailing = "sequence_parallel_trailing_matmul_backward",
                     *kLeading = "sequence_parallel_leading_matmul_backward";

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  reader.required("n", 1, kMaxFeatures);
  reader.required("k", 1, kMaxFeatures);
  if (given.operation == kLeading) {
    const int64_t n2 = reader.integer("n2", 0, 0, kMaxFeatures), n3 = reader.integer("n3", 0, 0, kMaxFeatures);
    if (n3 && !n2) reader.refuse("n3", "needs n2: weights are numbered without gaps");
    reader.choice("transport", {"f32", "bf16", "f16"});
  }
  reader.flag("accumulate");
  reader.choice("gradient", {"operand", "f32"});
  return reader.finish();
}

Schema schema_of(const Workload& w) {
  const Shape s(w);
  Schema schema;
  const auto add = [&](const std::string& name, ArgRole role, DType dtype, autotune::Dim rows, int64_t columns) {
    schema.args.push_back({name, role, dtype, {std::move(rows), columns}});
  };
  const auto add_each = [&](const char* name, ArgRole role, DType dtype) {
    for (size_t i = 0; i < s.n.size(); ++i) add(numbered(name, static_cast<int>(i)), role, dtype, s.n[i], s.k);
  };
  if (s.is_trailing) add("dz", ArgRole::input, s.dtype, "own_rows", s.n[0]);
  for (size_t i = 0; !s.is_trailing && i < s.n.size(); ++i)
    add(numbered("dy", static_cast<int>(i)), ArgRole::input, s.dtype, "length", s.n[i]);
  add_each("w", ArgRole::weight, s.dtype);
  add(s.is_trailing ? "u" : "x", ArgRole::input, s.dtype, s.is_trailing ? "length" : "own_rows", s.k);
  if (s.accumulate) add_each("before", ArgRole::input, s.dw_dtype);
  add(s.is_trailing ? "du" : "dx", ArgRole::output, s.dtype, s.is_trailing ? "length" : "own_rows", s.k);
  add_each("dw", ArgRole::output, s.dw_dtype);
  for (size_t i = 0; s.accumulate && i < s.n.size(); ++i)
    schema.args[schema.args.size() - s.n.size() + i].in_place = {numbered("before", static_cast<int>(i))};
  schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

autotune::OpDef::Tolerance tolerance_of(const Workload& w, int64_t length) {
  const Shape s(w);
  const autotune::OpDef::Tolerance over_rows = tolerance(s.dw_dtype, length);
  autotune::OpDef::Tolerance result = tolerance(s.dtype, s.depth() * (s.is_trailing ? 1 : s.world_size));
  if (!s.is_trailing && s.transport != DType::f32)  // each partial sum is rounded: see fused_linear.cpp
    result.absolute += storage_epsilon(s.transport) * s.world_size;
  return {std::max(result.absolute, over_rows.absolute), std::max(result.relative, over_rows.relative)};
}

/// Both products; of what is gathered the rows of all ranks are read, of what is summed up the own ones are written.
autotune::Cost cost_of(const Workload& w, std::span<const int64_t> symbols) {
  const Shape s(w);
  const double rows = static_cast<double>(symbols[0]), n = static_cast<double>(s.depth()), k = static_cast<double>(s.k);
  const double bytes = static_cast<double>(dtype_bytes(s.dtype)), own = static_cast<double>(symbols[1]);
  const double dw_bytes = n * k * static_cast<double>(dtype_bytes(s.dw_dtype));
  return {4 * rows * n * k, (rows * (n + k) + n * k) * bytes + (s.accumulate ? dw_bytes : 0),
          (s.is_trailing ? rows : own) * k * bytes + dw_bytes};
}

/// The fields of both operations, from an argument struct.
template <class Op>
Workload workload_of(const char* name, const Op& op, const Ranks& ranks) {
  return {name,
          op.dtype,
          1,
          {{"world_size", int64_t{ranks.world_size}},
           {"fabric", ranks.fabric},
           {"n", op.n},
           {"k", op.k},
           {"accumulate", int64_t{op.accumulate}},
           {"gradient", std::string(op.f32_gradient ? "f32" : "operand")}}};
}

autotune::OpDef base(const char* name, const char* summary) {
  autotune::OpDef op;
  op.version = 5;
  op.name = name;
  op.summary = summary;
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = [](const Workload& w, int64_t length) {
    return symbols_of(w, length, true, matmul_backward_exchange(w));
  };
  add_rank_call(op);
  op.config_space = matmul_backward_op::config_space;
  op.default_config = matmul_backward_op::default_config;
  op.predict_us = matmul_backward_op::predict_us;
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {num_programs(Shape(w), Schedule::from(c)), {}, {}};
  };
  op.cost = cost_of;
  op.fill = matmul_backward_op::fill;
  op.reference = matmul_backward_op::reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t> symbols) { return tolerance_of(w, symbols[0]); };
  return op;
}

}  // namespace

namespace matmul_backward_op {

Shape::Shape(const Workload& w)
    : is_trailing(w.operation == kTrailing),
      world_size(world_size_of(w)),
      n{w.fields.get_int("n")},
      k(w.fields.get_int("k")),
      accumulate(w.fields.get_int("accumulate") != 0),
      dtype(w.dtype),
      dw_dtype(w.fields.get_string("gradient") == "f32" ? DType::f32 : w.dtype),
      transport(is_trailing ? w.dtype : parse_dtype(w.fields.get_string("transport")).value()) {
  for (const char* field : {"n2", "n3"})
    if (const int64_t rows = w.fields.get_int(field, 0)) n.push_back(rows);
}

int64_t Shape::depth() const {
  int64_t sum = 0;
  for (const int64_t rows : n) sum += rows;
  return sum;
}

std::vector<LinearWgrad> Shape::gradients() const {
  std::vector<LinearWgrad> gradients;
  for (const int64_t rows : n) gradients.push_back(wgrad(rows));
  return gradients;
}

ExchangeShape exchange_of(const Shape& s, int64_t identity, int64_t chunk_rows) {
  using Rows = PhaseShape::Rows;
  ExchangeShape shape{s.world_size, identity, {}};
  shape.phases.push_back({Rows::of_source, s.dtype, s.is_trailing ? s.n[0] : s.k, chunk_rows});
  if (!s.is_trailing) shape.phases.push_back({Rows::of_owner, s.transport, s.k, chunk_rows});
  return shape;
}

PartialShape partials_of(const Shape& s, const linear_op::Tile& dgrad) {
  return {dgrad.block_m, linear_op::column_blocks(s.dgrad(), dgrad.block_n),
          s.k,           1,
          s.transport,   s.dtype,
          false,         fills_registers(dgrad, 1)};
}

}  // namespace matmul_backward_op

ExchangeShape matmul_backward_exchange(const Workload& w, int64_t chunk_rows) {
  return matmul_backward_op::exchange_of(Shape(w), 0, chunk_rows);
}

Workload SequenceParallelTrailingMatmulBackward::workload(const Ranks& ranks) const {
  return workload_of(kTrailing, *this, ranks);
}

Workload SequenceParallelLeadingMatmulBackward::workload(const Ranks& ranks) const {
  Workload w = workload_of(kLeading, *this, ranks);
  w.fields.set("n2", n2);
  w.fields.set("n3", n3);
  w.fields.set("transport", std::string(dtype_name(transport)));
  return w;
}

autotune::OpDef sequence_parallel_trailing_matmul_backward() {
  autotune::OpDef op = base(kTrailing, "gather(dz) w and gather(dz)^T u, in one launch of each rank");
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    build_trailing(b, Shape(w), Schedule::from(c), identity_of(w, c));
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  return op;
}

autotune::OpDef sequence_parallel_leading_matmul_backward() {
  autotune::OpDef op =
      base(kLeading, "own rows of the sum over ranks of dy w, and dy^T gather(x), in one launch of each");
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    build_leading(b, Shape(w), Schedule::from(c), identity_of(w, c));
  };
  op.workspaces = [](const Workload& w, const Config& c) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), ReduceForm::scatter, world_size_of(w))}};
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar
