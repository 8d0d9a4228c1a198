// include/seqtile/operation.h -- what an operation's struct is made of: fields, tensors, calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "seqtile/error.h"
#include "seqtile/op.h"
#include "seqtile/tensor.h"

namespace seqtile::kernels {

/// The tensors, length and scalars of one call, in schema order, without allocation: what pack() makes. Absent tensors
/// take no place: the handle compares the count with its schema.
class Call {
 public:
  static constexpr int kMaxTensors = 20;

  int64_t length = 0;  ///< the bucketed dimension

  explicit Call(int64_t rows) : length(rows) {}
  void add(const Tensor& tensor) { tensors_[count_++] = tensor; }
  std::span<const Tensor> tensors() const { return {tensors_.data(), count_}; }
  std::span<const int64_t> scalars() const { return {}; }

 private:
  std::array<Tensor, kMaxTensors> tensors_;
  size_t count_ = 0;
};

// An operation declares its static fields once.
//
// An operation is a struct whose members are its fields. `fields(FieldVisitor&)` names each member with its limits, in
// one order; a later field may depend on earlier ones. The operation's workload, the checks of a given workload and
// the struct of a workload follow from that declaration:
//
//   struct Softmax {
//     static constexpr std::string_view kName = "softmax";
//     int64_t n = 0;
//     DType dtype = DType::f32;
//     void fields(FieldVisitor& v) { v.integer("n", n, 1, kMaxFeatures); }
//   };

class FieldVisitor {
 public:
  /// A whole number of lo..hi. A member whose initial value lies outside has no default: a workload must give it.
  virtual void integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) = 0;
  void flag(std::string_view name, bool& value) {
    int64_t number = value;
    integer(name, number, 0, 1);
    value = number != 0;
  }
  /// A number of lo..hi.
  virtual void number(std::string_view name, double& value, double lo, double hi) = 0;
  /// An enumerator, or a bool, by its name in workloads.
  template <class Enum, size_t N>
  void choice(std::string_view name, Enum& value, const std::array<std::string_view, N>& names) {
    std::string chosen = name_of(name, static_cast<size_t>(value), names);
    choose(name, chosen, names);
    value = static_cast<Enum>(std::ranges::find(names, chosen) - names.begin());
  }
  /// One of the names.
  template <size_t N>
  void choice(std::string_view name, std::string& value, const std::array<std::string_view, N>& names) {
    choose(name, value, names);
  }
  /// A storage type, by its name: f32, bf16 or f16.
  void storage_type(std::string_view name, DType& value);
  /// The same for a field that came late: where it is `fallback` a workload does not name it, so that older keys stay.
  virtual void late_number(std::string_view name, double& value, double fallback, double lo, double hi) = 0;
  /// Where `reason` says why this value of the field does not go with the others ("needs residual = 1: ...").
  virtual void refuse([[maybe_unused]] std::string_view name, [[maybe_unused]] const std::string& reason) {}
  /// Where the others say that there is no such field: a workload that names it is refused.
  virtual void absent([[maybe_unused]] std::string_view name, [[maybe_unused]] const std::string& reason) {}

 protected:
  ~FieldVisitor() = default;
  /// Errors: invalid_argument where the enumerator has no name.
  static std::string name_of(std::string_view field, size_t value, std::span<const std::string_view> names);
  virtual void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) = 0;
};

/// Writes fields into a workload.
class FieldWriter final : public FieldVisitor {
 public:
  explicit FieldWriter(autotune::Fields& fields) : fields_(fields) {}
  void integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) override;
  void number(std::string_view name, double& value, double lo, double hi) override;
  void late_number(std::string_view name, double& value, double fallback, double lo, double hi) override;

 private:
  void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) override;
  autotune::Fields& fields_;
};

/// Reads fields from a workload that has them all; checks nothing.
class FieldLoader final : public FieldVisitor {
 public:
  explicit FieldLoader(const autotune::Fields& fields) : fields_(fields) {}
  void integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) override;
  void number(std::string_view name, double& value, double lo, double hi) override;
  void late_number(std::string_view name, double& value, double fallback, double lo, double hi) override;

 private:
  void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) override;
  const autotune::Fields& fields_;
};

/// Lists fields for people. A member without a default gets its largest value, or its smallest.
class FieldLister final : public FieldVisitor {
 public:
  explicit FieldLister(bool largest) : largest_(largest) {}
  void integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) override;
  void number(std::string_view name, double& value, double lo, double hi) override;
  void late_number(std::string_view name, double& value, double fallback, double lo, double hi) override;
  std::vector<autotune::FieldInfo> list;

 private:
  void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) override;
  bool largest_;
};

