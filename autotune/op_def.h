// autotune/op_def.h -- an operation: schema, kernel, configuration space, cost, reference, tolerance.
// SPDX-License-Identifier: Apache-2.0
//
// The library's own operations and a user's are defined the same way: fill in an OpDef and put it into a Registry. The
// kernel's parameters are, in this order: the tensors of the schema, the workspaces, the run-time scalars. Dimensions
// of tensors are static numbers or named run-time symbols; symbol 0 is always "length", the bucketed dimension.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/config_space.h"
#include "autotune/fields.h"
#include "autotune/gpu_model.h"
#include "jit/device/kernel.h"
#include "jit/device/target.h"
#include "jit/device/tensor.h"
#include "jit/fabric/core/channel.h"

namespace seqtile {
// Authors of kernels include jit/ir/builder.h; users of operations need nothing of it.
class KernelBuilder;
class Var;
namespace ir {
class Function;
}
}  // namespace seqtile

namespace seqtile::autotune {

/// A dimension: a static size, or the run-time symbol `symbol` (with `size` added: {"batch", 1} is batch + 1).
struct Dim {
  std::string symbol;  ///< empty: static
  int64_t size = 0;
  Dim(int64_t static_size) : size(static_size) {}                        // NOLINT
  Dim(int static_size) : size(static_size) {}                            // NOLINT
  Dim(const char* name, int64_t plus = 0) : symbol(name), size(plus) {}  // NOLINT
};

enum class ArgRole { input, output, weight };

struct ArgSpec {
  std::string name;
  ArgRole role = ArgRole::input;
  DType dtype = DType::f32;
  std::vector<Dim> dims;
  int alignment = 0;   ///< bytes that base and row strides must keep; 0: the element size
  bool dense = false;  ///< no gaps within one index of the first dimension
  /// i64 words, some of them addresses inside other tensors of the call: they change where tensors are copied.
  bool holds_addresses = false;
  bool is_size_only = false;  ///< nothing reads its elements
  /// Of an output: the inputs that may be the same tensor, or whole rows of it where they have fewer. An output must
  /// not overlap any other tensor of the call, nor itself.
  std::vector<std::string> in_place = {};
};

/// What the numbers of an i32 or i64 input are: rows of another tensor. A call on a CPU whose numbers lead out of that
/// tensor is refused before anything is launched. The host does not read tensors of a GPU: a kernel for GPUs has to
/// stay inside its tensors by itself, whatever the numbers are.
struct IndexRule {
  enum class Kind {
    places,   ///< each number is a row: 0 <= arg[i] < limit
    borders,  ///< list i has the rows arg[i] .. arg[i + 1] - 1: the numbers rise from 0 or more to `limit` or less
    spans,    ///< list i has the rows arg[i] .. arg[i] + counts[i] - 1, all of them below `limit`
  };
  Kind kind = Kind::places;
  std::string arg;          ///< its dtype is i32 or i64; of borders and spans its rank is 1
  Dim limit = 0;            ///< how many rows there are
  std::string counts = {};  ///< of spans: the argument that has the numbers of rows
  /// Rows of a list, of borders and spans.
  int64_t least = 0;
  std::optional<Dim> most = {};
  bool is_disjoint = false;  ///< no row is in two spans: programs write them
};

/// constant * product over terms of ceil(symbol / divisor), plus `more`: one grid axis, or the elements of a workspace.
struct SizeExpr {
  struct Term {
    int symbol = 0;  ///< index into Schema::symbols
    int64_t divisor = 1;
    int64_t plus = 0;  ///< added to the symbol before the division
  };
  int64_t constant = 1;
  std::vector<Term> terms;
  int64_t more = 0;
  int64_t value(std::span<const int64_t> symbols) const {
    int64_t result = constant;
    for (const Term& t : terms) result *= (symbols[t.symbol] + t.plus + t.divisor - 1) / t.divisor;
    return result + more;
  }
};

/// Scratch memory of one call, zero when it is first handed out; the kernel leaves zero what it needs to be zero.
struct Workspace {
  std::string name;
  DType dtype = DType::f32;
  SizeExpr elements;  ///< the kernel sees a view of rank 1
};

/// What a workload fixes about its calls.
struct Schema {
  std::vector<std::string> symbols{"length"};  ///< run-time sizes, bound by the tensors' dims in order of appearance
  std::vector<ArgSpec> args;
  int64_t least_length = 1;          ///< 0: ranks that communicate take part in a call without rows too
  std::vector<std::string> scalars;  ///< further run-time i64 values of a call; each is also a symbol
  std::vector<IndexRule> indices;    ///< every input whose numbers select rows has its rule here
};

/// A concrete call for tuning and tests: run-time symbol values, tensors in schema order.
struct Problem {
  const Workload* workload = nullptr;
  const Schema* schema = nullptr;
  std::vector<int64_t> symbols;  ///< in Schema::symbols order, scalars after them
  std::vector<Tensor> tensors;
};

struct Cost {
  double flops = 0;
  double bytes_read = 0, bytes_written = 0;  ///< compulsory traffic
};

/// A small call whose counters say what one program of a large one does: of all that are given, the weighted sum. The
/// programs of one call do the same work; its grid has few of them.
struct GpuSample {
  Workload workload;
  int64_t length = 1;
  double weight = 1;
};

/// One rank's part in a call of an operation that communicates. The channel's tensors (Channel::tensors()) are the last
/// arguments of its schema.
struct RankCall {
  int world_size = 1;
  std::string fabric;            ///< Fabric::kind()
  ChannelOptions channel;        ///< what it needs for this call
  std::vector<int64_t> symbols;  ///< as of OpDef::symbols, of this rank
};

struct OpDef {
  std::string name;
  int64_t version = 1;  ///< part of the source hash: bump it when the kernel's IR changes (a golden test says so)
  std::string summary;  ///< one line for people

