// include/seqtile/kernel.h -- what the kernel of an operation is made of, for authors of kernels.
// SPDX-License-Identifier: Apache-2.0
//
// row_kernel<Op>() and tile_kernel<Op>() make an OpDef of a struct; typed_op<Op>() makes the parts that do not depend
// on how a kernel is cut into programs. docs/add_a_kernel.md shows both.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/op.h"
#include "seqtile/operation.h"
#include "seqtile/tensor.h"

namespace seqtile::kernels {

// Tolerances against the f64 reference: every operation takes them from tolerance().

/// Relative distance between neighbours of a storage format: the result's own rounding is half of it.
constexpr double storage_epsilon(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-23;
}

/// For results of order 1 that are sums of `k` products accumulated in f32 (k = 1: elementwise) and rounded to `dtype`
/// once. Rounding errors of a sum add up like a random walk, hence sqrt(k); 2 ulp for each transcendental function.
inline autotune::OpDef::Tolerance tolerance(DType dtype, int64_t k) {
  const double sum = 0x1p-22 * (4 + std::sqrt(static_cast<double>(k)));
  return {sum, dtype == DType::f32 ? 0x1p-19 : 0.75 * storage_epsilon(dtype)};
}

/// Sums of order 1 may differ by this where GPUs round the operands of f32 products to ten bits of mantissa: it is five
/// standard deviations.
constexpr double kTf32Error = 0x1p-9;

/// Reads the static fields of a workload strictly, as every operation's normalize() does: defaults are filled in,
/// values out of range and unknown names are refused with field, value, limit and next step. The result names every
/// field of the operation but those that came late and have their default. Errors: invalid_argument. The element type
/// must be f32, bf16 or f16, threads at least 1.
class WorkloadReader final : public FieldVisitor {
 public:
  explicit WorkloadReader(const autotune::Workload& given);
  DType dtype() const { return given_.dtype; }
  void integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) override;
  void number(std::string_view name, double& value, double lo, double hi) override;
  void late_number(std::string_view name, double& value, double fallback, double lo, double hi) override;
  /// Where a required field was missing so far, finish() refuses that one.
  void refuse(std::string_view name, const std::string& reason) override;
  void absent(std::string_view name, const std::string& reason) override;

  /// The complete workload. Errors: a field that no call above asked for, or a missing one.
  autotune::Workload finish() const;

 private:
  void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) override;
  const autotune::FieldValue* given(std::string_view name) const;  ///< null: the workload does not name it
  [[noreturn]] void fail(std::string_view name, const std::string& reason) const;

  const autotune::Workload& given_;
  autotune::Workload result_;
  std::vector<std::string> left_out_;  ///< fields that were asked for all the same
  std::string missing_;                ///< the first required field that is not given
  std::string missing_reason_;
};

// The parameters of a configuration are declared once, as members of Op::Tile, and named in one place:
//
//   struct Tile { int64_t block_m = 0, block_n = 0; std::optional<int64_t> num_warps = {}; };
//   void parameters(auto& v, auto& tile) const {
//     v("block_m", tile.block_m);
//     v("num_warps", tile.num_warps);  // of GPUs: not in every configuration
//   }
//
// A tile whose parameters depend on its form has `Config config() const` and `static Tile from(const Config&)` instead.

/// Writes the parameters that are there.
class ParameterWriter {
 public:
  void operator()(const char* name, int64_t value) { config.set(name, value); }
  void operator()(const char* name, const std::optional<int64_t>& value) {
    if (value) config.set(name, *value);
  }
  autotune::Config config;
};

/// Errors: invalid_argument where a parameter is missing that every configuration has.
class ParameterReader {
 public:
  explicit ParameterReader(const autotune::Config& config) : config_(config) {}
  void operator()(const char* name, int64_t& value) const { value = config_.get_int(name); }
  void operator()(const char* name, std::optional<int64_t>& value) const {
    if (config_.contains(name)) value = config_.get_int(name);
  }

 private:
  const autotune::Config& config_;
};

template <class Op>
autotune::Config config_of(const Op& op, const typename Op::Tile& tile) {
  if constexpr (requires { tile.config(); }) {
    return tile.config();
  } else {
    ParameterWriter writer;
    op.parameters(writer, tile);
    return writer.config;
  }
}

