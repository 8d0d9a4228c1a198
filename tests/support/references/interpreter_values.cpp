// tests/support/references/interpreter_values.cpp -- the interpreter's operations on values.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/interpreter_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "seqtile/error.h"

namespace seqtile::testing {

using ir::Op;
using ir::OpKind;
using ir::Type;

namespace {

using Operands = std::span<const TileData* const>;
using Index = std::array<int64_t, ir::kMaxTileRank>;

[[noreturn]] void fail(const Op& op, const std::string& message) {
  throw Error(ErrorCode::wrong_result, std::string(op.info().name) + ": " + message);
}

Index index_of(const Type& type, int64_t flat) {
  Index index{};
  for (int i = type.rank - 1; i >= 0; --i) {
    index[i] = flat % type.shape[i];
    flat /= type.shape[i];
  }
  return index;
}

int64_t flat_of(const Type& type, const Index& index) {
  int64_t flat = 0;
  for (int i = 0; i < type.rank; ++i) flat = flat * type.shape[i] + index[i];
  return flat;
}

void copy_element(TileData& to, int64_t to_index, const TileData& from, int64_t from_index) {
  if (to.holds_floats()) {
    to.floats[to_index] = from.floats[from_index];
  } else {
    to.ints[to_index] = from.ints[from_index];
  }
}

/// Makes a tile by index: source(index) names the operand of an element and the index in it.
template <class Source>
TileData rearrange(const Type& type, Operands operands, Source source) {
  TileData result(type);
  for (int64_t flat = 0; flat < type.num_elements(); ++flat) {
    const auto [operand, index] = source(index_of(type, flat));
    copy_element(result, flat, *operands[operand], flat_of(operands[operand]->type, index));
  }
  return result;
}

// Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
// The counter is (element, 0, 0, 0), the key the seed's low and high half; the first word's top 24 bits are the value.
double philox(int64_t seed, int64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), 0, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return (c[0] >> 8) * 0x1p-24;
}

TileData create(const Op& op, Operands operands) {
  TileData result(op.results[0]->type);
  for (int64_t i = 0; i < result.type.num_elements(); ++i) {
    switch (op.kind) {
      case OpKind::constant:
        if (result.holds_floats()) {
          result.floats[0] = op.float_attr("value");
        } else {
          result.ints[0] = op.int_attr("value");
        }
        break;
      case OpKind::full: copy_element(result, i, *operands[0], 0); break;
      case OpKind::iota: result.ints[i] = i; break;
      default: result.floats[i] = philox(operands[0]->ints[0], operands[1]->ints[i]); break;
    }
  }
  return result;
}

std::vector<TileData> shape(const Op& op, Operands operands) {
  const Type& type = op.results[0]->type;
  const Type& from = operands[0]->type;
  const int last = type.rank - 1;
  const auto single = [&](auto source) { return std::vector{rearrange(type, operands, source)}; };
  switch (op.kind) {
    case OpKind::expand:
    case OpKind::reshape: {  // reshape keeps the row-major order
      TileData result = *operands[0];
      result.type = type;
      return {result};
    }
    case OpKind::broadcast:
      return single([&](Index index) {
        for (int i = 0; i < from.rank; ++i) index[i] = from.shape[i] == 1 ? 0 : index[i];
        return std::pair(0, index);
      });
    case OpKind::trans: {
      const auto& perm = std::get<std::vector<int64_t>>(op.attributes.at("perm"));
      return single([&](Index index) {
        Index source{};
        for (int i = 0; i < type.rank; ++i) source[perm[i]] = index[i];
        return std::pair(0, source);
      });
    }
    case OpKind::split: {
      std::vector<TileData> halves;
      for (int64_t half = 0; half < 2; ++half)
        halves.push_back(rearrange(type, operands, [&](Index index) {
          index[last] = 2 * index[last] + half;
          return std::pair(0, index);
        }));
      return halves;
    }
    case OpKind::join:
      return single([&](Index index) {
        const int side = static_cast<int>(index[last] % 2);
        index[last] /= 2;
        return std::pair(side, index);
      });
    default:  // concat
      return single([&](Index index) {
        const int64_t width = from.shape[last];
        const int side = index[last] >= width;
        index[last] -= side ? width : 0;
        return std::pair(side, index);
      });
  }
}

double unary_float(const Op& op, double x) {
  switch (op.kind) {
    case OpKind::neg: return -x;
    case OpKind::abs: return std::fabs(x);
    case OpKind::exp2: return std::exp2(x);
    case OpKind::log2: return std::log2(x);
    case OpKind::sqrt: return std::sqrt(x);
    case OpKind::rsqrt: return 1 / std::sqrt(x);
    case OpKind::rcp: return 1 / x;
    case OpKind::tanh: return std::tanh(x);
    case OpKind::erf: return std::erf(x);
    case OpKind::sin: return std::sin(x);
    case OpKind::cos: return std::cos(x);
    case OpKind::floor: return std::floor(x);
    default: fail(op, "not a float operation");
  }
}

void cast_element(TileData& to, const TileData& from, int64_t i) {
  const DType dtype = to.type.dtype;
  if (to.holds_floats()) {
    to.floats[i] = round_to(dtype, from.holds_floats() ? from.floats[i] : static_cast<double>(from.ints[i]));
  } else if (from.holds_floats()) {
    to.ints[i] = float_to_int(dtype, from.floats[i]);
  } else {
    to.ints[i] = dtype == DType::i1 ? from.ints[i] != 0 : wrap_to(dtype, from.ints[i]);
  }
}

TileData unary(const Op& op, const TileData& a) {
  TileData result(op.results[0]->type);
  for (int64_t i = 0; i < a.type.num_elements(); ++i) {
    if (op.kind == OpKind::cast) {
      cast_element(result, a, i);
    } else if (op.kind == OpKind::bitcast) {
      char bits[sizeof(int64_t)];
      write_element(a, i, bits);
      read_element(result, i, bits);
    } else if (a.holds_floats()) {
      result.floats[i] = unary_float(op, a.floats[i]);
    } else {
      const uint64_t x = static_cast<uint64_t>(a.ints[i]);
      const bool flips = op.kind == OpKind::neg || (op.kind == OpKind::abs && a.ints[i] < 0);
      result.ints[i] = wrap_to(a.type.dtype, static_cast<int64_t>(op.kind == OpKind::bit_not ? ~x : flips ? 0 - x : x));
    }
  }
  return result;
}

double binary_float(const Op& op, double a, double b) {
  switch (op.kind) {
    case OpKind::add: return a + b;
    case OpKind::sub: return a - b;
    case OpKind::mul: return a * b;
    case OpKind::div: return a / b;
    case OpKind::min: return std::fmin(a, b);
    case OpKind::max: return std::fmax(a, b);
    case OpKind::pow: return std::pow(a, b);
    default: fail(op, "not a float operation");
  }
}

int64_t divide(const Op& op, int64_t a, int64_t b) {
  if (b == 0) fail(op, std::to_string(a) + " by zero");
  if (b == -1) return op.kind == OpKind::rem ? 0 : static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  return op.kind == OpKind::rem ? a % b : a / b;
}

int64_t binary_int(const Op& op, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);  // unsigned, so that overflow wraps
  const DType dtype = op.operands[0]->type.dtype;
  if ((op.kind == OpKind::shl || op.kind == OpKind::shr) && (b < 0 || b >= 8 * dtype_bytes(dtype)))
    fail(op, "a shift by " + std::to_string(b) + " bits of " + std::string(dtype_name(dtype)));
  switch (op.kind) {
    case OpKind::add: return static_cast<int64_t>(ua + ub);
    case OpKind::sub: return static_cast<int64_t>(ua - ub);
    case OpKind::mul: return static_cast<int64_t>(ua * ub);
    case OpKind::div:
    case OpKind::rem: return divide(op, a, b);
    case OpKind::min: return std::min(a, b);
    case OpKind::max: return std::max(a, b);
    case OpKind::bit_and: return a & b;
    case OpKind::bit_or: return a | b;
    case OpKind::bit_xor: return a ^ b;
    case OpKind::shl: return static_cast<int64_t>(ua << b);
    case OpKind::shr: return a >> b;
    default: fail(op, "not an integer operation");
  }
}

