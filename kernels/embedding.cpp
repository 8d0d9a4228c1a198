// kernels/embedding.cpp -- see embedding.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/row_kernel.h"
#include "kernels/tensor_values.h"
#include "kernels/tolerance.h"
#include "kernels/workload_reader.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;

namespace {

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("vocab", 1, int64_t{1} << 30);
  reader.required("n", 1, kMaxFeatures);
  reader.number("scale", 1, 1e-6, 1e6);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"ids", ArgRole::input, DType::i32, {"length"}});
  schema.args.push_back({"table", ArgRole::weight, w.dtype, {w.fields.get_int("vocab"), n}});
  schema.args.push_back({"y", ArgRole::output, w.dtype, {"length", n}});
  schema.indices.push_back({.arg = "ids", .limit = w.fields.get_int("vocab")});
  return schema;
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows");
  const double scale = w.fields.get_double("scale", 1);
  Var ids = b.view("ids", DType::i32, {kDynamic});
  Var table = b.view("table", w.dtype, {w.fields.get_int("vocab"), n}), y = b.view("y", w.dtype, {kDynamic, n});

  Var row = b.program_id(0) * rows;
  Var value = b.gather(table, b.load(ids, {row}, {rows}), 0, n);
  if (scale != 1) value = to_storage(b, to_f32(b, value) * scale, w.dtype);
  b.store(y, {row, 0}, value);
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {elements, bytes + 4 * static_cast<double>(symbols[0]), bytes};
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const double scale = p.workload->fields.get_double("scale", 1);
  const Tensor& table = p.tensors[1];
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    const int64_t id = read_index(p.tensors[0], row);
    const bool known = id >= 0 && id < table.sizes[0];
    const std::vector<double> values =
        known ? read_row(table, id) : std::vector<double>(static_cast<size_t>(table.sizes[1]), 0.0);
    for (const double value : values) outputs[0].push_back(scale * value);
  }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (arg != 0) return false;
  fill_uniform_int(p.tensors[0], 0, p.workload->fields.get_int("vocab") - 1, seed);
  return true;
}

}  // namespace

autotune::OpDef embedding() {
  autotune::OpDef op;
  op.name = "embedding";
  op.summary = "rows of a table by token id";
  op.normalize = normalize;
  op.schema = schema;
  define_row_kernel(
      op, [](const Workload& w) { return w.fields.get_int("n"); }, cost);
  // The rest of the table only takes memory.
  op.gpu_samples = [](const Workload& w, const Config& config, int64_t) {
    Workload small = w;
    small.fields.set("vocab", std::min<int64_t>(w.fields.get_int("vocab"), 512));
    return std::vector<autotune::GpuSample>{{small, config.get_int("rows"), 1}};
  };
  op.build = build;
  op.fill = fill;
  op.reference = reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, 1); };
  return op;
}

}  // namespace seqtile::kernels
