// tests/kernels/seqpar/matmul_backward_test.cpp -- both gradients of a layer in one launch of each rank, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include <fmt/core.h>

#include "jit/compiler.h"
#include "jit/error.h"
#include "jit/row_alignment.h"
#include "kernels/seqpar/channel_args.h"
#include "kernels/seqpar/matmul_backward.h"
#include "kernels/tensor_values.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/rank_run.h"

using namespace seqtile;
using namespace seqtile::kernels;
using autotune::Config;
using seqtile::testing::RankCall;
using seqtile::testing::RankOptions;
using seqtile::testing::RankOutcome;
using seqtile::testing::run_ranks;

namespace {

constexpr bool kBoth[] = {true, false};  // trailing, leading

struct Case {
  bool is_trailing;
  int world_size;
  std::vector<int64_t> n;  ///< of one rank's weights
  int64_t k;
  std::vector<int64_t> lengths;
  DType dtype = DType::f32;
  bool accumulate = false, f32_gradient = false;
  int64_t chunk_rows = 24;
  bool has_any_values = false;

  autotune::Workload workload() const {
    const int64_t n2 = n.size() > 1 ? n[1] : 0, n3 = n.size() > 2 ? n[2] : 0;
    if (is_trailing)
      return seqpar::SequenceParallelTrailingMatmulBackward{world_size, n[0], k, accumulate, f32_gradient, dtype}
          .workload();
    return seqpar::SequenceParallelLeadingMatmulBackward{world_size, n[0],         n2,         n3,   k,
                                                         accumulate, f32_gradient, DType::f32, dtype}
        .workload();
  }
};

/// Small tiles, so that a call has several programs of each kind.
Config config_of(const Case& c, bool is_gpu) {
  Config config{{"chunk_rows", is_gpu ? int64_t{32} : c.chunk_rows}, {"push_programs", int64_t{1}}};
  const auto set = [&](const char* name, int64_t value) { config.set(name, value); };
  if (is_gpu) {
    for (const char* name : {"block_m", "block_n", "block_k", "wgrad_block_m", "wgrad_block_n", "wgrad_block_k"})
      set(name, 32);
    set("num_warps", 4), set("num_stages", 3);
  } else {
    for (const char* name : {"form", "wgrad_form"}) config.set(name, std::string("outer"));
    set("block_m", 24), set("block_n", 32), set("mr", 6), set("nr", 16), set("kc", 32);
    set("wgrad_block_m", 18), set("wgrad_block_n", 32), set("wgrad_mr", 6), set("wgrad_nr", 16), set("wgrad_kc", 16);
  }
  if (c.is_trailing) config.set("order", std::string("rotate"));
  return config;
}

/// Values of 0 and 1, mostly 0: every order of the sums gives the same bits, in bf16 too; or any values.
struct Matrix {
  int64_t rows, columns;
  DType dtype;
  std::vector<float> values;
  std::vector<std::byte> bytes;  ///< NaN where there are no values

  Matrix(int64_t rows, int64_t columns, DType dtype) : rows(rows), columns(columns), dtype(dtype) {
    bytes.assign(static_cast<size_t>(rows * columns * dtype_bytes(dtype)) + 64, std::byte{0xff});
  }
  Matrix(int64_t rows, int64_t columns, DType dtype, std::mt19937& random, bool is_any = false)
      : Matrix(rows, columns, dtype) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      values.push_back(is_any ? static_cast<float>(random()) * 0x1p-32F - 0.5F : static_cast<float>(random() % 8 == 0));
      write_element(tensor(), i, values.back());
    }
  }
  Tensor tensor() { return make_tensor(bytes.data(), dtype, {rows, columns}); }
  Tensor part(int64_t first, int64_t count) {
    return make_tensor(bytes.data() + first * columns * dtype_bytes(dtype), dtype, {count, columns});
  }
  float at(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * columns + column)]; }
};

/// sum += a b, or the transpose of a times b.
void add_product(std::vector<float>& sum, const Matrix& a, const Matrix& b, bool transposes_a) {
  const int64_t rows = transposes_a ? a.columns : a.rows, depth = transposes_a ? a.rows : a.columns;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < depth; ++i)
      if (const float factor = transposes_a ? a.at(i, row) : a.at(row, i); factor != 0)
        for (int64_t column = 0; column < b.columns; ++column)
          sum[static_cast<size_t>(row * b.columns + column)] += factor * b.at(i, column);
}

