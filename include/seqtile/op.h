// include/seqtile/op.h -- an operation: buckets, fields, configuration space, schema, kernel, cost, reference,
// tolerance.
// SPDX-License-Identifier: Apache-2.0
//
// An operation of the library and one of a user are defined the same way: fill in an OpDef and put it into a Registry.
// The kernel's parameters are, in this order: the tensors of the schema, the workspaces, the run-time scalars. A
// dimension of a tensor is a static number or a named run-time symbol; symbol 0 is always "length", the bucketed
// dimension.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/fabric.h"
#include "seqtile/target.h"
#include "seqtile/tensor.h"

namespace seqtile {
// Authors of kernels include seqtile/builder.h; users of operations need nothing of it.
class KernelBuilder;
class Var;
namespace ir {
class Function;
}
}  // namespace seqtile

namespace seqtile::autotune {

// bucket() maps a length to its bucket. The ladder of buckets is {1} {2} {3..4} {5..8} {9..16}, then 8 buckets an
// octave: 69 buckets up to 4096, 77 up to 8192. Tuner, lookup, launch and `prove` call bucket(), and no data changes
// the ladder. Every record stores kBucketVersion.

constexpr int64_t kBucketVersion = 1;
constexpr int64_t kMaxLength = int64_t{1} << 40;

struct Bucket {
  int64_t lo, hi;
  bool operator==(const Bucket&) const = default;
};

/// Position of the bucket of `length` on the ladder, counted from 0. Requires: 1 <= length <= kMaxLength.
constexpr int64_t bucket_index(int64_t length) {
  if (length <= 2) return length - 1;
  // 2^octave < length <= 2^(octave + 1)
  const int octave = static_cast<int>(std::bit_width(static_cast<uint64_t>(length - 1))) - 1;
  if (octave < 4) return octave + 1;  // {3..4} {5..8} {9..16}
  const int64_t eighth = (length - 1 - (int64_t{1} << octave)) >> (octave - 3);
  return 5 + (octave - 4) * 8 + eighth;
}

/// The bucket at position `index` of the ladder. Requires: 0 <= index <= bucket_index(kMaxLength).
constexpr Bucket bucket_at(int64_t index) {
  if (index < 2) return {index + 1, index + 1};
  if (index < 5) return {(int64_t{1} << (index - 1)) + 1, int64_t{1} << index};
  const int64_t octave = 4 + (index - 5) / 8, eighth = (index - 5) % 8;
  const int64_t base = int64_t{1} << octave, step = base / 8;
  return {base + eighth * step + 1, base + (eighth + 1) * step};
}

/// The bucket that contains `length`. Requires: 1 <= length <= kMaxLength.
constexpr Bucket bucket(int64_t length) { return bucket_at(bucket_index(length)); }

/// All buckets that contain a length of lo..hi, in ascending order.
/// Errors: invalid_argument unless 1 <= lo <= hi <= kMaxLength.
std::vector<Bucket> buckets(int64_t lo, int64_t hi);

// Fields are named values in canonical order: an operation's static fields, or a configuration.
//
// A value is found by its name, never by its position. json() is canonical (keys sorted, no spaces), so that equal
// fields have equal text and equal hashes.

using FieldValue = std::variant<int64_t, double, std::string>;

class Fields {
 public:
  Fields() = default;
  Fields(std::initializer_list<std::pair<const std::string, FieldValue>> values) : values_(values) {}

  bool operator==(const Fields&) const = default;
  bool contains(std::string_view name) const { return values_.find(name) != values_.end(); }
  void set(const std::string& name, FieldValue value) { values_[name] = std::move(value); }
  /// The value of a field; `fallback` if the field is absent.
  /// Errors: invalid_argument naming the field, if it is absent and has no fallback, or has another type.
  int64_t get_int(std::string_view name) const;
  int64_t get_int(std::string_view name, int64_t fallback) const;
  double get_double(std::string_view name, double fallback) const;  ///< integers convert
  std::string get_string(std::string_view name) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  const std::map<std::string, FieldValue, std::less<>>& values() const { return values_; }

  /// Errors: invalid_argument on a number that is not finite, or text that is not UTF-8.
  std::string json() const;
  /// Errors: invalid_argument on text that is not one flat JSON object of numbers and strings with distinct names.
  static Fields parse(std::string_view json);
  std::string hash() const;  ///< hex SHA-256 of json()

 private:
  std::map<std::string, FieldValue, std::less<>> values_;
};

/// A configuration: the named parameters that a config space enumerates.
using Config = Fields;

/// An operation with its dtype, threads and static fields: everything but the length.
struct Workload {
  std::string operation;
  DType dtype = DType::f32;
  int threads = 1;
  Fields fields;

