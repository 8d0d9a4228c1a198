// tests/kernels/seqpar/fused_linear_test.cpp -- products that communicate inside their launch, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <random>
#include <unistd.h>

#include <fmt/core.h>

#include "jit/compiler.h"
#include "jit/error.h"
#include "kernels/linear.h"
#include "kernels/seqpar/allgather_linear.h"
#include "kernels/seqpar/linear_reduce.h"
#include "kernels/tensor_values.h"
#include "tests/support/rank_run.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqtile::testing::RankCall;
using seqtile::testing::RankOptions;
using seqtile::testing::RankOutcome;
using seqtile::testing::run_ranks;

namespace {

constexpr int64_t kIdentity = 0x5a17;

struct Case {
  enum Kind { gather, reduce, two_shot, one_shot } kind;
  int world_size;
  int64_t n, k;  ///< of one rank
  std::vector<int64_t> lengths;
  DType dtype = DType::f32;
  linear_op::Tile tile{"outer", 24, 32, 6, 16, 32};
  seqpar::GatherSchedule gathers{16, 1, false};
  seqpar::ReduceSchedule reduces{24, 5};
  DType transport = DType::f32;

  seqpar::ReduceForm form() const {
    return kind == reduce     ? seqpar::ReduceForm::scatter
           : kind == two_shot ? seqpar::ReduceForm::two_shot
                              : seqpar::ReduceForm::one_shot;
  }
};

constexpr Case::Kind kKinds[] = {Case::gather, Case::reduce, Case::two_shot, Case::one_shot};

/// A tensor of its own memory, NaN at first.
struct Buffer {
  Buffer(DType dtype, std::initializer_list<int64_t> sizes) : tensor(make_tensor(nullptr, dtype, sizes)) {
    bytes.assign(static_cast<size_t>(tensor.num_elements() * dtype_bytes(dtype)) + 64, std::byte{0xff});
    tensor.data = bytes.data();
  }
  std::vector<std::byte> bytes;
  Tensor tensor;
};

using Sizes = std::initializer_list<int64_t>;

int64_t first_row(int rank, int64_t length, int world_size) { return rank * length / world_size; }

/// Operands are 0 or 1 and mostly 0: every order of the sums gives the same bits, in bf16 too.
void fill_sparsely(const Tensor& tensor, std::mt19937& random) {
  for (int64_t i = 0; i < tensor.num_elements(); ++i) write_element(tensor, i, random() % 8 == 0);
}

double product(const Tensor& x, int64_t row, const Tensor& w, int64_t column) {
  double sum = 0;
  for (int64_t i = 0, k = w.sizes[1]; i < k; ++i) sum += read_element(x, row * k + i) * read_element(w, column * k + i);
  return sum;
}

/// The launches of a case with their tensors, and what must come out.
class Problem {
 public:
  explicit Problem(const Case& c) : case_(c), shape_(workload(c)), calls(static_cast<size_t>(c.world_size)) {
    std::mt19937 random(17);
    for (int rank = 0; rank < c.world_size; ++rank) {
      weights_.emplace_back(c.dtype, Sizes{c.n, c.k});
      fill_sparsely(weights_.back().tensor, random);
    }
    for (const int64_t length : c.lengths)
      c.kind == Case::gather ? add_gather(length, random) : add_reduce(length, random);
  }

  std::unique_ptr<ir::Function> kernel() const {
    const Case& c = case_;
    KernelBuilder b(c.kind == Case::gather ? "allgather_linear" : "linear_reduce");
    if (c.kind == Case::gather) seqpar::build_allgather_linear(b, shape_, c.tile, c.gathers, c.world_size, kIdentity);
    else seqpar::build_linear_reduce(b, shape_, c.tile, c.reduces, c.form(), c.world_size, c.transport, kIdentity);
    return b.finish();
  }

  ChannelOptions channel(ChannelOptions options) const {
    const Case& c = case_;
    const seqpar::ExchangeShape shape =
        c.kind == Case::gather
            ? seqpar::gather_shape(shape_, c.world_size, kIdentity, c.gathers.chunk_rows)
            : seqpar::reduce_shape(partials(), c.form(), c.world_size, kIdentity, c.reduces.chunk_rows);
    options.capacity = capacity();
    options.staging_bytes = seqpar::staging_bytes(shape, capacity());
    options.flags_per_source = seqpar::flags_per_source(shape, capacity());
    return options;
  }

