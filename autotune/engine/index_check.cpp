// autotune/engine/index_check.cpp -- see index_check.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/index_check.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/core.h>

#include "jit/base/counted.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

using Kind = IndexRule::Kind;

constexpr int64_t kNone = -1;  ///< position if no element is wrong

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

using Bounds = IndexBounds;

/// The elements of a tensor of rank 1.
template <class T>
std::span<const T> list_of(const Tensor& tensor) {
  return {static_cast<const T*>(tensor.data), static_cast<size_t>(tensor.sizes[0])};
}

template <class T>
int64_t first_wrong_place(std::span<const T> numbers, int64_t limit) {
  using U = std::make_unsigned_t<T>;
  constexpr U kAboveAll = static_cast<U>(std::numeric_limits<T>::max()) + 1;  // the least negative number, as U
  const U end = limit > std::numeric_limits<T>::max() ? kAboveAll : static_cast<U>(std::max<int64_t>(limit, 0));
  bool is_any = false;  // an OR in place of branches lets the compiler vectorize the loop
  for (const T number : numbers) is_any |= static_cast<U>(number) >= end;
  if (!is_any) return kNone;
  const auto wrong = [&](T number) { return static_cast<U>(number) >= end; };
  return std::find_if(numbers.begin(), numbers.end(), wrong) - numbers.begin();
}

template <class T>
int64_t first_wrong_border(std::span<const T> numbers, const Bounds& bounds) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int64_t number = numbers[i], before = i == 0 ? 0 : numbers[i - 1];
    if (number < before || number > bounds.limit) return static_cast<int64_t>(i);
    if (i > 0 && (number - before < bounds.least || number - before > bounds.most)) return static_cast<int64_t>(i);
  }
  return kNone;
}

template <class T>
int64_t first_wrong_span(std::span<const T> starts, std::span<const T> counts, const Bounds& bounds) {
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t start = starts[i], count = counts[i];
    const bool is_inside = start >= 0 && start <= bounds.limit && count <= bounds.limit - start;
    if (!is_inside || count < bounds.least || count > bounds.most) return static_cast<int64_t>(i);
  }
  return kNone;
}

/// Two spans that share a row, the lower start first. Spans are usually in order and then need no sorting.
template <class T>
std::optional<std::pair<size_t, size_t>> shared_rows(std::span<const T> starts, std::span<const T> counts) {
  int64_t end = 0;
  bool is_rising = true;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (counts[i] == 0) continue;
    is_rising &= starts[i] >= end;
    end = int64_t{starts[i]} + counts[i];
  }
  if (is_rising) return std::nullopt;
  std::vector<size_t> order;
  for (size_t i = 0; i < starts.size(); ++i)
    if (counts[i] > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return starts[a] < starts[b]; });
  for (size_t i = 1; i < order.size(); ++i)
    if (starts[order[i]] < int64_t{starts[order[i - 1]]} + counts[order[i - 1]]) return {{order[i - 1], order[i]}};
  return std::nullopt;
}

/// Calls `body` with a value of the tensor's integer type.
template <class Body>
auto with_type(const Tensor& tensor, const Body& body) {
  return tensor.dtype == DType::i32 ? body(int32_t{}) : body(int64_t{});
}

/// Calls `body` with the elements of each innermost row and the row's indices, until `body` returns false.
template <class T, class Body>
bool for_each_row(const Tensor& tensor, const Body& body) {
  std::array<int64_t, kMaxRank> at{};
  const int outer = std::max(tensor.rank - 1, 0);
  if (tensor.num_elements() <= 0) return true;
  while (true) {
    const T* row = static_cast<const T*>(tensor.data);
    for (int d = 0; d < outer; ++d) row += at[d] * tensor.strides[d];
    const auto count = static_cast<size_t>(tensor.rank > 0 ? tensor.sizes[outer] : 1);
    if (!body(std::span<const T>(row, count), at)) return false;
    int d = outer - 1;
    while (d >= 0 && ++at[d] == tensor.sizes[d]) at[d--] = 0;
    if (d < 0) return true;
  }
}

}  // namespace