template <class Op>
typename Op::Tile tile_of(const Op& op, const autotune::Config& config) {
  if constexpr (requires { Op::Tile::from(config); }) {
    return Op::Tile::from(config);
  } else {
    typename Op::Tile tile;
    const ParameterReader reader(config);
    op.parameters(reader, tile);
    return tile;
  }
}

// typed_op() makes the OpDef of an operation that is one type.
//
// The struct declares its fields and tensors (seqtile/operation.h) and computes one row in double. Everything
// else that does not depend on how a kernel is cut into programs follows.

/// Op with the fields that somebody gives. Errors: those of the reader.
template <class Op>
Op read_fields(WorkloadReader& reader) {
  Op op;
  dtype_of(op) = reader.dtype();
  op.fields(reader);
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
  op.fields = list_fields<Op>;
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

// tile_kernel() makes the OpDef of an operation that is one type and whose configurations are tiles.
//
// A row kernel has one parameter and one model of its time. An operation whose programs take tiles says
// itself which tiles there are and what they cost; how its members become an OpDef is the same for all.

/// A setting is what tiles are chosen for: calls of about one length, on a target.
struct Setting {
  int64_t length;
  int threads;  ///< of a CPU
  const Target& target;
};

/// The tile that the model finds fastest, the first of several. Errors: those of refuse().
template <class Op>
typename Op::Tile default_tile(const Op& op, const Setting& setting) {
  const std::vector<typename Op::Tile> tiles = op.tiles(setting);
  if (tiles.empty()) op.refuse(setting.target);
  const auto us = [&](const typename Op::Tile& tile) {
    return setting.target.is_gpu() ? autotune::predict_us(op.gpu_work(tile, setting), setting.target.gpu)
                                   : op.predict_us(tile, setting);
  };
  return std::ranges::min(tiles, {}, us);
}

/// All members of Op's OpDef. Beside what typed_op() needs it has `Tile` and `parameters`, and
///   std::vector<Tile> tiles(const Setting& s) const;                       // worth measuring
///   [[noreturn]] void refuse(const Target& target) const;                  // no tile fits
///   double predict_us(const Tile& tile, const Setting& s) const;           // on a CPU
///   autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
///   std::vector<autotune::GpuSample> gpu_samples(const Tile& tile, int64_t length) const;  // absent: none
///   std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
///   std::vector<autotune::Workspace> workspaces(const Tile& tile) const;   // absent: none
///   std::vector<int64_t> symbols(int64_t length) const;                    // of a usual call; absent: {length}
///   double flops(std::span<const int64_t> symbols) const;                  // or of a length; absent: see typed_op()
///   double unread_bytes(std::span<const int64_t> symbols) const;           // absent: all inputs are read
///   void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
template <class Op>
autotune::OpDef tile_kernel(std::string summary, int64_t version = 1) {
  using autotune::Config;
  using autotune::Workload;
  using Tile = typename Op::Tile;
  autotune::OpDef op = typed_op<Op>(std::move(summary), version);
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    autotune::ConfigSpace space;
    for (const Tile& tile : self.tiles({length, w.threads, target})) space.add(config_of(self, tile));
    return space;
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    return config_of(self, default_tile(self, {length, w.threads, target}));
  };
  op.predict_us = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    return self.predict_us(tile_of(self, config), {length, w.threads, target});
  };
  op.gpu_work = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    return self.gpu_work(tile_of(self, config), {length, w.threads, target});
  };
  if constexpr (requires(const Op& self) { self.gpu_samples(Tile(), int64_t{}); })
    op.gpu_samples = [](const Workload& w, const Config& config, int64_t length) {
      const Op self = op_of<Op>(w);
      auto samples = self.gpu_samples(tile_of(self, config), length);
      for (autotune::GpuSample& sample : samples) sample.workload.threads = w.threads;
      return samples;
    };
  op.grid = [](const Workload& w, const Config& config) {
    const Op self = op_of<Op>(w);
    return self.grid(tile_of(self, config));
  };
  if constexpr (requires(const Op& self) { self.workspaces(Tile()); })
    op.workspaces = [](const Workload& w, const Config& config) {
      const Op self = op_of<Op>(w);
      return self.workspaces(tile_of(self, config));
    };
  if constexpr (requires(const Op& self) { self.symbols(int64_t{}); })
    op.symbols = [](const Workload& w, int64_t length) { return op_of<Op>(w).symbols(length); };
  if constexpr (requires(const Op& self, std::span<const int64_t> symbols) { self.flops(symbols); })
    op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
      const Op self = op_of<Op>(w);
      autotune::Cost cost = traffic_of(schema_of(self).schema, symbols);
      cost.flops = self.flops(symbols);
      if constexpr (requires { self.unread_bytes(symbols); }) cost.bytes_read -= self.unread_bytes(symbols);
      return cost;
    };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    const Op self = op_of<Op>(w);
    const auto views = views_of(self, b);
    self.build(b, views, tile_of(self, config), target);
  };
  return op;
}