  /// The first one with an element that is not as wanted; the number of epochs where all are.
  size_t first_wrong_epoch() const {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (!difference_in(i).empty()) return i / static_cast<size_t>(case_.world_size);
    return case_.lengths.size();
  }
  /// Whether every rank but `other` has nothing but NaN from an epoch on.
  bool is_nan_from(size_t epoch, size_t other) const {
    const auto world_size = static_cast<size_t>(case_.world_size);
    for (size_t i = epoch * world_size; i < outputs_.size(); ++i)
      for (int64_t e = 0; e < outputs_[i].tensor.num_elements() && i % world_size != other; ++e)
        if (!std::isnan(read_element(outputs_[i].tensor, e))) return false;
    return true;
  }

  /// Empty, or the first element that is wrong.
  std::string difference() const {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (std::string text = difference_in(i); !text.empty()) return text;
    return "";
  }

 private:
  std::string difference_in(size_t i) const {
    const auto rank = static_cast<int>(i % static_cast<size_t>(case_.world_size));
    const size_t epoch = i / static_cast<size_t>(case_.world_size);
    const Tensor& y = outputs_[i].tensor;
    for (int64_t row = 0; row < y.sizes[0]; ++row)
      for (int64_t column = 0; column < case_.n; ++column) {
        const double got = read_element(y, row * case_.n + column), want = wanted(epoch, rank, row, column);
        if (got != want)
          return fmt::format("epoch {}, rank {}, y[{}, {}] is {}, not {}", epoch, rank, row, column, got, want);
      }
    return "";
  }

  static autotune::Workload workload(const Case& c) {
    return linear().normalize({"linear", c.dtype, 1, {{"n", c.n}, {"k", c.k}}});
  }

  static int64_t value(const autotune::SizeExpr& size, int64_t length) { return size.value({&length, 1}); }

  seqpar::PartialShape partials() const { return seqpar::partial_products(shape_, case_.tile, case_.transport, {}); }

  int64_t capacity() const { return *std::max_element(case_.lengths.begin(), case_.lengths.end()); }

  void add_gather(int64_t length, std::mt19937& random) {
    inputs_.emplace_back(case_.dtype, Sizes{length, case_.k});
    fill_sparsely(inputs_.back().tensor, random);
    for (int rank = 0; rank < case_.world_size; ++rank) {
      const int64_t first = first_row(rank, length, case_.world_size);
      Tensor x = inputs_.back().tensor;
      x.data = static_cast<std::byte*>(x.data) + first * case_.k * dtype_bytes(case_.dtype);
      x.sizes[0] = first_row(rank + 1, length, case_.world_size) - first;
      outputs_.emplace_back(case_.dtype, Sizes{length, case_.n});
      const auto r = static_cast<size_t>(rank);
      calls[r].push_back(
          {{value(seqpar::gather_programs(shape_, case_.tile, case_.gathers, case_.world_size), length), 1, 1},
           {x, weights_[r].tensor, outputs_.back().tensor},
           1});
    }
  }

  void add_reduce(int64_t length, std::mt19937& random) {
    for (int rank = 0; rank < case_.world_size; ++rank) {
      inputs_.emplace_back(case_.dtype, Sizes{length, case_.k});
      fill_sparsely(inputs_.back().tensor, random);
      const int64_t own = first_row(rank + 1, length, case_.world_size) - first_row(rank, length, case_.world_size);
      outputs_.emplace_back(case_.dtype, Sizes{case_.kind == Case::reduce ? own : length, case_.n});
      const auto r = static_cast<size_t>(rank);
      calls[r].push_back(
          {{value(seqpar::reduce_programs(partials(), case_.reduces, case_.form(), case_.world_size), length), 1, 1},
           {inputs_.back().tensor, weights_[r].tensor, outputs_.back().tensor},
           value(seqpar::num_counters(case_.reduces, case_.form(), case_.world_size), length)});
    }
  }