IndexCheck::Limit IndexCheck::limit_of(const Dim& dim, const std::vector<std::string>& symbols) {
  if (dim.symbol.empty()) return {dim.size, -1, ""};
  const auto found = std::find(symbols.begin(), symbols.end(), dim.symbol);
  if (found == symbols.end()) fail(fmt::format("an index rule names unknown symbol '{}'", dim.symbol));
  return {dim.size, static_cast<int>(found - symbols.begin()), dim.symbol};
}

IndexCheck::IndexCheck(const Schema& schema, const std::vector<std::string>& symbols) {
  const auto find = [&](const std::string& name, bool is_list) {
    const auto found =
        std::find_if(schema.args.begin(), schema.args.end(), [&](const ArgSpec& spec) { return spec.name == name; });
    if (found == schema.args.end()) fail(fmt::format("an index rule names unknown argument '{}'", name));
    if (found->role == ArgRole::output || (found->dtype != DType::i32 && found->dtype != DType::i64) ||
        (is_list && found->dims.size() != 1))
      fail(fmt::format("argument '{}' cannot have an index rule; it must be an input of i32 or i64{}", name,
                       is_list ? " with one dimension" : ""));
    return static_cast<size_t>(found - schema.args.begin());
  };
  for (const IndexRule& given : schema.indices) {
    const bool is_list = given.kind != Kind::places;
    Rule rule{given.kind,       find(given.arg, is_list),       0,           given.arg,
              given.counts,     limit_of(given.limit, symbols), given.least, std::nullopt,
              given.is_disjoint};
    if (given.kind == Kind::spans) {
      rule.counts = find(given.counts, true);
      const ArgSpec &starts = schema.args[rule.arg], &counts = schema.args[rule.counts];
      if (starts.dtype != counts.dtype || starts.dims[0].symbol != counts.dims[0].symbol ||
          starts.dims[0].size != counts.dims[0].size)
        fail(fmt::format("arguments '{}' and '{}' differ in dtype or size; spans need one number of each", given.arg,
                         given.counts));
    }
    if (given.most) rule.most = limit_of(*given.most, symbols);
    rules_.push_back(std::move(rule));
  }
}

IndexBounds IndexCheck::bounds_of(const Rule& rule, std::span<const int64_t> symbols) {
  return {rule.limit.value(symbols), rule.least, rule.most ? rule.most->value(symbols) : INT64_MAX};
}

bool IndexCheck::is_kept(const Rule& rule, std::span<const Tensor> tensors, std::span<const int64_t> symbols) {
  const Tensor& tensor = tensors[rule.arg];
  return with_type(tensor, [&](auto type) {
    using T = decltype(type);
    const Bounds bounds = bounds_of(rule, symbols);
    if (rule.kind == Kind::places)
      return for_each_row<T>(
          tensor, [&](std::span<const T> row, const auto&) { return first_wrong_place(row, bounds.limit) == kNone; });
    const auto numbers = list_of<T>(tensor);
    if (rule.kind == Kind::borders) return first_wrong_border(numbers, bounds) == kNone;
    const auto counts = list_of<T>(tensors[rule.counts]);
    if (first_wrong_span(numbers, counts, bounds) != kNone) return false;
    return !rule.is_disjoint || !shared_rows(numbers, counts);
  });
}