// A program of a row kernel takes a block of whole rows.
//
// Norms, softmax, activations, rope and embedding read [rows, n] tiles, compute in f32 and write whole rows back. Their
// only parameter is `rows`, the rows of one program. They are bound by memory bandwidth: few rows keep a program's
// tile in the first-level cache, many rows keep the number of programs small.

constexpr int64_t kMaxFeatures = int64_t{1} << 20;  ///< columns of a row, weights' dimensions
constexpr int64_t kMaxHeads = 1024;

/// A value in f32 for computing, and back in the storage format.
inline Var to_f32(KernelBuilder& b, Var value) {
  return value.type().dtype == DType::f32 ? value : b.cast(value, DType::f32);
}
inline Var to_storage(KernelBuilder& b, Var value, DType dtype) {
  return value.type().dtype == dtype ? value : b.cast(value, dtype);
}
/// [rows] -> [rows, n], each value repeated along its row.
inline Var across(KernelBuilder& b, Var column, int64_t rows, int64_t n) {
  return b.broadcast(b.expand(column, 1), {rows, n});
}
/// [n] -> [rows, n], the same values in every row.
inline Var down(KernelBuilder& b, Var row, int64_t rows, int64_t n) { return b.broadcast(b.expand(row, 0), {rows, n}); }

/// Fills in the members of `op` that all row kernels have in common: configuration space, default, predictions, grid;
/// and cost, which they need. `tile_columns`: f32 values that a program's tiles hold for each row.
void define_row_kernel(autotune::OpDef& op, int64_t (*tile_columns)(const autotune::Workload&),
                       autotune::Cost (*cost)(const autotune::Workload&, std::span<const int64_t> symbols));

/// Bytes of the tensors that have a row for each row of the call, and operations on them.
autotune::Cost row_cost(const autotune::Schema& schema, int64_t length, double flops_a_row);

/// The OpDef of a row kernel that is one type: beside what typed_op() needs it has
///   int64_t tile_columns() const;
///   double flops_a_row() const;
///   int64_t gathered_bytes_a_row() const;  // absent: no row is read from a tensor of another length
///   void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;  // of one program
template <class Op>
autotune::OpDef row_kernel(std::string summary, int64_t version = 1) {
  using autotune::Workload;
  autotune::OpDef op = typed_op<Op>(std::move(summary), version);
  define_row_kernel(
      op, [](const Workload& w) { return op_of<Op>(w).tile_columns(); },
      [](const Workload& w, std::span<const int64_t> symbols) {
        const Op self = op_of<Op>(w);
        autotune::Cost cost = row_cost(schema_of(self).schema, symbols[0], self.flops_a_row());
        if constexpr (requires { self.gathered_bytes_a_row(); })
          cost.bytes_read += static_cast<double>(symbols[0] * self.gathered_bytes_a_row());
        return cost;
      });
  op.build = [](KernelBuilder& b, const Workload& w, const autotune::Config& config, const Target&) {
    const Op self = op_of<Op>(w);
    const auto views = views_of(self, b);
    self.build(b, views, config.get_int("rows"));
  };
  return op;
}

}  // namespace seqtile::kernels