  double wanted(size_t epoch, int rank, int64_t row, int64_t column) const {
    if (case_.kind == Case::gather)
      return product(inputs_[epoch].tensor, row, weights_[static_cast<size_t>(rank)].tensor, column);
    double sum = 0;
    if (case_.kind == Case::reduce) row += first_row(rank, case_.lengths[epoch], case_.world_size);
    for (size_t source = 0; source < weights_.size(); ++source)
      sum += product(inputs_[epoch * weights_.size() + source].tensor, row, weights_[source].tensor, column);
    return sum;
  }

  const Case case_;
  const linear_op::Shape shape_;
  std::deque<Buffer> weights_, inputs_, outputs_;

 public:
  std::vector<std::vector<RankCall>> calls;
};

void check(const Case& c, RankOptions options) {
  Problem problem(c);
  options.world_size = c.world_size;
  options.channel = problem.channel(options.channel);
  const auto function = problem.kernel();
  const RankOutcome outcome = run_ranks(*function, options, problem.calls);
  for (const std::string& error : outcome.errors) CHECK(error == "");
  INFO(options.device << ", kind " << c.kind << ", " << c.world_size << " ranks, n " << c.n << ", k " << c.k);
  for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
  for (const uint64_t epoch : outcome.epochs)
    CHECK(epoch == ((options.channel.first_epoch + c.lengths.size()) & channel::kEpochMask));
  CHECK(problem.difference() == "");
}

}  // namespace

TEST_CASE("fused linear: exact on the CPU, any number of ranks and rows", "[seqpar][sweep]") {
  for (const std::string device : {"threads", "processes"})
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {1, 2, 3, 4, 8})
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}}) {
          RankOptions options;
          options.device = device;
          check({kind, world_size, n, k, {0, 1, 5, 64, 200, 257, 3, 100}}, options);
        }
}

TEST_CASE("fused linear: exact where ranks pause at random", "[seqpar]") {
  for (const std::string device : {"threads", "processes"})
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {2, 3, 4}) {
        std::mt19937 random(static_cast<uint32_t>(world_size));
        Case c{kind, world_size, 40, 48, {}};
        for (int epoch = 0; epoch < 60; ++epoch) c.lengths.push_back(static_cast<int64_t>(random() % 97));
        RankOptions options;
        options.device = device;
        options.seed = 5, options.slow_rank = 1;
        check(c, options);
      }
}

TEST_CASE("fused linear: the epoch goes on around 2^31, 2^32 and 2^48", "[seqpar]") {
  for (const Case::Kind kind : kKinds)
    for (const int bits : {31, 32, 48}) {
      Case c{kind, 2, 24, 16, {30, 0, 7, 31, 64, 1}};
      RankOptions options;
      options.channel.first_epoch = (uint64_t{1} << bits) - 3;
      check(c, options);
    }
}

namespace {

/// A GPU's kernel takes small tiles, so that a call has several programs.
Case simulated(Case c) {
  c.tile = {"mma", 32, 32, 16, 8, 32, 4, 3};
  c.reduces = {32, 4};
  return c;
}

}  // namespace

TEST_CASE("fused linear: exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const std::string device : {"sim:sm_80", "sim:sm_90a"})
    for (const Case::Kind kind : kKinds)
      for (const int world_size : {1, 2, 3}) {
        RankOptions options;
        options.device = device;
        for (const DType dtype : {DType::bf16, DType::f32})
          check(simulated({kind, world_size, 72, 48, {0, 1, 5, 70}, dtype}), options);
      }
}

TEST_CASE("fused linear: a rank that is killed ends the others with a record and NaN", "[seqpar]") {
  for (const Case::Kind kind : kKinds) {
    const Case c{kind, 4, 24, 16, {40, 33, 64, 50}};
    Problem problem(c);
    RankOptions options;
    options.device = "processes", options.world_size = 4;
    options.channel = problem.channel({.deadline = std::chrono::seconds(100)});
    options.before_launch = [](int rank, int epoch) {
      if (rank == 2 && epoch == 2) _exit(9);
    };
    const auto start = std::chrono::steady_clock::now();
    const RankOutcome outcome = run_ranks(*problem.kernel(), options, problem.calls);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    for (size_t rank = 0; rank < 4; ++rank) {
      if (rank == 2) continue;
      INFO("rank " << rank << ": " << outcome.errors[rank]);
      CHECK_THAT(outcome.errors[rank], Catch::Contains("a rank has died"));
    }
    CHECK(problem.first_wrong_epoch() == 2);
    CHECK(problem.is_nan_from(2, 2));
  }
}

