// kernels/op/typed_op.h -- the OpDef of an operation that is one type.
// SPDX-License-Identifier: Apache-2.0
//
// The struct declares its fields (op_fields.h) and tensors (op_tensors.h) and computes one row in double. Everything
// else that does not depend on how a kernel is cut into programs follows.
#pragma once
#include <string>
#include <utility>

#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/op/workload_reader.h"

namespace seqtile::kernels {

/// Op with the fields that somebody gives. Errors: those of the reader.
template <class Op>
Op read_fields(WorkloadReader& reader) {
  Op op;
  dtype_of(op) = reader.dtype();
  FieldReader fields(reader);
  op.fields(fields);
  return op;
}

/// Fills weights and indices as the declaration of the tensor says; false for every other tensor. Lists of rows have
/// equal lengths and lie one after the other.
bool fill_as_declared(const SchemaMaker& declared, const autotune::Problem& p, size_t arg, uint64_t seed);

/// typed_op() without the reference, for operations whose reference needs more than their tensors.
template <class Op>
autotune::OpDef typed_op_without_reference(std::string summary, int64_t version = 1) {
  using autotune::Problem;
  using autotune::Workload;
  autotune::OpDef op;
  op.name = Op::kName;
  op.version = version;
  op.summary = std::move(summary);
  op.normalize = [](const Workload& given) {
    WorkloadReader reader(given);
    read_fields<Op>(reader);
    return reader.finish();
  };
  op.schema = [](const Workload& w) { return schema_of(op_of<Op>(w)).schema; };
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    const Op self = op_of<Op>(*p.workload);
    const SchemaMaker declared = schema_of(self);
    if constexpr (requires { self.fill("", tensors_of(self, p.tensors)); })
      if (self.fill(declared.schema.args[arg].name, tensors_of(self, p.tensors))) return true;
    return fill_as_declared(declared, p, arg, seed);
  };
  op.tolerance = [](const Workload& w, [[maybe_unused]] std::span<const int64_t> symbols) {
    if constexpr (requires(const Op& self) { self.tolerance(); }) return op_of<Op>(w).tolerance();
    else if constexpr (requires(const Op& self) { self.tolerance(symbols[0]); })
      return op_of<Op>(w).tolerance(symbols[0]);
    else if constexpr (requires(const Op& self) { self.tolerance(symbols); }) return op_of<Op>(w).tolerance(symbols);
    else return tolerance(w.dtype, 1);
  };
  if constexpr (requires(const Op& self) { self.flops(int64_t{}); })
    op.cost = [](const Workload& w, std::span<const int64_t> symbols) { return cost_of(op_of<Op>(w), symbols[0]); };
  return op;
}

/// normalize, schema, fill, reference, tolerance and cost of Op, which has
///   void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
///     or of several: (t, std::span<const int64_t> rows, out)
///   autotune::OpDef::Tolerance tolerance() const;  // or of a length, or of all symbols; absent: of one rounding
///   double flops(int64_t length) const;            // absent: the cost is given elsewhere
///   bool fill(std::string_view arg, const Tensors<Tensor>& t) const;  // absent: nothing is filled but as declared
template <class Op>
autotune::OpDef typed_op(std::string summary, int64_t version = 1) {
  using autotune::Problem;
  autotune::OpDef op = typed_op_without_reference<Op>(std::move(summary), version);
  op.reference = [](const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
    const Op self = op_of<Op>(*p.workload);
    const auto tensors = tensors_of(self, p.tensors);
    typename Op::template Tensors<std::vector<double>> out;
    if constexpr (requires { self.reference(tensors, rows, out); }) self.reference(tensors, rows, out);
    else
      for (const int64_t row : rows) self.reference(tensors, row, out);
    outputs.clear();
    OutputCollector collector(outputs);
    self.tensors(collector, out);
  };
  return op;
}

}  // namespace seqtile::kernels