namespace {

/// A broken rule; the text is empty if the rule is kept.
struct Complaint {
  bool is_of_counts = false;  ///< the wrong element is in `counts`, not in `arg`
  std::string text;
};

template <class T>
Complaint problem_of_places(const Tensor& tensor, int64_t limit, const std::string& limit_text) {
  Complaint problem;
  for_each_row<T>(tensor, [&](std::span<const T> row, const std::array<int64_t, kMaxRank>& at) {
    const int64_t i = first_wrong_place(row, limit);
    if (i == kNone) return true;
    std::string place;
    for (int d = 0; d + 1 < tensor.rank; ++d) place += fmt::format("{}, ", at[d]);
    problem.text = fmt::format("element {}{} is {}; it must be at least 0 and below {}", place, i, row[i], limit_text);
    return false;
  });
  return problem;
}

template <class T>
Complaint problem_of_borders(std::span<const T> numbers, const Bounds& bounds, const std::string& limit_text,
                             const std::string& most_text) {
  const int64_t i = first_wrong_border(numbers, bounds);
  if (i == kNone) return {};
  const int64_t number = numbers[i], before = i == 0 ? 0 : int64_t{numbers[i - 1]};
  if (number < 0) return {false, fmt::format("element {} is {}; it must be at least 0", i, number)};
  const int64_t rows = number - before;
  if (rows < 0)
    return {false,
            fmt::format("element {} is {}; it must be at least {}, which is element {}", i, number, before, i - 1)};
  if (number > bounds.limit)
    return {false, fmt::format("element {} is {}; it must be at most {}", i, number, limit_text)};
  const std::string expected = rows < bounds.least ? fmt::format("at least {}", bounds.least) : "at most " + most_text;
  return {false, fmt::format("elements {} and {} are {} and {}, which is a list of {}; {} expected", i - 1, i, before,
                             number, counted(rows, "row"), expected)};
}

template <class T>
Complaint problem_of_spans(std::span<const T> starts, std::span<const T> counts, const Bounds& bounds,
                           const std::string& limit_text, const std::string& most_text,
                           const std::string& counts_name) {
  const int64_t i = first_wrong_span(starts, counts, bounds);
  if (i == kNone) return {};
  const int64_t start = starts[i], count = counts[i];
  if (count < bounds.least)
    return {true, fmt::format("element {} is {}; it must be at least {}", i, count, bounds.least)};
  if (count > bounds.most) return {true, fmt::format("element {} is {}; it must be at most {}", i, count, most_text)};
  if (start < 0) return {false, fmt::format("element {} is {}; it must be at least 0", i, start)};
  return {false, fmt::format("element {} is {}; with its {} ('{}') it must end at {} or before", i, start,
                             counted(count, "row"), counts_name, limit_text)};
}

template <class T>
Complaint problem_of_shared_rows(std::span<const T> starts, std::span<const T> counts, const std::string& counts_name) {
  const auto shared = shared_rows(starts, counts);
  if (!shared) return {};
  const auto [a, b] = *shared;
  return {false, fmt::format("elements {} and {} are {} and {}, and the first list has {} ('{}'); rows of two lists "
                             "would be written twice",
                             a, b, starts[a], starts[b], counted(counts[a], "row"), counts_name)};
}

}  // namespace

void IndexCheck::refuse(const Rule& rule, std::span<const Tensor> tensors, std::span<const int64_t> symbols) {
  const auto text = [&](const Limit& limit) {
    const std::string plus = limit.size ? fmt::format(" + {}", limit.size) : "";
    return fmt::format("{}{}", limit.value(symbols), limit.symbol < 0 ? "" : fmt::format(" ({}{})", limit.name, plus));
  };
  const Bounds bounds = bounds_of(rule, symbols);
  const std::string limit = text(rule.limit), most = rule.most ? text(*rule.most) : "";
  const Complaint problem = with_type(tensors[rule.arg], [&](auto type) {
    using T = decltype(type);
    if (rule.kind == Kind::places) return problem_of_places<T>(tensors[rule.arg], bounds.limit, limit);
    const auto numbers = list_of<T>(tensors[rule.arg]);
    if (rule.kind == Kind::borders) return problem_of_borders(numbers, bounds, limit, most);
    const auto counts = list_of<T>(tensors[rule.counts]);
    Complaint found = problem_of_spans(numbers, counts, bounds, limit, most, rule.counts_name);
    return found.text.empty() ? problem_of_shared_rows(numbers, counts, rule.counts_name) : found;
  });
  fail(fmt::format("argument {} '{}': {}", problem.is_of_counts ? rule.counts : rule.arg,
                   problem.is_of_counts ? rule.counts_name : rule.arg_name,
                   problem.text.empty() ? "its numbers change during the call" : problem.text));
}

}  // namespace seqtile::autotune
