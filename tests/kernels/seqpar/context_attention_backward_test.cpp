// tests/kernels/seqpar/context_attention_backward_test.cpp -- gradients from the rows of all ranks, in every layout.
// SPDX-License-Identifier: Apache-2.0
//
// Random operands are compared with f64. Exact operands must give the bits of one rank: their queries and keys have no
// column in common, so all scores are zero, and sums of small whole numbers are exact in any order. A missing or extra
// query or key then shows.
#include "seqtile/ops/ranks.h"

#include <catch2/catch.hpp>
#include <algorithm>
#include <cstring>
#include <deque>

#include <fmt/core.h>

#include "kernels/attention/attention_backward_parts.h"
#include "seqtile/kernel.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/sharded_rows.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqtile::testing::kSharedGpus;
using seqtile::testing::kSimulatedRanks;
using seqtile::testing::launch_of;
using seqtile::testing::library_op;
using seqtile::testing::RankCall;
using seqtile::testing::RankOptions;
using seqtile::testing::RankOutcome;
using seqtile::testing::require_success;
using seqtile::testing::RowMatrix;
using seqtile::testing::run_rank_op;

namespace {

/// The tensors of a call, in schema order.
enum Which { kQ, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kNumTensors };
constexpr const char* kNames[] = {"q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"};

constexpr seqpar::RowLayout kLayouts[] = {seqpar::RowLayout::contiguous, seqpar::RowLayout::zigzag};

struct Case {
  int world_size = 2;
  bool causal = true;
  seqpar::RowLayout layout = seqpar::RowLayout::contiguous;
  DType dtype = DType::f32;
  int64_t heads = 4, kv_heads = 2, head_dim = 16;
  std::vector<int64_t> lengths = {0, 1, 5, 64, 131, 3};
  int64_t block = 32, block_n = 16, chunk_rows = 32;
  bool is_exact = false;
  uint32_t seed = 7;

  autotune::Workload workload() const {
    seqpar::ContextAttentionBackward op{
        .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .causal = causal, .layout = layout, .dtype = dtype};
    return library_op("context_attention_backward").normalize(op.workload({.world_size = world_size}));
  }
  AttentionBackward attention() const {
    autotune::Workload plain{"attention_backward", dtype, 1, {}};
    for (const char* name : {"heads", "kv_heads", "head_dim", "causal", "scale"})
      plain.fields.set(name, workload().fields.values().at(name));
    return op_of<AttentionBackward>(library_op("attention_backward").normalize(plain));
  }
};

/// Clears the first or the second half of each head's columns.
void clear_half(const Case& c, const RowMatrix& matrix, bool second) {
  const int64_t half = c.head_dim / 2;
  for (int64_t i = 0; i < matrix.tensor.num_elements(); ++i)
    if ((i / half % 2 == 1) == second) write_element(matrix.tensor, i, 0);
}

/// The whole sequence of one call.
struct Sequence {
  Sequence(const Case& c, int64_t length, uint64_t seed) {
    for (const int which : {kQ, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv}) {
      const bool is_key = which == kK || which == kV || which == kDk || which == kDv;
      const int64_t columns = which == kLse ? c.heads : (is_key ? c.kv_heads : c.heads) * c.head_dim;
      tensors.emplace_back(which == kLse ? DType::f32 : c.dtype, length, columns);
    }
    for (const int which : {kQ, kK, kV, kOut, kDout}) {
      if (c.is_exact) fill_uniform_int(tensors[which].tensor, -1, 1, seed + which);
      else fill_normal(tensors[which].tensor, 0, 1, seed + which);
    }
    if (c.is_exact) clear_half(c, tensors[kQ], true), clear_half(c, tensors[kK], false);
    for (int64_t row = 0; row < length; ++row)
      for (int64_t head = 0; head < c.heads; ++head) {
        const double usual = attention_backward_op::usual_lse(static_cast<double>(c.causal ? row + 1 : length));
        write_element(tensors[kLse].tensor, row * c.heads + head, c.is_exact ? 0 : usual);
      }
  }
  std::deque<RowMatrix> tensors;
};

/// All calls of a case on all ranks.
class Run {
 public:
  explicit Run(const Case& c) : case_(c), w_(c.workload()), op_(library_op(w_.operation)) {
    config_ = {{"block", c.block}, {"block_n", c.block_n}, {"chunk_rows", c.chunk_rows}, {"push_programs", int64_t{2}}};
    calls_.resize(static_cast<size_t>(c.world_size));
    for (const int64_t length : c.lengths) add(length);
  }

  RankOutcome on(const RankOptions& options) {
    RankOutcome outcome = run_rank_op(w_, config_, case_.lengths, options, calls_);
    take_back();
    return outcome;
  }

  const std::deque<Sequence>& sequences() const { return sequences_; }

  /// Empty, or the first element too far from f64.
  std::string difference() const {
    for (size_t call = 0; call < sequences_.size(); ++call)
      for (int64_t head = 0; head < case_.heads; ++head)
        if (std::string text = difference_in(call, head); !text.empty()) return text;
    return "";
  }