template <class T>
bool compare(std::string_view predicate, T a, T b) {
  if (predicate == "eq") return a == b;
  if (predicate == "ne") return a != b;
  if (predicate == "lt") return a < b;
  if (predicate == "le") return a <= b;
  return predicate == "gt" ? a > b : a >= b;
}

TileData binary(const Op& op, Operands operands) {
  const TileData &a = *operands[0], &b = *operands[1];
  TileData result(op.results[0]->type);
  for (int64_t i = 0; i < result.type.num_elements(); ++i) {
    if (op.kind == OpKind::cmp) {
      const std::string_view predicate = op.string_attr("predicate");
      result.ints[i] =
          a.holds_floats() ? compare(predicate, a.floats[i], b.floats[i]) : compare(predicate, a.ints[i], b.ints[i]);
    } else if (op.kind == OpKind::select) {
      const bool condition = a.ints[a.type.is_scalar() ? 0 : i] != 0;
      copy_element(result, i, *operands[condition ? 1 : 2], i);
    } else if (op.kind == OpKind::fma && a.holds_floats()) {
      result.floats[i] = a.floats[i] * b.floats[i] + operands[2]->floats[i];
    } else if (op.kind == OpKind::fma) {
      const uint64_t product = static_cast<uint64_t>(a.ints[i]) * static_cast<uint64_t>(b.ints[i]);
      result.ints[i] =
          wrap_to(a.type.dtype, static_cast<int64_t>(product + static_cast<uint64_t>(operands[2]->ints[i])));
    } else if (a.holds_floats()) {
      result.floats[i] = binary_float(op, a.floats[i], b.floats[i]);
    } else {
      result.ints[i] = wrap_to(a.type.dtype, binary_int(op, a.ints[i], b.ints[i]));
    }
  }
  return result;
}