  /// Fills in defaults and checks the static fields. Errors: invalid_argument (unknown field, missing field, bad
  /// value).
  std::function<Workload(const Workload&)> normalize;
  std::function<Schema(const Workload&)> schema;
  /// The space for lengths near `length` (a bucket's hi).
  std::function<ConfigSpace(const Workload&, int64_t length, const Target&)> config_space;
  /// A good choice without any measurement; must be in the space.
  std::function<Config(const Workload&, int64_t length, const Target&)> default_config;
  std::function<void(KernelBuilder&, const Workload&, const Config&, const Target&)> build;
  std::function<std::array<SizeExpr, 3>(const Workload&, const Config&)> grid;
  std::function<std::vector<Workspace>(const Workload&, const Config&)> workspaces;  ///< absent: none
  std::function<Cost(const Workload&, std::span<const int64_t> symbols)> cost;
  /// Predicted microseconds for ranking candidates; only the order matters.
  std::function<double(const Workload&, const Config&, int64_t length, const Target&)> predict_us;

  /// What a program does on a GPU, for the model of gpu_model.h; absent: predict_us ranks there too.
  std::function<GpuWork(const Workload&, const Config&, int64_t length, const Target&)> gpu_work;
  /// Calls that the PTX machine runs to refine gpu_work; absent or empty: it is not refined.
  std::function<std::vector<GpuSample>(const Workload&, const Config&, int64_t length)> gpu_samples;

  /// Run-time symbols (all but scalars included) of a representative call at `length`; absent: {length}.
  std::function<std::vector<int64_t>(const Workload&, int64_t length)> symbols;
  /// The call of `rank` at `length`, for timing all ranks together; absent: nobody communicates.
  std::function<RankCall(const Workload&, int rank, int64_t length)> on_rank;
  /// Fills input tensor `arg` of a problem; absent or returning false: normal random values (weights / sqrt(fan-in)).
  std::function<bool(const Problem&, size_t arg, uint64_t seed)> fill;
  /// High-precision result for some rows (dim 0) of every output: outputs[i][r * row_elements + e] for rows[r], outputs
  /// in schema order. Plain loops in double over the tensors' exact stored values. Rows rise, up to the last one of the
  /// longest output; an output that has fewer ends with its last: of it only those below its end follow.
  std::function<void(const Problem&, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs)>
      reference;
  /// |got - want| <= absolute + relative * |want|.
  struct Tolerance {
    double absolute, relative;
  };
  std::function<Tolerance(const Workload&, std::span<const int64_t> symbols)> tolerance;

  std::string source_hash() const;  ///< hex SHA-256 of name and version
};

/// An explicit ordered list of operations; no self-registration.
class Registry {
 public:
  /// Errors: invalid_argument when the name is taken or a required member is empty.
  void add(OpDef op);
  /// Errors: invalid_argument listing the known names.
  const OpDef& find(std::string_view name) const;
  const std::vector<std::unique_ptr<OpDef>>& ops() const { return ops_; }

 private:
  std::vector<std::unique_ptr<OpDef>> ops_;
};

/// Values of Schema::symbols, then of Schema::scalars, of the representative call at `length`.
/// Errors: invalid_argument when the operation gives another number of them.
std::vector<int64_t> call_symbols(const OpDef& op, const Workload& workload, const Schema& schema, int64_t length);

/// Predicted microseconds, by the model that the operation has for the target; only the order matters.
double predicted_us(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                    const Target& target);

/// Builds and verifies the kernel of one configuration; its name is the specialisation string.
std::unique_ptr<ir::Function> build_kernel(const OpDef& op, const Workload& workload, const Config& config,
                                           const Target& target);

}  // namespace seqtile::autotune