  bool operator==(const Workload&) const = default;
  /// Canonical JSON of dtype, threads and all fields; the operation is left out. Errors: as Fields::json().
  std::string json() const;
};

/// The configurations that a tuner may choose from: a product of named parameter values, filtered by constraints, plus
/// configurations added by hand.
class ConfigSpace {
 public:
  /// Returns nullopt if the configuration is legal, else the reason in one line ("mr * nr needs 40 registers, 32
  /// exist").
  using Constraint = std::function<std::optional<std::string>(const Config&)>;

  /// Adds a factor to the product: the parameter `name` takes each of `values`.
  ConfigSpace& parameter(std::string name, std::vector<FieldValue> values);
  /// Filters the product. Configurations of add() and alternative() are not filtered by it.
  ConfigSpace& constraint(Constraint constraint);
  ConfigSpace& add(Config config);  ///< one configuration outside the product
  /// Adds a whole space with parameters and constraints of its own: forms of one kernel have different parameters.
  ConfigSpace& alternative(ConfigSpace space);

  /// Every legal configuration once, in a fixed order.
  std::vector<Config> enumerate() const;
  /// The reason why `config` is not in the space; nullopt if it is.
  std::optional<std::string> refusal(const Config& config) const;
  std::string hash() const;  ///< hex SHA-256 of the set of legal configurations, whatever their order

 private:
  struct Parameter {
    std::string name;
    std::vector<FieldValue> values;
  };
  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  std::vector<Config> extra_;
  std::vector<ConfigSpace> alternatives_;
};

// GpuWork says what a launch's programs do on a GPU; predict_us() makes a time of it, for ranking, not for reports.
//
// The model is a roofline. A multiprocessor is limited by tensor cores, instruction issue, shared memory, L2, and by
// latency that few loads in flight do not hide. The launch runs in waves over all multiprocessors, and is limited by
// the memory's bandwidth as well. An operation states the work of one program; counts of the PTX machine may replace
// its estimates. Facts of the device come from seqtile/target.h. Factors in this model are taken from public
// measurements and are not fitted to any kernel. docs/tuning.md#gpus has the formulas.

/// The work of one launch under one configuration.
struct GpuWork {
  // The launch:
  double programs = 1;
  int64_t threads = 128;     ///< per program
  int64_t shared_bytes = 0;  ///< per program
  int64_t registers = 64;    ///< per thread
  double memory_bytes = 0;   ///< traffic of the whole launch with memory
  // One program:
  double tensor_flops = 0;  ///< padding of tiles included
  DType tensor_dtype = DType::bf16;
  bool uses_wgmma = false;  ///< instructions of Hopper; other products reach half of Hopper's peak
  double warp_instructions = 0;
  double special_lane_ops = 0;   ///< exponentials, roots, divisions
  double shared_wavefronts = 0;  ///< accesses of 128 bytes, conflicts included
  double l2_bytes = 0;           ///< read and written through the L2
  double turns = 1;              ///< of the main loop; each turn waits for its loads
  int64_t stages = 1;            ///< turns whose loads are in flight together
  double meeting_cycles = 0;     ///< per turn, in which blocks of a cluster wait for each other
};

/// Predicted microseconds of a launch; infinity if a program does not fit a multiprocessor.
double predict_us(const GpuWork& work, const GpuFacts& gpu);

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
    for (const Term& t : terms) result *= (symbols[static_cast<size_t>(t.symbol)] + t.plus + t.divisor - 1) / t.divisor;
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

/// A static field of an operation, for people.
struct FieldInfo {
  std::string name;
  std::string values;    ///< "1..1048576", or the names "silu, gelu"
  std::string fallback;  ///< its default; empty: a workload must give the field, or the default follows other fields
  bool is_required = false;
};

/// The definition of an operation. All functions but `fields` and `normalize` get a normalized workload.
struct OpDef {
  std::string name;
  int64_t version = 1;  ///< part of the source hash; raise it when the kernel's IR changes (a golden test fails then)
  std::string summary;  ///< one line for people
  std::function<std::vector<FieldInfo>()> fields;  ///< in the order of their declaration; absent: nothing is said

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

  /// The work of a launch on a GPU, for the model above; absent: predict_us ranks on GPUs too.
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

/// Builds and verifies the kernel of one configuration; its name is kernel_name(). Errors: compile_failed.
std::unique_ptr<ir::Function> build_kernel(const OpDef& op, const Workload& workload, const Config& config,
                                           const Target& target);

}  // namespace seqtile::autotune