/// The fields of Op, as OpDef::fields returns them. A default that is not the same beside the largest and the smallest
/// values of the others follows them, and so do limits that leave one value.
template <class Op>
std::vector<autotune::FieldInfo> list_fields() {
  FieldLister wide(true), narrow(false);
  Op{}.fields(wide);
  Op{}.fields(narrow);
  for (size_t i = 0; i < std::min(wide.list.size(), narrow.list.size()); ++i)
    if (wide.list[i].fallback != narrow.list[i].fallback) wide.list[i].fallback.clear();
  return std::move(wide.list);
}

/// The storage type of an operation: its member `dtype`, or that of the operation it contains.
template <class Op>
auto& dtype_of(Op& op) {
  if constexpr (requires { op.dtype; }) {
    return op.dtype;
  } else {
    static_assert(
        requires { op.storage(); }, "an operation has a member dtype, or storage() of the one it contains");
    return op.storage();
  }
}

/// The workload of an operation; the engine that prepares it sets the number of threads. Errors: invalid_argument where
/// an enumerator has no name.
template <class Op>
autotune::Workload workload_of(Op op) {
  autotune::Workload workload{std::string(Op::kName), dtype_of(op), 1, {}};
  FieldWriter writer(workload.fields);
  name_errors(Op::kName, [&] { op.fields(writer); });
  return workload;
}

/// The operation of a normalised workload.
template <class Op>
Op op_of(const autotune::Workload& workload) {
  Op op;
  dtype_of(op) = workload.dtype;
  FieldLoader loader(workload.fields);
  op.fields(loader);
  return op;
}

// An operation declares its tensors once.
//
// An operation has a struct template with a member for each tensor, and names them with their shapes in one order:
//
//   template <class T> struct Tensors { T x, y; };
//   void tensors(auto& v, auto& t) const {
//     v.input("x", t.x, {kLength, 2 * n});
//     v.output("y", t.y, {kLength, n});
//   }
//
// A dimension is a number or a run-time symbol, such as kLength. Tensors<Tensor> are the arguments of a call,
// Tensors<Var> the views of a kernel, Tensors<std::vector<double>> the rows of a reference. The visitors below make the
// schema and each of these from that declaration.

/// A dimension of a tensor: a static size, or a run-time symbol of the schema with `size` added. The schema has the
/// length first, then the other symbols in the order in which the tensors name them.
struct Extent {
  int64_t size = 0;
  std::string_view symbol = {};                                 ///< empty: static
  constexpr Extent(int64_t static_size) : size(static_size) {}  // NOLINT
  constexpr explicit Extent(std::string_view name) : symbol(name) {}
  constexpr Extent operator+(int64_t more) const {
    Extent sum = *this;
    sum.size += more;
    return sum;
  }
  bool is_dynamic() const { return !symbol.empty(); }
};
inline constexpr Extent kLength{"length"};
using Extents = std::initializer_list<Extent>;

/// Numbers that say which rows of a tensor each list of a call has: IndexRule, whose words these are.
struct RowLists {
  Extent limit;                     ///< rows of that tensor
  std::string_view counts = {};     ///< spans: the argument with their numbers of rows
  int64_t least = 0;                ///< rows of a list
  std::optional<Extent> most = {};  ///< absent: any number
  bool is_disjoint = false;
};

struct TensorOptions {
  std::optional<DType> dtype = {};                        ///< absent: the operation's
  std::initializer_list<std::string_view> in_place = {};  ///< as ArgSpec::in_place; skips inputs that are not there
  std::optional<double> mean = {};                        ///< generated weights are normal about it
  double deviation = 0.1;                                 ///< of those weights
  bool dense = false;                                     ///< as ArgSpec::dense
  std::optional<int64_t> rows_of = {};  ///< the elements are rows of a tensor that has so many: an IndexRule
  std::optional<RowLists> borders = {}, spans = {};  ///< the elements are begins of lists: IndexRules
};

/// The parts that visitors have in common.
template <class Derived>
struct TensorVisitor {
  template <class Slot>
  void input(std::string_view name, Slot& slot, Extents extents, const TensorOptions& options = {}) {
    static_cast<Derived*>(this)->visit(autotune::ArgRole::input, name, slot, extents, options);
  }
  template <class Slot>
  void weight(std::string_view name, Slot& slot, Extents extents, const TensorOptions& options = {}) {
    static_cast<Derived*>(this)->visit(autotune::ArgRole::weight, name, slot, extents, options);
  }
  template <class Slot>
  void output(std::string_view name, Slot& slot, Extents extents, const TensorOptions& options = {}) {
    static_cast<Derived*>(this)->visit(autotune::ArgRole::output, name, slot, extents, options);
  }
};

struct Normal {
  double mean, deviation;
};

/// Makes the schema, and notes how generated weights are distributed.
class SchemaMaker : public TensorVisitor<SchemaMaker> {
 public:
  explicit SchemaMaker(DType dtype) : dtype_(dtype) {}
  template <class Slot>
  void visit(autotune::ArgRole role, std::string_view name, Slot&, Extents extents, const TensorOptions& options) {
    add(role, name, extents, options);
  }
  autotune::Schema schema;
  std::vector<std::optional<Normal>> normals;  ///< by argument; absent: as OpDef::fill says