std::string difference(Matrix& got, int64_t first_row, const std::vector<float>& want, const std::string& name) {
  for (int64_t i = 0; i < got.rows * got.columns; ++i) {
    const double value = read_element(got.tensor(), i), wanted = want[static_cast<size_t>(first_row * got.columns + i)];
    if (value != wanted)
      return fmt::format("{}[{}, {}] is {}, not {}", name, i / got.columns, i % got.columns, value, wanted);
  }
  return "";
}

/// The tensors of one launch on every rank. What ranks have parts of is one matrix.
class Launch {
 public:
  Launch(const Case& c, int64_t length, std::deque<std::vector<Matrix>>& weights, std::mt19937& random)
      : case_(c),
        length_(length),
        weights_(weights),
        cut_(length, c.is_trailing ? c.n[0] : c.k, c.dtype, random, c.has_any_values) {
    for (int rank = 0; rank < c.world_size; ++rank) {
      auto& whole = whole_.emplace_back();
      auto& dw = dw_.emplace_back();
      for (const int64_t n : c.n) {
        whole.emplace_back(length, c.is_trailing ? c.k : n, c.dtype, random, c.has_any_values);
        const DType dw_dtype = c.f32_gradient ? DType::f32 : c.dtype;
        dw.push_back(c.accumulate ? Matrix(n, c.k, dw_dtype, random) : Matrix(n, c.k, dw_dtype));
      }
      dx_.emplace_back(c.is_trailing ? length : rows_of(rank), c.k, c.dtype);
    }
  }

  std::vector<Tensor> tensors(size_t rank) {
    std::vector<Tensor> w, whole, dw, all;
    for (size_t i = 0; i < case_.n.size(); ++i) {
      w.push_back(weights_[rank][i].tensor());
      whole.push_back(whole_[rank][i].tensor());
      dw.push_back(dw_[rank][i].tensor());
    }
    const std::vector<Tensor> cut{cut_.part(first_row(static_cast<int>(rank)), rows_of(static_cast<int>(rank)))};
    const auto add = [&](const std::vector<Tensor>& more) { all.insert(all.end(), more.begin(), more.end()); };
    add(case_.is_trailing ? cut : whole), add(w), add(case_.is_trailing ? whole : cut);
    if (case_.accumulate) add(dw);  // in place
    add({dx_[rank].tensor()}), add(dw);
    return all;
  }

  std::string difference() {
    std::string text;
    std::vector<float> sums(static_cast<size_t>(length_ * case_.k));
    for (size_t rank = 0; rank < dx_.size() && text.empty(); ++rank) {
      if (case_.is_trailing) std::ranges::fill(sums, 0.0F);
      const size_t first = case_.is_trailing ? rank : 0, last = case_.is_trailing ? rank + 1 : dx_.size();
      for (size_t source = first; source < last && (case_.is_trailing || rank == 0); ++source)
        for (size_t i = 0; i < case_.n.size(); ++i)
          add_product(sums, case_.is_trailing ? cut_ : whole_[source][i], weights_[source][i], false);
      const int64_t row = case_.is_trailing ? 0 : first_row(static_cast<int>(rank));
      text = ::difference(dx_[rank], row, sums, fmt::format("length {}, rank {}, dx", length_, rank));
      for (size_t i = 0; i < case_.n.size() && text.empty(); ++i) text = difference_of_dw(rank, i);
    }
    return text;
  }
  void append_outputs(std::vector<std::byte>& bits) const {
    for (size_t rank = 0; rank < dx_.size(); ++rank) {
      bits.insert(bits.end(), dx_[rank].bytes.begin(), dx_[rank].bytes.end());
      for (const Matrix& dw : dw_[rank]) bits.insert(bits.end(), dw.bytes.begin(), dw.bytes.end());
    }
  }
  bool is_nan() {
    for (size_t rank = 0; rank < dx_.size(); ++rank) {
      std::vector<Matrix*> outputs{&dx_[rank]};
      for (Matrix& dw : dw_[rank]) outputs.push_back(&dw);
      for (Matrix* output : outputs)
        for (int64_t i = 0; i < output->rows * output->columns; ++i)
          if (!std::isnan(read_element(output->tensor(), i))) return false;
    }
    return true;
  }

 private:
  std::string difference_of_dw(size_t rank, size_t i) {
    Matrix& dw = dw_[rank][i];
    std::vector<float> sums = dw.values;
    sums.resize(static_cast<size_t>(dw.rows * dw.columns));
    add_product(sums, case_.is_trailing ? cut_ : whole_[rank][i], case_.is_trailing ? whole_[rank][i] : cut_, true);
    return ::difference(dw, 0, sums, fmt::format("length {}, rank {}, dw of weight {}", length_, rank, i));
  }
  int64_t first_row(int rank) const { return rank * length_ / case_.world_size; }
  int64_t rows_of(int rank) const { return first_row(rank + 1) - first_row(rank); }

