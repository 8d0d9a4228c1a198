// kernels/seqpar/exchange/reduction.h -- sums over ranks inside a launch: who computes, who sends, who adds up.
// SPDX-License-Identifier: Apache-2.0
//
// Every rank has a partial result for all rows. Programs compute it tile by tile and send it to the owner of the rows,
// who adds up what all ranks have computed, from rank 0 on, in f32. The partial results, the own one too, are rounded
// to one format, so every rank gets the same bits, whoever was first.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "seqtile/op.h"

namespace seqtile::kernels::seqpar {

enum class ReduceForm : uint8_t {
  scatter,   ///< each rank sums up its own rows
  two_shot,  ///< then it sends the sums to all others
  one_shot   ///< every rank sends all of its rows to all others, and each sums up: for few rows
};

/// The order of the tiles of partial results.
enum class ReduceOrder : uint8_t {
  rotate,      ///< one rank's rows after the other's, chunk by chunk; a chunk is sent as soon as it is complete
  interleave,  ///< those of the same columns for all ranks' rows follow each other: what computes them is read once
  join         ///< where ranks have few rows: a tile has those of several, as if one rank had all
};

struct ReduceSchedule {
  static ReduceSchedule from(const autotune::Config& config);
  int64_t chunk_rows = 256;  ///< rows that one flag stands for; whole tiles
  int64_t sum_rows = 1;      ///< rows of a program that takes over sums, or sums up apart from the tiles
  ReduceOrder order = ReduceOrder::rotate;
};

/// The form that a configuration names; scatter where it has no parameter `reduction`.
ReduceForm reduce_form(const autotune::Config& config);
const Protocol& protocol_of(ReduceForm form);

/// A one-shot call has no more rows than these, so that its staging stays small.
int64_t most_one_shot_rows(DType transport, int64_t columns);

/// The tiles of the partial results.
struct PartialShape {
  int64_t block_rows, column_blocks;  ///< rows of a tile, tiles side by side
  int64_t columns;                    ///< of the result
  int num_sums = 1;                   ///< a gated pair has two
  DType transport, result;
  bool whole_rows = false;       ///< something follows that needs whole rows of the result: see ReduceBody::finish_rows
  bool fills_registers = false;  ///< a tile leaves a thread no room for one that a peer has sent
};

/// Owners add to the tile that they have just computed. Where that would wait for tiles behind it, or rows are needed
/// as a whole, the own partial results go through memory too, and programs of their own sum up.
inline bool sums_apart(const PartialShape& shape, const ReduceSchedule& schedule, ReduceForm form) {
  return shape.whole_rows || schedule.order != ReduceOrder::rotate || form == ReduceForm::one_shot;
}

constexpr int kOneShotPhase = 2;
/// Both forms by which all ranks get all rows have the same phases: partial results and sums of two shots, those of
/// one.
ExchangeShape reduce_shape(const PartialShape& shape, ReduceForm form, int world_size, int64_t chunk_rows);
/// Elements of the counters.
autotune::SizeExpr num_counters(const ReduceSchedule& schedule, ReduceForm form, int world_size);
/// Programs: tiles, those that sum up apart, those that take over what others have summed up, and one more.
autotune::SizeExpr reduce_programs(const PartialShape& shape, const ReduceSchedule& schedule, ReduceForm form,
                                   int world_size);

/// The computation of an operation; rows are counted from `first`, a row of all ranks' rows, up to `end`.
struct ReduceBody {
  struct Tile {
    Var column;             ///< of the result
    std::vector<Var> sums;  ///< num_sums tiles of block_rows rows; they are rounded to the transport format
  };
  std::function<Tile(Var first, Var end, Var row, Var column_block)> partial;
  /// The element of the result in its format, from the sums over all ranks.
  std::function<Var(Var first, Var end, Var row, Var column, std::vector<Var> sums)> result;
  /// The rows of the result [end, columns], and of what finish_rows writes.
  std::function<std::vector<Var>(Var first, Var end)> outputs;
  /// The work that follows when rows of the result are complete: there where PartialShape::whole_rows is set.
  std::function<void(Var first, Var end, Var row, int64_t num_rows)> finish_rows;
};

/// The programs of such a sum, in a kernel that may do other things beside it.
class Reduction {
 public:
  /// `phase`: of the exchange's phases the one of the partial results; that of the sums comes next. The first of the
  /// counters is the exchange's.
  Reduction(KernelBuilder& b, Exchange& ex, const PartialShape& shape, const ReduceSchedule& schedule, ReduceForm form,
            const ReduceBody& body, int phase = 0);

