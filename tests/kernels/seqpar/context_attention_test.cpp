// tests/kernels/seqpar/context_attention_test.cpp -- attention to the keys of all ranks, in every layout.
// SPDX-License-Identifier: Apache-2.0
//
// Random operands are compared with f64. Exact operands, zero queries and small whole values, must give the bits of one
// rank: their sums are exact in any order, so a missing or extra key shows.
#include "seqtile/ops/ranks.h"

#include <catch2/catch.hpp>
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include <fmt/core.h>

#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/ranks/rank_op_run.h"
#include "tests/support/ranks/sharded_rows.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqtile::testing::configs_on;
using seqtile::testing::kSharedGpus;
using seqtile::testing::kSimulatedGpus;
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

constexpr seqpar::RowLayout kLayouts[] = {seqpar::RowLayout::contiguous, seqpar::RowLayout::zigzag};

struct Case {
  int world_size = 2;
  bool causal = true;
  seqpar::RowLayout layout = seqpar::RowLayout::contiguous;
  DType dtype = DType::f32;
  int64_t heads = 4, kv_heads = 2, head_dim = 16;
  std::vector<int64_t> lengths = {0, 1, 5, 64, 200, 131, 3};
  int64_t block_m = 16, block_n = 32, chunk_rows = 32;
  bool is_exact = false;
  uint32_t seed = 7;
  std::optional<autotune::Config> config = std::nullopt;  ///< default: the tiles above

  autotune::Workload workload() const {
    seqpar::ContextAttentionForward op{.heads = heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .causal = causal,
                                       .layout = layout,
                                       .lse = true,
                                       .dtype = dtype};
    return library_op("context_attention_forward").normalize(op.workload({.world_size = world_size}));
  }
};

std::vector<int32_t> owned_rows(const Case& c, int rank, int64_t length) {
  return testing::owned_rows(c.layout, rank, length, c.world_size);
}

/// The whole sequence of one call.
struct Sequence {
  Sequence(const Case& c, int64_t length, uint64_t seed)
      : q(c.dtype, length, c.heads * c.head_dim),
        k(c.dtype, length, c.kv_heads * c.head_dim),
        v(c.dtype, length, c.kv_heads * c.head_dim),
        out(c.dtype, length, c.heads * c.head_dim),
        lse(DType::f32, length, c.heads) {
    fill_normal(k.tensor, 0, 1, seed);
    if (c.is_exact) {
      std::ranges::fill(q.bytes, std::byte{0});
      fill_uniform_int(v.tensor, -3, 4, seed + 1);
    } else {
      fill_normal(q.tensor, 0, 1, seed + 2);
      fill_normal(v.tensor, 0, 1, seed + 1);
    }
  }
  RowMatrix q, k, v, out, lse;
};

/// All calls of a case on all ranks.
class Run {
 public:
  explicit Run(const Case& c) : case_(c), w_(c.workload()), op_(library_op(w_.operation)) {
    config_ = {
        {"block_m", c.block_m}, {"block_n", c.block_n}, {"chunk_rows", c.chunk_rows}, {"push_programs", int64_t{2}}};
    if (c.config) config_ = *c.config;
    calls_.resize(static_cast<size_t>(c.world_size));
    for (const int64_t length : c.lengths) add(length);
  }

  RankOutcome on(const RankOptions& options) {
    RankOutcome outcome = run_rank_op(w_, config_, case_.lengths, options, calls_);
    take_back();
    return outcome;
  }

  const std::deque<Sequence>& sequences() const { return sequences_; }
  std::deque<Sequence>& sequences() { return sequences_; }
  std::vector<RankCall>& calls_of(int rank) { return calls_[static_cast<size_t>(rank)]; }

  /// Empty, or the first element too far from f64.
  std::string difference() const {
    for (size_t call = 0; call < sequences_.size(); ++call)
      if (std::string text = difference_in(call); !text.empty()) return text;
    return "";
  }

 private:
  void add(int64_t length) {
    const Case& c = case_;
    Sequence& all = sequences_.emplace_back(c, length, c.seed + 100 * sequences_.size());
    for (int rank = 0; rank < c.world_size; ++rank) {
      const std::vector<int32_t> rows = owned_rows(c, rank, length);
      RankCall call = launch_of(w_, config_, length);
      for (const RowMatrix* whole : {&all.q, &all.k, &all.v, &all.out, &all.lse})
        call.tensors.push_back(parts_.emplace_back(testing::picked_rows(*whole, rows)).tensor);
      RowMatrix& sequence = parts_.emplace_back(DType::i8, length, 1);
      call.tensors.push_back(make_tensor(sequence.bytes.data(), DType::i8, {length}));
      calls_[static_cast<size_t>(rank)].push_back(std::move(call));
    }
  }

