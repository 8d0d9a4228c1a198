// kernels/rows/embedding.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <algorithm>

#include "seqtile/kernel.h"

namespace seqtile::kernels {

void Embedding::fields(FieldVisitor& v) {
  v.integer("vocab", vocab, 1, int64_t{1} << 30);
  v.integer("n", n, 1, kMaxFeatures);
  v.number("scale", scale, 1e-6, 1e6);
}

void Embedding::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  Var row = b.program_id(0) * rows;
  Var value = b.gather(v.table, b.load(v.ids, {row}, {rows}), 0, n);
  if (scale != 1) value = to_storage(b, to_f32(b, value) * scale, dtype);
  b.store(v.y, {row, 0}, value);
}

void Embedding::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  const int64_t id = read_index(t.ids, row);
  const bool is_known = id >= 0 && id < vocab;
  const std::vector<double> values =
      is_known ? read_row(t.table, id) : std::vector<double>(static_cast<size_t>(n), 0.0);
  for (const double value : values) out.y.push_back(scale * value);
}

autotune::OpDef embedding() {
  autotune::OpDef op = row_kernel<Embedding>("rows of a table by token id");
  // The rest of the table only takes memory.
  op.gpu_samples = [](const autotune::Workload& w, const autotune::Config& config, int64_t) {
    Embedding small = op_of<Embedding>(w);
    small.vocab = std::min<int64_t>(small.vocab, 512);
    autotune::Workload sample = small.workload();
    sample.threads = w.threads;
    return std::vector<autotune::GpuSample>{{sample, config.get_int("rows"), 1}};
  };
  return op;
}

}  // namespace seqtile::kernels