  const Case& case_;
  const int64_t length_;
  std::deque<std::vector<Matrix>>& weights_;
  Matrix cut_;
  std::deque<std::vector<Matrix>> whole_, dw_;
  std::deque<Matrix> dx_;
};

/// The launches of a case.
class Problem {
 public:
  Problem(const Case& c, const std::string& device)
      : case_(c),
        op_(testing::library_op(c.workload().operation)),
        workload_(op_.normalize(c.workload())),
        is_gpu_(device.starts_with("sim:")),
        config_(config_of(c, is_gpu_)),
        function(kernel()),
        calls(static_cast<size_t>(c.world_size)) {
    std::mt19937 random(17);
    for (int rank = 0; rank < c.world_size; ++rank) {
      auto& weights = weights_.emplace_back();
      for (const int64_t n : c.n) weights.emplace_back(n, c.k, c.dtype, random, c.has_any_values);
    }
    for (const int64_t length : c.lengths) {
      Launch& launch = launches.emplace_back(case_, length, weights_, random);
      const std::array symbols{length};
      for (size_t rank = 0; rank < calls.size(); ++rank)
        calls[rank].push_back({{op_.grid(workload_, config_)[0].value(symbols), 1, 1},
                               launch.tensors(rank),
                               op_.workspaces(workload_, config_)[0].elements.value(symbols)});
    }
  }

  /// Without the parameter by which graphs know the length.
  std::unique_ptr<ir::Function> kernel() const {
    KernelBuilder b(op_.name);
    if (is_gpu_) {
      b.align_rows(kGpuAlignment);
      for (const char* name : {"num_warps", "num_stages"}) b.schedule({{name, config_.get_int(name)}});
    }
    op_.build(b, workload_, config_, host_target());
    return b.finish();
  }
  RankOptions options(RankOptions options) const {
    const int64_t capacity = *std::ranges::max_element(case_.lengths);
    const auto exchange = seqpar::matmul_backward_exchange(workload_, config_.get_int("chunk_rows"));
    const auto needs = seqpar::needs_of(exchange, capacity);
    options.world_size = case_.world_size;
    options.channel.capacity = capacity;
    options.channel.staging_bytes = needs.staging_bytes;
    options.channel.flags_per_source = needs.flags_per_source;
    return options;
  }

 private:
  const Case case_;
  const autotune::OpDef& op_;
  const autotune::Workload workload_;
  const bool is_gpu_;
  const Config config_;
  std::deque<std::vector<Matrix>> weights_;

 public:
  std::unique_ptr<ir::Function> function;
  std::deque<Launch> launches;
  std::vector<std::vector<RankCall>> calls;
};

void check(const Case& c, const RankOptions& given) {
  Problem problem(c, given.device);
  const RankOptions options = problem.options(given);
  const RankOutcome outcome = run_ranks(*problem.function, options, problem.calls);
  INFO(options.device << ", " << c.workload().json());
  for (const std::string& error : outcome.errors) CHECK(error == "");
  for (const auto& record : outcome.records) CHECK((record ? record->text() : "") == "");
  for (const uint64_t epoch : outcome.epochs)
    CHECK(epoch == ((options.channel.first_epoch + c.lengths.size()) & channel::kEpochMask));
  for (Launch& launch : problem.launches) CHECK(launch.difference() == "");
}

/// One weight; several of different sizes, where the operation takes them.
std::vector<int64_t> weights_of(bool is_trailing, int64_t n) {
  return is_trailing ? std::vector{n} : std::vector{n, n + 7, (n + 1) / 2};
}

}  // namespace

TEST_CASE("matmul backward: exact on threads, any number of ranks and rows", "[seqpar][sweep]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{72, 64}, {33, 57}, {1, 3}})
        check({is_trailing, world_size, weights_of(is_trailing, n), k, {0, 1, 5, 64, 200, 257, 3, 100}}, {});
}

TEST_CASE("matmul backward: exact in processes that pause at random, gradients added in place", "[seqpar]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {1, 2, 3, 4, 8}) {
      std::mt19937 random(static_cast<uint32_t>(world_size));
      Case c{is_trailing, world_size, weights_of(is_trailing, 33), 45, {0, 1, 2, 100}, DType::bf16, true};
      for (int epoch = 0; epoch < 12; ++epoch) c.lengths.push_back(static_cast<int64_t>(random() % 97));
      c.f32_gradient = world_size % 2 == 0;
      RankOptions options;
      options.device = "processes";
      options.seed = 5, options.slow_rank = 1;
      check(c, options);
    }
}