  /// Copies each rank's rows of the results to their places in the sequence.
  void take_back() {
    for (size_t call = 0; call < sequences_.size(); ++call)
      for (int rank = 0; rank < case_.world_size; ++rank) {
        const std::vector<int32_t> rows = owned_rows(case_, rank, case_.lengths[call]);
        const std::vector<Tensor>& tensors = calls_[static_cast<size_t>(rank)][call].tensors;
        testing::put_rows(tensors[3], rows, sequences_[call].out);
        testing::put_rows(tensors[4], rows, sequences_[call].lse);
      }
  }

  std::string difference_in(size_t call) const {
    const Case& c = case_;
    const int64_t length = c.lengths[call];
    autotune::Workload plain{"attention_forward", c.dtype, 1, {}};
    for (const char* name : {"heads", "kv_heads", "head_dim", "causal", "scale"})
      plain.fields.set(name, w_.fields.values().at(name));
    const auto s = op_of<AttentionForward>(library_op("attention_forward").normalize(plain));
    const Sequence& all = sequences_[call];
    const auto head_rows = [&](const RowMatrix& buffer, int64_t head) {
      std::vector<double> rows;
      for (int64_t row = 0; row < length; ++row)
        for (int64_t d = 0; d < s.head_dim; ++d)
          rows.push_back(read_element(buffer.tensor, row * buffer.tensor.sizes[1] + head * s.head_dim + d));
      return rows;
    };
    const auto limit = op_.tolerance(w_, std::vector<int64_t>{length});
    for (int64_t head = 0; head < s.heads; ++head) {
      const auto k = head_rows(all.k, head / s.group()), v = head_rows(all.v, head / s.group()),
                 q = head_rows(all.q, head), out = head_rows(all.out, head);
      for (int64_t row = 0; row < length; ++row) {
        const auto at = row * s.head_dim;
        const auto want = attention::reference_row(s, {q.begin() + at, q.begin() + at + s.head_dim}, k, v, 0,
                                                   s.causal ? row + 1 : length);
        std::vector<double> got(out.begin() + at, out.begin() + at + s.head_dim), wanted(want.out);
        got.push_back(read_element(all.lse.tensor, row * s.heads + head)), wanted.push_back(want.lse);
        const autotune::Difference worst = autotune::compare(got, wanted, limit);
        if (!worst.is_within())
          return fmt::format("length {}, row {}, head {}: element {} of out and lse is {}, not {}", length, row, head,
                             worst.element, worst.got, worst.want);
      }
    }
    return "";
  }

  const Case case_;
  const autotune::Workload w_;
  const autotune::OpDef& op_;
  autotune::Config config_;
  std::deque<Sequence> sequences_;
  std::deque<RowMatrix> parts_;
  std::vector<std::vector<RankCall>> calls_;
};

/// Empty, or the first row below `end` whose bits differ.
std::string different_bits(const Run& a, const Run& b, int64_t end = int64_t{1} << 40) {
  for (size_t call = 0; call < a.sequences().size(); ++call) {
    const Sequence &x = a.sequences()[call], &y = b.sequences()[call];
    for (const auto& [left, right] : {std::pair{&x.out, &y.out}, {&x.lse, &y.lse}})
      for (int64_t row = 0; row < std::min(end, left->tensor.sizes[0]); ++row)
        if (std::memcmp(left->row(row), right->row(row), static_cast<size_t>(left->row_bytes())) != 0)
          return fmt::format("length {}: row {} of {} differs", left->tensor.sizes[0], row,
                             left == &x.out ? "out" : "lse");
  }
  return "";
}

std::string name_of(const Case& c, const RankOptions& options) {
  return fmt::format("{}, {} ranks, {}, {}, causal {}", options.device, c.world_size, dtype_name(c.dtype),
                     seqpar::kRowLayoutNames[static_cast<size_t>(c.layout)], c.causal);
}

/// Checks random operands against f64, and exact operands against one rank.
void check(Case c, const RankOptions& options) {
  INFO(name_of(c, options));
  Run run(c);
  require_success(run.on(options));
  REQUIRE(run.difference() == "");
  c.is_exact = true;
  Run exact(c);
  require_success(exact.on(options));
  c.world_size = 1;
  Run alone(c);
  require_success(alone.on({.device = options.device.starts_with("sim:") ? options.device : "threads"}));
  REQUIRE(different_bits(exact, alone) == "");
}

}  // namespace