TEST_CASE("fused linear: another length on one rank is a record on all and NaN, never wrong data", "[seqpar]") {
  for (const std::string device : {"threads", "processes"})
    for (const int world_size : {2, 3}) {
      Case c{Case::gather, world_size, 24, 16, {40, 33, 64}};
      Problem problem(c);
      problem.calls[1][1] = problem.calls[1][0];
      RankOptions options;
      options.device = device, options.world_size = world_size;
      options.channel = problem.channel(options.channel);
      const RankOutcome outcome = run_ranks(*problem.kernel(), options, problem.calls);
      for (const auto& record : outcome.records) {
        REQUIRE(record);
        CHECK((record->kind == channel::mismatch || record->kind == channel::aborted));
        CHECK(record->epoch >= 2);
      }
      CHECK(problem.is_nan_from(1, 1));
    }
}

TEST_CASE("fused linear: nothing is reported under random schedules", "[seqpar][sim][sweep]") {
  for (const Case::Kind kind : kKinds)
    for (const int world_size : {2, 3})
      for (uint32_t seed = 1; seed <= 10; ++seed) {
        std::mt19937 random(seed);
        Case c{kind, world_size, 40, 32, {}, DType::bf16};
        for (int epoch = 0; epoch < 5; ++epoch)
          c.lengths.push_back(static_cast<int64_t>(random() % (epoch % 2 ? 80 : 4)));
        RankOptions options;
        options.device = "sim:sm_80", options.seed = seed;
        check(simulated(c), options);
      }
}

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()), ++count)
    text.replace(at, from.size(), to);
  INFO("the text has no " << from);
  REQUIRE(count > 0);
  return text;
}

/// What the machine says of a kernel in which every `from` is `to`.
std::string report_of_fault(Case::Kind kind, const std::string& from, const std::string& to) {
  Problem problem(simulated({kind, 2, 40, 32, {64, 1, 40, 64}, DType::bf16}));
  RankOptions options;
  options.device = "sim:sm_80";
  options.channel = problem.channel(options.channel);
  options.edit_ptx = [&](std::string text) { return replaced(std::move(text), from, to); };
  try {
    run_ranks(*problem.kernel(), options, problem.calls);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("fused linear: a weaker order or scope of a flag or counter is reported as the race it is", "[seqpar][sim]") {
  const std::pair<std::string, std::string> faults[] = {
      {"st.release.sys.global.b64", "st.relaxed.sys.global.b64"},
      {"st.release.sys.global.b64", "st.release.gpu.global.b64"},
      {"st.release.sys.global.b64", "st.global.b64"},
      {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
      {"ld.acquire.sys.global.u64", "ld.acquire.gpu.global.u64"},
      {"ld.acquire.sys.global.u64", "ld.volatile.global.u64"},
      {"atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32"}};
  for (const Case::Kind kind : kKinds)
    for (const auto& [from, to] : faults) {
      INFO(from << " -> " << to);
      CHECK_THAT(report_of_fault(kind, from, to), Catch::Contains("race") || Catch::Contains("scope"));
    }
}

TEST_CASE("fused linear: the text keeps to the orders and scopes of the protocol", "[seqpar]") {
  for (const char* target : {"sm_80", "sm_90a"})
    for (const Case::Kind kind : kKinds) {
      const Problem problem(simulated({kind, 2, 40, 32, {64}, DType::bf16}));
      const KernelBinary binary = compile(*problem.kernel(), gpu_target(target));
      const std::string_view text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
      CHECK(text.find("st.release.sys.global.b64") != std::string_view::npos);
      CHECK(text.find("ld.acquire.sys.global.u64") != std::string_view::npos);
      for (const char* weak : {"ld.global.nc", "ld.volatile.global", "st.volatile.global", ".acquire.gpu.global.u64",
                               ".release.gpu.global.b64"}) {
        INFO(weak);
        CHECK(text.find(weak) == std::string_view::npos);
      }
      CHECK(binary.gpu.is_cooperative);
      CHECK(binary.gpu.is_persistent);
      CHECK(binary.gpu.is_in_order);
    }
}