 private:
  std::vector<int32_t> owned_rows(int rank, int64_t length) const {
    return testing::owned_rows(case_.layout, rank, length, case_.world_size);
  }

  void add(int64_t length) {
    const Sequence& all = sequences_.emplace_back(case_, length, case_.seed + 100 * sequences_.size());
    for (int rank = 0; rank < case_.world_size; ++rank) {
      RankCall call = launch_of(w_, config_, length);
      for (const RowMatrix& whole : all.tensors)
        call.tensors.push_back(parts_.emplace_back(testing::picked_rows(whole, owned_rows(rank, length))).tensor);
      call.tensors.push_back(make_tensor(parts_.emplace_back(DType::i8, length, 1).bytes.data(), DType::i8, {length}));
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }

  void take_back() {
    for (size_t call = 0; call < sequences_.size(); ++call)
      for (int rank = 0; rank < case_.world_size; ++rank)
        for (const size_t which : {kDq, kDk, kDv})
          testing::put_rows(calls_[static_cast<size_t>(rank)][call].tensors[which],
                            owned_rows(rank, case_.lengths[call]), sequences_[call].tensors[which]);
  }

  /// The columns of one head in all rows.
  std::vector<double> head_rows(size_t call, Which which, int64_t head) const {
    const Tensor& tensor = sequences_[call].tensors[which].tensor;
    const int64_t columns = which == kLse ? 1 : case_.head_dim;
    std::vector<double> rows;
    for (int64_t row = 0; row < tensor.sizes[0]; ++row)
      for (int64_t i = 0; i < columns; ++i)
        rows.push_back(read_element(tensor, row * tensor.sizes[1] + head * columns + i));
    return rows;
  }

  /// Compares dq of a head, and dk and dv of its group if the head is the first of the group.
  std::string difference_in(size_t call, int64_t head) const {
    const AttentionBackward s = case_.attention();
    const int64_t length = case_.lengths[call];
    const std::vector<double> k = head_rows(call, kK, head / s.group()), v = head_rows(call, kV, head / s.group());
    std::vector<double> dq(static_cast<size_t>(length * s.head_dim)), dk(dq), dv(dq);
    for (int64_t other = head / s.group() * s.group(); other < (head / s.group() + 1) * s.group(); ++other) {
      const auto queries = queries_of(call, other);
      for (int64_t row = 0; row < length; ++row) {
        const auto at = static_cast<size_t>(row * s.head_dim);
        if (other == head) add_reference_keys(s, queries, row, k, v, 0, s.causal ? row + 1 : length, &dq[at]);
        if (head % s.group() == 0)
          add_reference_queries(s, queries, s.causal ? row : 0, length, &k[at], &v[at], &dk[at], &dv[at]);
      }
    }
    std::string text = compare(call, kDq, head, dq);
    if (head % s.group()) return text;
    if (text.empty()) text = compare(call, kDk, head / s.group(), dk);
    return text.empty() ? compare(call, kDv, head / s.group(), dv) : text;
  }

  attention_backward_op::ReferenceQueries queries_of(size_t call, int64_t head) const {
    attention_backward_op::ReferenceQueries queries{
        head_rows(call, kQ, head), head_rows(call, kDout, head), head_rows(call, kLse, head), {}};
    const std::vector<double> out = head_rows(call, kOut, head);
    queries.delta.resize(queries.lse.size());
    for (size_t i = 0; i < out.size(); ++i)
      queries.delta[i / static_cast<size_t>(case_.head_dim)] += out[i] * queries.dout[i];
    return queries;
  }

  std::string compare(size_t call, Which which, int64_t head, const std::vector<double>& want) const {
    const auto limit = op_.tolerance(w_, std::vector<int64_t>{case_.lengths[call]});
    const std::vector<double> got = head_rows(call, which, head);
    const autotune::Difference worst = autotune::compare(got, want, limit);
    if (worst.is_within()) return "";
    return fmt::format("length {}, {} of row {}, head {} is {}, not {}", case_.lengths[call], kNames[which],
                       worst.element / static_cast<size_t>(case_.head_dim), head, worst.got, worst.want);
  }

  const Case case_;
  const autotune::Workload w_;
  const autotune::OpDef& op_;
  autotune::Config config_;
  std::deque<Sequence> sequences_;
  std::deque<RowMatrix> parts_;
  std::vector<std::vector<RankCall>> calls_;
};

/// Empty, or the first row whose bits differ.
std::string different_bits(const Run& a, const Run& b) {
  for (size_t call = 0; call < a.sequences().size(); ++call)
    for (const size_t which : {kDq, kDk, kDv}) {
      const RowMatrix &left = a.sequences()[call].tensors[which], &right = b.sequences()[call].tensors[which];
      for (int64_t row = 0; row < left.tensor.sizes[0]; ++row)
        if (std::memcmp(left.row(row), right.row(row), static_cast<size_t>(left.row_bytes())) != 0)
          return fmt::format("length {}: row {} of {} differs", left.tensor.sizes[0], row, kNames[which]);
    }
  return "";
}

/// Checks random operands against f64, and exact operands against one rank.
void check(Case c, const RankOptions& options) {
  INFO(fmt::format("{}, {} ranks, {}, {}, causal {}, {} heads of {}, {} key heads", options.device, c.world_size,
                   dtype_name(c.dtype), seqpar::kRowLayoutNames[static_cast<size_t>(c.layout)], c.causal, c.heads,
                   c.head_dim, c.kv_heads));
  Run run(c);
  require_success(run.on(options));
  REQUIRE(run.difference() == "");
  c.is_exact = true;
  Run exact(c);
  require_success(exact.on(options));
  c.world_size = 1;
  Run alone(c);
  require_success(alone.on({.device = options.device.starts_with("sim:") ? options.device : "threads"}));
  REQUIRE(alone.difference() == "");
  REQUIRE(different_bits(exact, alone) == "");
}

}  // namespace

TEST_CASE("context attention backward: right and exact on the CPU, any layout and number of ranks", "[seqpar][sweep]") {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  size_t next = 0;
  for (const int world_size : {1, 2, 3, 4, 8})
    for (const auto layout : kLayouts)
      for (const bool causal : {false, true}) {
        const DType dtype = dtypes[next++ % 3];
        check({.world_size = world_size, .causal = causal, .layout = layout, .dtype = dtype}, {});
        if (causal) check({.world_size = world_size, .layout = layout, .dtype = dtype}, {.device = "processes"});
      }
  check({.world_size = 3, .layout = seqpar::RowLayout::zigzag, .heads = 9, .kv_heads = 3, .head_dim = 64}, {});
  check({.world_size = 3,
         .layout = seqpar::RowLayout::zigzag,
         .dtype = DType::f16,
         .heads = 5,
         .kv_heads = 5,
         .head_dim = 40},
        {});
}

TEST_CASE("context attention backward: every combination on the CPU", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes"})
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const bool causal : {false, true})
          for (const auto layout : kLayouts)
            check({.world_size = world_size, .causal = causal, .layout = layout, .dtype = dtype}, {.device = device});
}