TEST_CASE("context attention: right and exact on the CPU, any layout and number of ranks", "[seqpar][sweep]") {
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
  check({.world_size = 3, .layout = seqpar::RowLayout::zigzag, .heads = 5, .kv_heads = 5, .head_dim = 40}, {});
}

TEST_CASE("context attention: every combination on the CPU", "[seqpar][slow]") {
  for (const char* device : {"threads", "processes"})
    for (const int world_size : {1, 2, 3, 4, 8})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const bool causal : {false, true})
          for (const auto layout : kLayouts)
            check({.world_size = world_size, .causal = causal, .layout = layout, .dtype = dtype}, {.device = device});
}

TEST_CASE("context attention: right and exact where ranks pause at random", "[seqpar]") {
  for (const char* device : {"threads", "processes", "nodes"})
    for (const auto layout : kLayouts)
      check({.world_size = 3, .layout = layout, .dtype = DType::bf16}, {.device = device, .seed = 3, .slow_rank = 1});
}

TEST_CASE("context attention: right and exact on simulated GPUs, every check on", "[seqpar][sim]") {
  for (const char* device : {"sim:sm_80", "sim:sm_90a"})
    for (const int world_size : {2, 3})
      for (const auto layout : kLayouts)
        check({.world_size = world_size,
               .causal = world_size == 2 || layout == seqpar::RowLayout::zigzag,
               .layout = layout,
               .dtype = world_size == 2 ? DType::bf16 : DType::f16,
               .heads = 2,
               .kv_heads = 1,
               .lengths = {0, 1, 5, 131, 2}},
              {.device = device});
}

TEST_CASE("context attention: right and exact on ranks that share a simulated GPU, every check on", "[seqpar][sim]") {
  for (const char* device : kSharedGpus)
    for (const int world_size : {2, 4})
      check({.world_size = world_size,
             .layout = kLayouts[world_size == 2 ? 0 : 1],
             .dtype = DType::bf16,
             .heads = 2,
             .kv_heads = 1,
             .lengths = {0, 1, 5, 131, 2}},
            {.device = device});
}

namespace {

/// Checks the configurations of a call.
void check_configs(Case c, const RankOptions& options) {
  for (const autotune::Config& config : configs_on(options.device, c.workload())) {
    INFO(config.json());
    c.config = config;
    Run run(c);
    require_success(run.on(options));
    CHECK(run.difference() == "");
  }
}

}  // namespace

TEST_CASE("context attention: the default and other configurations on simulated GPUs", "[seqpar][sim]") {
  for (const char* device : kSimulatedGpus)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      check_configs(
          {.layout = seqpar::RowLayout::zigzag, .dtype = dtype, .heads = 2, .kv_heads = 1, .lengths = {0, 1, 5, 131}},
          {.device = device});
}

TEST_CASE("context attention: every combination on simulated GPUs", "[seqpar][sim][slow]") {
  for (const char* device : kSimulatedRanks)
    for (const int world_size : {1, 2, 3})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const bool causal : {false, true})
          for (const auto layout : kLayouts) {
            const Case c{.world_size = world_size, .causal = causal, .layout = layout, .dtype = dtype};
            check(c, {.device = device});
            check_configs(c, {.device = device});
          }
}

TEST_CASE("context attention: where keys come in the order of the sequence the bits are those of one rank",
          "[seqpar]") {
  for (const bool causal : {false, true}) {
    // Rank 0 owns whole blocks of keys, the first of the sequence.
    Case c{.causal = causal, .dtype = DType::bf16, .lengths = {256, 192}};
    Run two(c);
    require_success(two.on({}));
    c.world_size = 1;
    Run one(c);
    require_success(one.on({}));
    CHECK(different_bits(two, one, 96) == "");
  }
}

TEST_CASE("context attention: bad static arguments are refused by name", "[seqpar]") {
  const auto normalized = [](const seqpar::ContextAttentionForward& op, int world_size = 1) {
    return library_op("context_attention_forward").normalize(op.workload({.world_size = world_size}));
  };
  CHECK_THROWS_WITH(normalized({.heads = 3, .kv_heads = 2, .head_dim = 16}), Catch::Contains("must divide heads (3)"));
  CHECK_THROWS_WITH(normalized({.heads = 2, .kv_heads = 2, .head_dim = 12}), Catch::Contains("multiple of 8"));
  CHECK_THROWS_WITH(normalized({.heads = 2, .kv_heads = 2, .head_dim = 16}, 99), Catch::Contains("world_size"));
}
