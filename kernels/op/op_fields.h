// kernels/op/op_fields.h -- an operation's static fields, declared once.
// SPDX-License-Identifier: Apache-2.0
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
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "autotune/fields.h"
#include "jit/base/error.h"

namespace seqtile::kernels {

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
  virtual void refuse(std::string_view name, const std::string& reason) = 0;
  /// Where the others say that there is no such field: a workload that names it is refused.
  virtual void absent(std::string_view name, const std::string& reason) = 0;

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
  void refuse(std::string_view, const std::string&) override {}
  void absent(std::string_view, const std::string&) override {}

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
  void refuse(std::string_view, const std::string&) override {}
  void absent(std::string_view, const std::string&) override {}

 private:
  void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) override;
  const autotune::Fields& fields_;
};

class WorkloadReader;

/// Reads fields from a workload as somebody gives it. Errors: those of WorkloadReader.
class FieldReader final : public FieldVisitor {
 public:
  explicit FieldReader(WorkloadReader& reader) : reader_(reader) {}
  void integer(std::string_view name, int64_t& value, int64_t lo, int64_t hi) override;
  void number(std::string_view name, double& value, double lo, double hi) override;
  void late_number(std::string_view name, double& value, double fallback, double lo, double hi) override;
  void refuse(std::string_view name, const std::string& reason) override;
  void absent(std::string_view name, const std::string& reason) override;

 private:
  void choose(std::string_view name, std::string& value, std::span<const std::string_view> names) override;
  WorkloadReader& reader_;
};

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
  naming(Op::kName, [&] { op.fields(writer); });
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

}  // namespace seqtile::kernels