 private:
  void add(autotune::ArgRole role, std::string_view name, Extents extents, const TensorOptions& options);
  DType dtype_;
};

/// Makes the views of a kernel, in order, but for those that are there already.
class ViewMaker : public TensorVisitor<ViewMaker> {
 public:
  ViewMaker(KernelBuilder& b, DType dtype) : b_(b), dtype_(dtype) {}
  void visit(autotune::ArgRole, std::string_view name, Var& view, Extents extents, const TensorOptions& options);

 private:
  KernelBuilder& b_;
  DType dtype_;
};

/// Binds the tensors of a problem.
class TensorBinder : public TensorVisitor<TensorBinder> {
 public:
  explicit TensorBinder(std::span<const Tensor> tensors) : tensors_(tensors) {}
  void visit(autotune::ArgRole, std::string_view, Tensor& tensor, Extents, const TensorOptions&) {
    tensor = tensors_[next_++];
  }

 private:
  std::span<const Tensor> tensors_;
  size_t next_ = 0;
};

/// Collects the outputs of a reference, in order.
class OutputCollector : public TensorVisitor<OutputCollector> {
 public:
  explicit OutputCollector(std::vector<std::vector<double>>& outputs) : outputs_(outputs) {}
  void visit(autotune::ArgRole role, std::string_view, std::vector<double>& values, Extents, const TensorOptions&) {
    if (role == autotune::ArgRole::output) outputs_.push_back(std::move(values));
  }

 private:
  std::vector<std::vector<double>>& outputs_;
};

/// Packs the arguments of a call.
class TensorPacker : public TensorVisitor<TensorPacker> {
 public:
  void visit(autotune::ArgRole, std::string_view name, const Tensor& tensor, Extents extents, const TensorOptions&) {
    if (tensor.rank == 0 && missing.empty()) missing = name;
    if (tensor.rank == 0) return;
    call.add(tensor);
    if (call.length < 0 && extents.begin()->symbol == kLength.symbol) call.length = tensor.sizes[0];
  }
  Call call{-1};
  std::string_view missing;  ///< the first declared tensor that is not given
};

template <class Op>
SchemaMaker schema_of(const Op& op) {
  SchemaMaker maker(dtype_of(op));
  typename Op::template Tensors<char> unused{};
  op.tensors(maker, unused);
  return maker;
}

/// `views`: those that the caller has made, in other shapes.
template <class Op>
auto views_of(const Op& op, KernelBuilder& b, typename Op::template Tensors<Var> views = {}) {
  ViewMaker maker(b, dtype_of(op));
  op.tensors(maker, views);
  return views;
}

template <class Op>
auto tensors_of(const Op& op, std::span<const Tensor> tensors) {
  typename Op::template Tensors<Tensor> bound{};
  TensorBinder binder(tensors);
  op.tensors(binder, bound);
  return bound;
}

/// Every tensor read or written once, but for those that say which rows a list has.
autotune::Cost traffic_of(const autotune::Schema& schema, std::span<const int64_t> symbols);

/// The cost of a call; Op has `double flops(int64_t length) const`.
template <class Op>
autotune::Cost cost_of(const Op& op, int64_t length) {
  autotune::Cost cost = traffic_of(schema_of(op).schema, {&length, 1});
  cost.flops = op.flops(length);
  return cost;
}

/// `missing`: the tensor that is not given; empty: one is given that the operation does not take.
[[noreturn]] void refuse_tensors(std::string_view operation, const autotune::Schema& schema, std::string_view missing);

/// The call of TypedHandle. Its length is the first dimension of the first tensor that has kLength there. Where no
/// shape shows it, Tensors<T> ends with `int64_t length`, which the caller sets. Errors: invalid_argument for a tensor
/// that is missing, or that the operation does not take.
template <class Op>
Call pack(const Op& op, const typename Op::template Tensors<Tensor>& args) {
  TensorPacker packer;
  op.tensors(packer, args);
  constexpr bool has_length = requires { args.length; };
  if constexpr (has_length) packer.call.length = args.length;
  static_assert(std::is_standard_layout_v<std::remove_cvref_t<decltype(args)>> &&
                    sizeof(args) % sizeof(Tensor) == (has_length ? sizeof(int64_t) : 0),
                "Tensors<T> has members of type T, behind them perhaps the length, and no others");
  const std::span<const Tensor> all(reinterpret_cast<const Tensor*>(&args), sizeof(args) / sizeof(Tensor));
  size_t given = 0;
  for (const Tensor& tensor : all) given += tensor.rank != 0;
  if (given != packer.call.tensors().size() || !packer.missing.empty())
    refuse_tensors(Op::kName, schema_of(op).schema, packer.missing);
  return packer.call;
}

}  // namespace seqtile::kernels

// TypedHandle finds pack() by its arguments, which are seqtile's where an operation is a user's.
namespace seqtile {
using kernels::pack;
}