TEST_CASE("context attention backward: right and exact where ranks pause at random", "[seqpar]") {
  for (const char* device : {"threads", "processes", "nodes"})
    for (const auto layout : kLayouts)
      check({.world_size = 3, .layout = layout, .dtype = DType::bf16, .lengths = {0, 5, 131, 200}},
            {.device = device, .seed = 3, .slow_rank = 1});
}

TEST_CASE("context attention backward: right and exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : {"sim:sm_80", "sim:sm_90a"})
    for (const int world_size : {2, 3})
      for (const auto layout : kLayouts)
        check({.world_size = world_size,
               .causal = world_size == 2 || layout == seqpar::RowLayout::zigzag,
               .layout = layout,
               .dtype = world_size == 2 ? DType::bf16 : DType::f16,
               .heads = 2,
               .kv_heads = 1,
               .lengths = {0, 1, 5, 97, 2}},
              {.device = device});
}

TEST_CASE("context attention backward: right and exact on ranks that share a simulated GPU, every check on",
          "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {2, 4})
      check({.world_size = world_size,
             .layout = kLayouts[world_size == 2 ? 0 : 1],
             .dtype = DType::bf16,
             .heads = 2,
             .kv_heads = 1,
             .lengths = {0, 1, 5, 97, 2}},
            {.device = device});
}

TEST_CASE("context attention backward: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : kSimulatedRanks)
    for (const int world_size : {1, 2, 3})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const bool causal : {false, true})
          for (const auto layout : kLayouts)
            check({.world_size = world_size,
                   .causal = causal,
                   .layout = layout,
                   .dtype = dtype,
                   .lengths = {0, 1, 5, 131, 70, 2}},
                  {.device = device});
}

TEST_CASE("context attention backward: configurations of GPUs compile", "[seqpar][nvptx]") {
  size_t next = 0;  // the test compiles a third of all; with an assembler the slow tests compile all
  for (const char* name : {"sm_80", "sm_90a"})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t head_dim : {64, 128}) {
        const Case c{.layout = seqpar::RowLayout::zigzag, .dtype = dtype, .head_dim = head_dim};
        const autotune::OpDef& op = library_op("context_attention_backward");
        const Target target = gpu_target(name);
        for (const auto& config : op.config_space(c.workload(), 1024, target).enumerate()) {
          if (next++ % 3 != 0) continue;
          INFO(name << " " << c.workload().json() << " " << config.json());
          CHECK_NOTHROW(testing::compiled(*autotune::build_kernel(op, c.workload(), config, target), target));
        }
      }
}

TEST_CASE("context attention backward: bad static arguments are refused by name", "[seqpar]") {
  const auto normalized = [](const seqpar::ContextAttentionBackward& op, int world_size = 1) {
    return library_op("context_attention_backward").normalize(op.workload({.world_size = world_size}));
  };
  CHECK_THROWS_WITH(normalized({.heads = 3, .kv_heads = 2, .head_dim = 16}), Catch::Contains("must divide heads (3)"));
  CHECK_THROWS_WITH(normalized({.heads = 2, .kv_heads = 2, .head_dim = 16}, 99), Catch::Contains("world_size"));
}
