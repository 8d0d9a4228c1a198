// jit/sim/values/fragments.h -- the fragments of wmma: the element of a matrix that each lane and register holds.
// SPDX-License-Identifier: Apache-2.0
//
// PTX leaves the layout of wmma's fragments open: only loads, products and stores know it. Here the elements stand in
// the order of the rows, and each lane has as many as its registers hold. If the registers of a warp hold more elements
// than the matrix has, the rest repeats the matrix, as on devices. A kernel may still work on each element of a
// fragment alike.
#pragma once
#include <cstdint>
#include <string>

#include "jit/ptx/ptx_module.h"

namespace seqtile::sim {

struct Instruction;
struct Opcode;

enum class Fragment : uint8_t { a, b, c };

struct FragmentShape {
  int m = 0, n = 0, k = 0;
  bool is_column = false;    ///< loads, stores, and A of a product: columns are contiguous
  bool is_b_column = false;  ///< B of a product: columns are contiguous
  bool saturates = false;

  uint32_t pack() const {
    return static_cast<uint32_t>(m) | static_cast<uint32_t>(n) << 8 | static_cast<uint32_t>(k) << 16 |
           uint32_t{is_column} << 24 | uint32_t{is_b_column} << 25 | uint32_t{saturates} << 26;
  }
  static FragmentShape unpack(uint32_t bits) {
    return {static_cast<int>(bits & 0xff),
            static_cast<int>(bits >> 8 & 0xff),
            static_cast<int>(bits >> 16 & 0xff),
            (bits >> 24 & 1) != 0,
            (bits >> 25 & 1) != 0,
            (bits >> 26 & 1) != 0};
  }
  int rows(Fragment which) const { return which == Fragment::b ? k : m; }
  int columns(Fragment which) const { return which == Fragment::a ? k : n; }
  /// Elements of one lane: 16 of A and B in f16 whatever the shape, else its part of the matrix.
  int elements(Fragment which, PtxType type) const {
    return type == PtxType::f16 && which != Fragment::c ? 16 : rows(which) * columns(which) / 32;
  }
  /// Registers of one lane: of 64 bits for f64, else of 32.
  int registers(Fragment which, PtxType type) const {
    const int bytes = ptx_type_bytes(type);
    return elements(which, type) * (bytes == 8 ? 4 : bytes) / 4;
  }
  /// The element of the matrix, counted along its rows, that stands at a lane's place `element`.
  int position(Fragment which, PtxType type, int lane, int element) const {
    return (lane * elements(which, type) + element) % (rows(which) * columns(which));
  }
};

/// Reads shape, types and layouts of a wmma opcode. Returns the error; empty if there is none.
std::string decode_fragments(const Opcode& opcode, Instruction& into);

}  // namespace seqtile::sim