template <class T>
T combine(std::string_view kind, T a, T b) {
  if (kind == "any") return a != 0 || b != 0 ? 1 : 0;
  if constexpr (std::is_same_v<T, double>) {
    if (kind == "sum") return a + b;
    if (kind == "prod") return a * b;
    return kind == "max" ? std::fmax(a, b) : std::fmin(a, b);
  } else {
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    if (kind == "sum") return static_cast<int64_t>(ua + ub);
    if (kind == "prod") return static_cast<int64_t>(ua * ub);
    return kind == "max" ? std::max(a, b) : std::min(a, b);
  }
}

/// Calls visit(flat index of the result without the axis, position, flat index in a) along `axis` of `a`.
template <class Visit>
void visit_axis(const TileData& a, int64_t axis, Visit visit) {
  int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < a.type.rank; ++i) inner *= a.type.shape[i];
  const int64_t length = a.type.shape[axis], lines = a.type.num_elements() / length;
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t position = 0; position < length; ++position)
      visit(line, position, (line / inner * length + position) * inner + line % inner);
}

std::vector<TileData> reduce(const Op& op, const TileData& a) {
  const std::string_view kind = op.string_attr("kind");
  const int64_t axis = op.int_attr("axis");
  std::vector<TileData> results;
  for (const ir::Value* value : op.results) results.emplace_back(value->type);
  TileData& result = results[0];
  int64_t previous = 0;
  visit_axis(a, axis, [&](int64_t line, int64_t position, int64_t flat) {
    const int64_t to = op.kind == OpKind::scan ? flat : line;
    const int64_t from = op.kind == OpKind::scan ? previous : line;
    previous = flat;
    if (position == 0) return copy_element(result, to, a, flat);
    if (op.kind == OpKind::argreduce) {
      const bool is_better =
          a.holds_floats()
              ? (kind == "max" ? a.floats[flat] > result.floats[line] : a.floats[flat] < result.floats[line])
              : (kind == "max" ? a.ints[flat] > result.ints[line] : a.ints[flat] < result.ints[line]);
      if (!is_better) return;
      results[1].ints[line] = position;
      copy_element(result, line, a, flat);
    } else if (a.holds_floats()) {
      result.floats[to] = combine(kind, result.floats[from], a.floats[flat]);
    } else {
      result.ints[to] = wrap_to(a.type.dtype, combine(kind, result.ints[from], a.ints[flat]));
    }
  });
  return results;
}

TileData dot(const TileData& a, const TileData& b, const TileData& c) {
  TileData result = c;
  const int64_t m = a.type.shape[0], k = a.type.shape[1], n = b.type.shape[1];
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) result.floats[i * n + j] += a.floats[i * k + p] * b.floats[p * n + j];
  return result;
}

}  // namespace

std::vector<TileData> evaluate(const Op& op, Operands operands) {
  switch (op.info().group) {
    case ir::OpGroup::create: return {create(op, operands)};
    case ir::OpGroup::shape: return shape(op, operands);
    case ir::OpGroup::unary: return {unary(op, *operands[0])};
    case ir::OpGroup::binary: return {binary(op, operands)};
    case ir::OpGroup::reduce: return reduce(op, *operands[0]);
    case ir::OpGroup::dot: return {dot(*operands[0], *operands[1], *operands[2])};
    default: fail(op, "not a value operation");
  }
}

}  // namespace seqtile::testing