TEST_CASE("matmul backward: the epoch goes on around 2^31, 2^32 and 2^48", "[seqpar]") {
  for (const bool is_trailing : kBoth)
    for (const int bits : {31, 32, 48}) {
      RankOptions options;
      options.channel.first_epoch = (uint64_t{1} << bits) - 3;
      check({is_trailing, 2, weights_of(is_trailing, 24), 16, {30, 0, 7, 31, 64, 1}}, options);
    }
}

TEST_CASE("matmul backward: exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const std::string device : {"sim:sm_80", "sim:sm_90a"})
    for (const bool is_trailing : kBoth)
      for (const int world_size : {1, 2, 3}) {
        RankOptions options;
        options.device = device;
        check({is_trailing, world_size, weights_of(is_trailing, 40), 48, {0, 1, 5, 70}, DType::bf16, true, true},
              options);
        check({is_trailing, world_size, weights_of(is_trailing, 19), 35, {2, 67}, DType::f32}, options);
      }
}

TEST_CASE("matmul backward: nothing is reported under random schedules", "[seqpar][sim][sweep]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {2, 3})
      for (uint32_t seed = 1; seed <= 4; ++seed) {
        std::mt19937 random(seed);
        Case c{is_trailing, world_size, weights_of(is_trailing, 40), 32, {}, DType::bf16};
        for (int epoch = 0; epoch < 5; ++epoch)
          c.lengths.push_back(static_cast<int64_t>(random() % (epoch % 2 ? 80 : 4)));
        RankOptions options;
        options.device = "sim:sm_80", options.seed = seed;
        check(c, options);
      }
}

TEST_CASE("matmul backward: the same bits for any chunk size, however ranks pause", "[seqpar]") {
  for (const bool is_trailing : kBoth) {
    std::vector<std::vector<std::byte>> bits;
    for (const int64_t chunk_rows : {24, 48, 120})
      for (const int slow_rank : {0, 2}) {
        Case c{is_trailing, 3, weights_of(is_trailing, 33), 45, {150, 151, 7, 150}};
        c.chunk_rows = chunk_rows, c.has_any_values = true;
        Problem problem(c, "threads");
        RankOptions options;
        options.seed = static_cast<uint32_t>(chunk_rows), options.slow_rank = slow_rank;
        run_ranks(*problem.function, problem.options(options), problem.calls);
        std::vector<std::byte> outputs;
        for (Launch& launch : problem.launches) launch.append_outputs(outputs);
        bits.push_back(std::move(outputs));
      }
    for (const auto& other : bits) CHECK(other == bits[0]);
  }
}

TEST_CASE("matmul backward: another length on one rank is a record on all and NaN, gradients too", "[seqpar]") {
  for (const bool is_trailing : kBoth)
    for (const int world_size : {2, 3}) {
      Problem problem({is_trailing, world_size, weights_of(is_trailing, 24), 16, {40, 33, 64}, DType::f32, true},
                      "threads");
      problem.calls[1][1] = problem.calls[1][0];
      const RankOutcome outcome = run_ranks(*problem.function, problem.options({}), problem.calls);
      for (const auto& record : outcome.records) {
        REQUIRE(record);
        CHECK((record->kind == channel::mismatch || record->kind == channel::aborted));
      }
      CHECK(problem.launches.back().is_nan());
    }
}

namespace {

/// What the machine says of a kernel in which every `from` is `to`.
std::string report_of_fault(bool is_trailing, const std::string& from, const std::string& to) {
  Problem problem({is_trailing, 2, weights_of(is_trailing, 40), 32, {64, 1, 40, 64}, DType::bf16}, "sim:sm_80");
  RankOptions options;
  options.device = "sim:sm_80";
  options.edit_ptx = [&](std::string text) {
    size_t count = 0;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()), ++count)
      text.replace(at, from.size(), to);
    if (count == 0) throw Error(ErrorCode::internal, "the text has no " + from);
    return text;
  };
  try {
    run_ranks(*problem.function, problem.options(options), problem.calls);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("matmul backward: a weaker order of a flag or counter is reported as the race it is", "[seqpar][sim]") {
  const std::pair<std::string, std::string> faults[] = {
      {"st.release.sys.global.b64", "st.relaxed.sys.global.b64"},
      {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
      {"atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32"}};
  for (const bool is_trailing : kBoth)
    for (const auto& [from, to] : faults) {
      INFO(from << " -> " << to);
      CHECK_THAT(report_of_fault(is_trailing, from, to), Catch::Contains("race") || Catch::Contains("scope"));
    }
}
