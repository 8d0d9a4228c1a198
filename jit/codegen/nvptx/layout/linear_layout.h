// jit/codegen/nvptx/layout/linear_layout.h -- which thread holds which element of a tile, and where an element lies in
// shared
// memory.
// SPDX-License-Identifier: Apache-2.0
//
// A layout is a linear map over F2: every bit of an input (register, lane, warp; or offset) contributes a fixed set of
// coordinate bits, and contributions are combined by exclusive or. Worked example, a 4 x 4 tile held by 4 lanes with 4
// registers each, two neighbouring columns a lane and row:
//
//   register bit 0 -> column 1     lane bit 0 -> column 2      register 1, lane 3 = column 1 ^ column 2 ^ row 1
//   register bit 1 -> row 2        lane bit 1 -> row 1                            = row 1, column 3
//
// A bit that contributes nothing says that the tile is replicated along it. Tiles whose sides are no powers of two are
// covered by whole repetitions of the map (the registers' outermost digits) and may overhang. Immutable; small enough
// to copy.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace seqtile::nvptx {

constexpr int kMaxRank = 3;
using Coordinates = std::array<int32_t, kMaxRank>;

constexpr int kLanes = 32;

class LinearLayout {
 public:
  enum Input : uint8_t { registers, lanes, warps };
  static constexpr int kInputs = 3;

  LinearLayout() = default;
  explicit LinearLayout(int rank) : rank_(rank) {}

  /// Appends the next more significant bit of `input`.
  LinearLayout& add(Input input, Coordinates contribution);
  /// Repeats the map `counts[d]` times along every dimension; the last dimension's repetitions are innermost.
  LinearLayout& repeat(Coordinates counts);

  int rank() const { return rank_; }
  int num_registers() const;
  int num_warps() const { return 1 << bases_[warps].size(); }
  std::span<const Coordinates> bases(Input input) const { return bases_[input]; }
  const Coordinates& repeats() const { return repeats_; }
  /// Sides of one repetition, and of all of them.
  Coordinates core_shape() const;
  Coordinates shape() const;

  /// The register's share of the coordinates, a constant; add() the thread's share to it by exclusive or, then the
  /// repetition's origin by addition.
  struct Place {
    Coordinates within{}, origin{};
  };
  Place place(int reg) const;
  Coordinates coordinates(int reg, int lane, int warp) const;
  /// The first register that holds the same elements as `reg`.
  int representative(int reg) const;

  /// The layout of the same threads on the tile without dimension `axis` (the result of a reduction along it).
  LinearLayout without(int axis) const;
  /// The layout of a tile whose dimension `axis` has size 1 (the operand of a broadcast).
  LinearLayout collapsed(int axis) const;
  /// The layout with a dimension of size 1 at `axis`.
  LinearLayout with(int axis) const;
  /// The layout of the transposed tile: result dimension i is dimension permutation[i].
  LinearLayout permuted(std::span<const int64_t> permutation) const;

  /// The layout of a tile with twice the columns along `axis`, the interleaving of two tiles of this layout: register
  /// 2 i + j holds the element of register i of the even (j = 0) or odd tile.
  LinearLayout doubled(int axis) const;
  /// The inverse of doubled(). Nothing where the lowest register bit does not tell even from odd.
  std::optional<LinearLayout> halved(int axis) const;

  /// The largest power of two v so that v registers, from each multiple of v on, hold neighbours along `axis`.
  int widest_vector(int axis) const;
  /// Whether bit `bit` of `input` moves along `axis` only (and is not replicated).
  bool moves_along(Input input, int bit, int axis) const;

  bool operator==(const LinearLayout&) const = default;
  /// "r: 0,1 2,0 | l: 1,0 ... | w: ... x 1,3", for messages and tests.
  std::string text() const;

 private:
  int rank_ = 0;
  std::array<std::vector<Coordinates>, kInputs> bases_;
  Coordinates repeats_{1, 1, 1};
};

/// Each thread holds `vector` neighbours of the last dimension. Lanes, then warps, are laid along it until it is
/// covered, then along the dimensions before. The rest of the tile is covered by repetition.
LinearLayout blocked_layout(std::span<const int64_t> shape, int vector, int num_warps);

/// Accumulators of mma.sync m16n8: a [m, n] tile held by a grid of warps_m x warps_n warps, each with neighbouring
/// 16 x 8 pieces. Requires: n a multiple of 8 * warps_n; m may overhang.
LinearLayout mma_layout(int64_t m, int64_t n, int warps_m, int warps_n);

/// Operand a of mma.sync m16n8k16, of 16-bit elements: the threads of mma_layout(m, k, warps_m, warps_n) that have the
/// same rows, with all of k each. An accumulator's thread therefore holds the elements that the next product's operand
/// needs.
LinearLayout mma_operand_layout(int64_t m, int64_t k, int warps_m, int warps_n);

/// Whether each element is held by one thread only.
bool is_held_once(const LinearLayout& layout);

/// How a tile gets from one layout into another.
enum class Conversion : uint8_t { none, permute_registers, shared_memory };
/// Requires: the same rank and number of warps.
Conversion conversion(const LinearLayout& from, const LinearLayout& to);
/// For Conversion::permute_registers: element i is the register of `from` whose element register i of `to` needs.
std::vector<int> register_sources(const LinearLayout& from, const LinearLayout& to);

/// Rows of `row_bytes` in shared memory whose 16-byte chunks are permuted by an exclusive or with bits of the row, so
/// that chunks which a warp reads at once lie in different banks: one chunk of eight rows, or `chunks` = 2 of four
/// rows. Rows of 32, 64 and 128 bytes with one chunk are TMA's and wgmma's swizzle modes of that size; longer rows are
/// permuted within each 128 bytes. Requires: row_bytes a multiple of 16.
class SharedLayout {
 public:
  explicit SharedLayout(int64_t row_bytes, int chunks = 1);
  int64_t row_bytes() const { return row_bytes_; }
  /// Byte offset of byte `column_byte` of `row`.
  int64_t offset(int64_t row, int64_t column_byte) const { return row * row_bytes_ + (column_byte ^ phase_bytes(row)); }
  /// The value that the byte within the row is exclusive-ored with: row >> row_shift() << byte_shift() & byte_mask().
  int64_t phase_bytes(int64_t row) const { return row >> row_shift_ << byte_shift_ & byte_mask_; }
  int row_shift() const { return row_shift_; }
  int byte_shift() const { return byte_shift_; }
  int64_t byte_mask() const { return byte_mask_; }

 private:
  int64_t row_bytes_, byte_mask_;
  int row_shift_, byte_shift_;
};

/// Passes that one warp-wide access of `vector_bytes` a lane takes beyond the number that its bytes need anyway.
/// `offsets` has the byte offset of each lane.
int bank_conflicts(std::span<const int64_t> offsets, int vector_bytes);

}  // namespace seqtile::nvptx
