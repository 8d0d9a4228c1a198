// autotune/op_def.h -- an operation: schema, kernel, configuration space, cost, reference, tolerance.
// SPDX-License-Identifier: Apache-2.0
//
// An operation of the library and one of a user are defined the same way: fill in an OpDef and put it into a Registry.
// The kernel's parameters are, in this order: the tensors of the schema, the workspaces, the run-time scalars. A
// dimension of a tensor is a static number or a named run-time symbol; symbol 0 is always "length", the bucketed
// dimension.
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

/// A dimension: a static size, or a run-time symbol plus `size`: {"batch", 1} is batch + 1.
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
  int alignment = 0;   ///< bytes, of the base and of row strides; 0: the element size
  bool dense = false;  ///< the elements of one index of the first dimension have no gaps between them
  /// The elements are i64 words, and some are addresses inside other tensors of the call. A copy of the call must
  /// translate these addresses.
  bool holds_addresses = false;
  bool is_size_only = false;  ///< only the sizes matter: no kernel reads the elements
  /// For an output: names of inputs that may be the same tensor. An input with fewer rows may be whole rows of the
  /// output. An output must not overlap any other tensor of the call, nor itself.
  std::vector<std::string> in_place = {};
};

/// A rule for the elements of an i32 or i64 input that select rows of another tensor. A call on a CPU with an element
/// that breaks the rule is refused before the launch. The host does not read tensors of a GPU: a kernel for GPUs must
/// stay inside its tensors whatever the elements are.
struct IndexRule {
  enum class Kind {
    places,   ///< each element is a row: 0 <= arg[i] < limit
    borders,  ///< list i has the rows arg[i] .. arg[i + 1] - 1: the elements do not descend, and lie within 0 .. limit
    spans,    ///< list i has the rows arg[i] .. arg[i] + counts[i] - 1, all within 0 .. limit - 1
  };
  Kind kind = Kind::places;
  std::string arg;          ///< name of an input of i32 or i64; rank 1 for borders and spans
  Dim limit = 0;            ///< number of rows of the selected tensor
  std::string counts = {};  ///< spans: name of the input with each list's number of rows; dtype and size as `arg`
  /// Borders and spans: the fewest and the most rows of one list. Without `most` there is no upper limit.
  int64_t least = 0;
  std::optional<Dim> most = {};
  bool is_disjoint = false;  ///< spans: no row is in two lists, because programs write the rows
};

/// constant * product over terms of ceil((symbol + plus) / divisor), plus `more`. It gives the programs of one grid
/// axis, or the elements of a workspace.
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

/// Scratch memory of one call. The memory is zero in the first call that gets it, and later as the last call left it.
struct Workspace {
  std::string name;
  DType dtype = DType::f32;
  SizeExpr elements;  ///< the kernel sees a view of rank 1
};

/// Symbols, tensors and scalars of every call of one workload.
struct Schema {
  std::vector<std::string> symbols{"length"};  ///< run-time sizes; the first dim that names a symbol binds it
  std::vector<ArgSpec> args;
  int64_t least_length = 1;          ///< 0: a rank without rows takes part in the call of its peers
  std::vector<std::string> scalars;  ///< names of further i64 arguments; dims and SizeExprs use them as symbols
  std::vector<IndexRule> indices;    ///< one rule for each input whose elements select rows
};

/// A concrete call for tuning and tests.
struct Problem {
  const Workload* workload = nullptr;
  const Schema* schema = nullptr;
  std::vector<int64_t> symbols;  ///< values of Schema::symbols, then of Schema::scalars
  std::vector<Tensor> tensors;
};

struct Cost {
  double flops = 0;
  double bytes_read = 0, bytes_written = 0;  ///< compulsory traffic with memory
};

/// A small call that the PTX machine executes to count the work of one program of a large call. The counts of the large
/// call's program are the weighted sum over all samples, of the counts per program. The programs of a sample do equal
/// work, and are few.
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
  ChannelOptions channel;        ///< that this call needs
  std::vector<int64_t> symbols;  ///< values for this rank, as OpDef::symbols returns them
};

/// The definition of an operation. All functions but `normalize` get a normalized workload.
struct OpDef {
  std::string name;
  int64_t version = 1;  ///< part of the source hash; raise it when the kernel's IR changes (a golden test fails then)
  std::string summary;  ///< one line for people

  /// Fills in defaults and checks the static fields.
  /// Errors: invalid_argument (unknown field, missing field, bad value).
  std::function<Workload(const Workload&)> normalize;
  std::function<Schema(const Workload&)> schema;
  /// The configurations for lengths near `length`, the hi of a bucket.
  std::function<ConfigSpace(const Workload&, int64_t length, const Target&)> config_space;
  /// A good configuration, chosen without measuring. Requires: it is in the space of `length`.
  std::function<Config(const Workload&, int64_t length, const Target&)> default_config;
  std::function<void(KernelBuilder&, const Workload&, const Config&, const Target&)> build;
  std::function<std::array<SizeExpr, 3>(const Workload&, const Config&)> grid;
  std::function<std::vector<Workspace>(const Workload&, const Config&)> workspaces;  ///< absent: none
  /// The work of programs depends on values of the inputs, so that no slice of the grid stands for all of it: trials
  /// run the whole grid.
  bool has_uneven_programs = false;
  std::function<Cost(const Workload&, std::span<const int64_t> symbols)> cost;
  /// Predicted microseconds for ranking candidates; only the order matters.
  std::function<double(const Workload&, const Config&, int64_t length, const Target&)> predict_us;

  /// The work of a launch on a GPU, for the model of gpu_model.h; absent: predict_us ranks on GPUs too.
  std::function<GpuWork(const Workload&, const Config&, int64_t length, const Target&)> gpu_work;
  /// Calls that the PTX machine executes to refine gpu_work; absent or empty: the estimates stay.
  std::function<std::vector<GpuSample>(const Workload&, const Config&, int64_t length)> gpu_samples;

  /// Values of Schema::symbols in a representative call at `length`; values of Schema::scalars may follow, and are 0
  /// otherwise. Absent: {length}.
  std::function<std::vector<int64_t>(const Workload&, int64_t length)> symbols;
  /// The call of `rank` at `length`, for timing all ranks together; absent: the operation does not communicate.
  std::function<RankCall(const Workload&, int rank, int64_t length)> on_rank;
  /// Static fields by which ranks may differ: their shares of weights. Requires: names of static storage.
  std::span<const std::string_view> shares = {};
  /// Fills input `arg` of a problem and returns true. If it is absent or returns false, the input gets normal random
  /// values, and a weight gets such values divided by sqrt(fan-in).
  std::function<bool(const Problem&, size_t arg, uint64_t seed)> fill;
  /// Computes rows (dim 0) of every output in double, by plain loops over the stored values of the inputs.
  /// Shapes:   outputs[i][r * row_elements + e] is element e of row rows[r] of output i, in schema order. `rows` is
  ///           ascending and indexes the longest output. For a shorter output, append only the rows it has.
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

/// Values of Schema::symbols, then of Schema::scalars, in the representative call at `length`.
/// Errors: invalid_argument if OpDef::symbols returns another number of values.
std::vector<int64_t> call_symbols(const OpDef& op, const Workload& workload, const Schema& schema, int64_t length);

/// Predicted microseconds by the operation's model for the target; only the order matters.
double predicted_us(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                    const Target& target);

/// Builds and verifies the kernel of one configuration; its name is kernel_name(). Errors: compile_failed.
std::unique_ptr<ir::Function> build_kernel(const OpDef& op, const Workload& workload, const Config& config,
                                           const Target& target);

}  // namespace seqtile::autotune
