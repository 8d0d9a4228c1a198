// tests/kernels/seqpar/context_engine_test.cpp -- rotary embedding and attention on own rows and their gradients.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/attention.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/ops/rows.h"
#include "tests/support/ranks/sharded_layers.h"

using namespace seqtile;
using namespace seqtile::kernels;
using namespace seqtile::testing;
using seqpar::ContextAttentionBackward;
using seqpar::ContextAttentionForward;

namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16, kLongest = 200;
const std::vector<int64_t> kLengths{0, 2, 17, 200, 0, 199};

using Values = std::vector<float>;

/// q, k, v and dout of every row of the sequence.
struct Whole {
  Whole() {
    uint64_t seed = 5;
    for (Values* values : {&q, &k, &v, &dout}) {
      const bool has_keys = values == &k || values == &v;
      values->resize(static_cast<size_t>(kLongest * kHeadDim * (has_keys ? kKvHeads : kHeads)));
      fill_normal(tensor(values->data(), {std::ssize(*values)}), 0, 1, seed++);
    }
  }
  Values q, k, v, dout;
};

/// A rank's rows of a Whole in the order of `positions`, and its results.
struct Rows {
  Rows(const Whole& whole, std::vector<int32_t> at)
      : positions(std::move(at)),
        q(picked(whole.q, kHeads)),
        k(picked(whole.k, kKvHeads)),
        v(picked(whole.v, kKvHeads)),
        dout(picked(whole.dout, kHeads)) {
    out.resize(q.size() + 1);
    dq.resize(q.size() + 1), dk.resize(k.size() + 1), dv.resize(k.size() + 1);
    lse.resize(positions.size() * kHeads + 1);
  }
  Values picked(const Values& values, int64_t heads) const {
    Values rows;
    for (const int32_t row : positions) {
      const auto first = values.begin() + row * heads * kHeadDim;
      rows.insert(rows.end(), first, first + heads * kHeadDim);
    }
    rows.push_back(0);  // an empty tensor has an address too
    return rows;
  }
  int64_t count() const { return static_cast<int64_t>(positions.size()); }
  Tensor flat(Values& values, int64_t columns) { return make_tensor(values.data(), DType::f32, {count(), columns}); }
  Tensor heads_of(Values& values, int64_t heads) {
    return make_tensor(values.data(), DType::f32, {count(), heads, kHeadDim});
  }
  void rotate(Engine& engine) {
    if (count() == 0) return;
    const auto rope = engine.prepare(Rope{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim});
    const Tensor rotated_q = heads_of(q, kHeads), rotated_k = heads_of(k, kKvHeads);
    std::vector<int32_t> words(kRopeTableRows * kHeadDim / 2);
    const Tensor table = make_tensor(words.data(), DType::i32, {kRopeTableRows, kHeadDim / 2});
    fill_rope_table(rope_turns(kHeadDim, 10000), 1, table);
    rope({.q = rotated_q,
          .k = rotated_k,
          .positions = make_tensor(positions.data(), DType::i32, {count()}),
          .table = table,
          .q_out = rotated_q,
          .k_out = rotated_k});
  }

  std::vector<int32_t> positions;
  Values q, k, v, dout, out, lse, dq, dk, dv;
};

/// The results of one rank.
struct Results {
  Values out, dq, dk, dv;
};
Results unsharded(const Home& home, const Whole& whole, int64_t length) {
  std::vector<int32_t> positions(static_cast<size_t>(length));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  Rows rows(whole, positions);
  if (length == 0) return {};
  const auto engine = Engine::open(home.options("tuning.db", MissPolicy::fallback), home.registry);
  rows.rotate(*engine);
  const auto attention = engine->prepare(AttentionForward{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim});
  int32_t starts[] = {0, static_cast<int32_t>(length)}, first = 0;
  attention({.q = rows.heads_of(rows.q, kHeads),
             .k = rows.heads_of(rows.k, kKvHeads),
             .v = rows.heads_of(rows.v, kKvHeads),
             .q_start = make_tensor(starts, DType::i32, {2}),
             .kv_start = make_tensor(&first, DType::i32, {1}),
             .kv_len = make_tensor(&starts[1], DType::i32, {1}),
             .out = rows.heads_of(rows.out, kHeads),
             .lse = rows.flat(rows.lse, kHeads),
             .length = length});
  const auto backward = engine->prepare(AttentionBackward{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim});
  backward({.q = rows.heads_of(rows.q, kHeads),
            .k = rows.heads_of(rows.k, kKvHeads),
            .v = rows.heads_of(rows.v, kKvHeads),
            .out = rows.heads_of(rows.out, kHeads),
            .lse = rows.flat(rows.lse, kHeads),
            .dout = rows.heads_of(rows.dout, kHeads),
            .q_start = make_tensor(starts, DType::i32, {2}),
            .kv_start = make_tensor(&first, DType::i32, {1}),
            .kv_len = make_tensor(&starts[1], DType::i32, {1}),
            .dq = rows.heads_of(rows.dq, kHeads),
            .dk = rows.heads_of(rows.dk, kKvHeads),
            .dv = rows.heads_of(rows.dv, kKvHeads),
            .length = length});
  return {rows.out, rows.dq, rows.dk, rows.dv};
}