  /// Programs that compute and send, that sum up, and of two shots those that take over what others have summed up;
  /// kinds follow each other in this order.
  Var num_partials(), num_sums(), num_uses();
  void produce(Var id);
  void sum(Var id);
  void take_over(Var id);
  /// By one program behind all others, before it awaits the rest.
  void finish();
  /// The outputs that ReduceBody::outputs gives for the rows of this rank.
  std::vector<Var> outputs();

 private:
  struct Rows {
    Var first, end;
  };
  struct Span {
    Var row, end;
  };
  bool is_one_shot() const { return form_ == ReduceForm::one_shot; }
  bool is_joined() const { return schedule_.order == ReduceOrder::join; }
  bool is_apart() const { return sums_apart(s_, schedule_, form_); }
  /// Rows are sent, and counted, by their owner; in one shot they are all of one group.
  int64_t num_groups() const { return is_one_shot() ? 1 : world_size_; }
  int64_t num_turns() const { return is_one_shot() ? 1 : num_receivers(); }
  /// This rank is one of them where its own partial results go through memory too.
  int64_t num_receivers() const { return world_size_ - (is_apart() ? 0 : 1); }
  int64_t most_rows() const;
  int64_t columns_of_sums() const;
  Var joined_row_blocks();
  void produce_joined(Var id);
  void publish_if_all_are_there();
  Rows rows_of(Var owner);
  Var part(Var segment, Var end, size_t i);
  ChunkedTiles tiles() const { return {s_.block_rows, schedule_.chunk_rows, row_blocks_}; }
  ChunkedTiles::Place place_of(Var id);
  Span span_of(Var id, Var rows);
  Var first_chunk(const Span& span);
  Var end_chunk(const Span& span, int64_t rows);
  void for_each(int64_t peers, const std::function<void(Var peer)>& body);
  void put(const ReduceBody::Tile& tile, Var segment, Var end, Var row);
  Var await_all(const Span& span, Var id);
  void finish_tile(Var id);
  void sum_in_parts(const Rows& rows, Var row, const ReduceBody::Tile& tile);
  void sum_up(Var id);
  std::vector<Var> sums_with(const ReduceBody::Tile& own, Var end, Var row);
  std::vector<Var> sums_of(Var end, Var row, Var column, const std::array<int64_t, 2>& size);
  void give(const Rows& rows, Var end, Var row, Var column, std::vector<Var> sums);
  void publish_sums(Var row, int64_t programs_per_block);
  void publish_if_last(int phase, Var group, Var row, int64_t programs_per_block,
                       const std::function<void(Var chunk)>& publish);
  void finish_rows(const Rows& rows, const Span& span);

  KernelBuilder& b_;
  Exchange& ex_;
  const PartialShape& s_;
  const ReduceSchedule schedule_;
  const ReduceForm form_;
  const int world_size_;
  const ReduceBody& body_;
  Var counters_, length_;
  const int phase_;
  Var row_blocks_, spans_;
};

/// The whole kernel behind its parameters.
void build_reduction(KernelBuilder& b, Exchange& ex, const PartialShape& shape, const ReduceSchedule& schedule,
                     ReduceForm form, const ReduceBody& body);

}  // namespace seqtile::kernels::seqpar