/// Compares a rank's rows of a result with the rows of the whole sequence.
void compare(const char* what, const Rows& rows, const Values& got, const Values& want, int64_t heads) {
  const int64_t columns = heads * kHeadDim;
  for (int64_t row = 0; row < rows.count(); ++row)
    for (int64_t i = 0; i < columns; ++i) {
      const float value = got[static_cast<size_t>(row * columns + i)];
      const float wanted = want[static_cast<size_t>(rows.positions[static_cast<size_t>(row)] * columns + i)];
      require(std::abs(value - wanted) < 5e-5f, fmt::format("row {} of {}: {}, not {}", row, what, value, wanted));
    }
}

void check_rank(const Home& home, Fabric& fabric, seqpar::RowLayout layout, const Whole& whole,
                const std::vector<Results>& want) {
  const ContextAttentionForward op{
      .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .layout = layout, .lse = true};
  const auto engine = home.engine(fabric, "tuning.db", MissPolicy::fallback);
  const ContextAttentionBackward backward_op{
      .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .layout = layout};
  Channel channel(fabric, kLongest);
  const FusedHandle attention(*engine, op, channel);
  const FusedHandle backward(*engine, backward_op, channel);
  for (size_t call = 0; call < kLengths.size(); ++call) {
    const int64_t length = kLengths[call];
    std::vector<int32_t> positions(
        static_cast<size_t>(seqpar::num_rows(layout, fabric.rank(), length, fabric.world_size())));
    seqpar::fill_positions(layout, fabric.rank(), length, fabric.world_size(), positions);
    Rows rows(whole, positions);
    rows.rotate(*engine);
    const auto before = engine->counters().launches;
    const auto call_as = [&](int64_t claimed) {
      attention({.q = rows.flat(rows.q, kHeads * kHeadDim),
                 .k = rows.flat(rows.k, kKvHeads * kHeadDim),
                 .v = rows.flat(rows.v, kKvHeads * kHeadDim),
                 .out = rows.flat(rows.out, kHeads * kHeadDim),
                 .lse = rows.flat(rows.lse, kHeads)},
                claimed);
    };
    require_error("rows, the tensor has", [&] { call_as(length < 100 ? 150 : 20); });
    call_as(length);
    const int64_t columns = kHeads * kHeadDim, kv_columns = kKvHeads * kHeadDim;
    backward({.q = rows.flat(rows.q, columns),
              .k = rows.flat(rows.k, kv_columns),
              .v = rows.flat(rows.v, kv_columns),
              .out = rows.flat(rows.out, columns),
              .lse = rows.flat(rows.lse, kHeads),
              .dout = rows.flat(rows.dout, columns),
              .dq = rows.flat(rows.dq, columns),
              .dk = rows.flat(rows.dk, kv_columns),
              .dv = rows.flat(rows.dv, kv_columns)},
             length);
    require(engine->counters().launches == before + 2, "one launch each");
    compare("out", rows, rows.out, want[call].out, kHeads);
    compare("dq", rows, rows.dq, want[call].dq, kHeads);
    compare("dk", rows, rows.dk, want[call].dk, kKvHeads);
    compare("dv", rows, rows.dv, want[call].dv, kKvHeads);
  }
  require(!channel.abort_record(), "nobody has given up");
  fabric.all_gather("");
}

}  // namespace

TEST_CASE("context attention: behind rotary embedding through the engine and back, any length, one launch each",
          "[seqpar][engine]") {
  const Home home;
  const Whole whole;
  std::vector<Results> want;
  for (const int64_t length : kLengths) want.push_back(unsharded(home, whole, length));
  for (const auto layout : {seqpar::RowLayout::contiguous, seqpar::RowLayout::zigzag})
    check_none(on_ranks("threads", 3, [&](Fabric& fabric) { check_rank(home, fabric, layout, whole, want); }));
}
