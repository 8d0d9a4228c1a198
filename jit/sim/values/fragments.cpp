// jit/sim/values/fragments.cpp -- wmma: loads and stores of fragments, and their products.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/values/fragments.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

#include "jit/sim/exec/cohort.h"
#include "jit/sim/values/mma_core.h"
#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

constexpr int kMaxElements = 32 * 16;

bool is_byte(PtxType type) { return type == PtxType::s8 || type == PtxType::u8; }

/// Which operands multiply to which sums in which shapes.
bool fits(const FragmentShape& shape, PtxType operand, PtxType sum) {
  const bool has_16 = shape.k == 16 && shape.m * shape.n == 256;
  if (operand == PtxType::f16) return has_16 && (sum == PtxType::f16 || sum == PtxType::f32);
  if (operand == PtxType::bf16) return has_16 && sum == PtxType::f32;
  if (is_byte(operand)) return has_16 && sum == PtxType::s32;
  if (operand == PtxType::tf32) return shape.m == 16 && shape.n == 16 && shape.k == 8 && sum == PtxType::f32;
  return operand == PtxType::f64 && shape.m == 8 && shape.n == 8 && shape.k == 4 && sum == PtxType::f64;
}

bool is_sum(PtxType type) {
  return type == PtxType::f16 || type == PtxType::f32 || type == PtxType::s32 || type == PtxType::f64;
}

std::string read_access(const Opcode& op, FragmentShape shape, Instruction& into) {
  into.vector = static_cast<uint8_t>(op.parts[2] == "a" ? Fragment::a : op.parts[2] == "b" ? Fragment::b : Fragment::c);
  into.type = op.type();
  into.width = static_cast<uint8_t>(ptx_type_bytes(into.type));
  shape.is_column = op.parts[5] == "col";
  into.aux = shape.pack();
  if (op.parts.size() > 9) return "the rest";
  if (op.parts.size() == 9) {
    if (op.parts[7] == "global") into.space = PtxSpace::global;
    else if (op.parts[7].substr(0, 6) == "shared") into.space = PtxSpace::shared;
    else return "space ." + std::string(op.parts[7]);
  }
  const bool is_c = static_cast<Fragment>(into.vector) == Fragment::c;
  const PtxType types[] = {PtxType::f16, PtxType::bf16, PtxType::s8, PtxType::u8, PtxType::tf32, PtxType::f64};
  const PtxType sums[] = {PtxType::f16, PtxType::f32, PtxType::s32, PtxType::f64};
  const bool is_possible =
      is_c ? is_sum(into.type) &&
                 std::any_of(std::begin(types), std::end(types), [&](PtxType t) { return fits(shape, t, into.type); })
           : std::any_of(std::begin(sums), std::end(sums), [&](PtxType t) { return fits(shape, into.type, t); });
  return is_possible ? "" : "the type in this shape";
}

/// dtype.ctype of f16 operands; dtype.atype.btype.ctype of all others.
std::string read_product(const Opcode& op, FragmentShape shape, Instruction& into) {
  shape.is_column = op.parts[4] == "col", shape.is_b_column = op.parts[5] == "col";
  std::vector<std::string_view> types(op.parts.begin() + 7, op.parts.end());
  shape.saturates = !types.empty() && types.back() == "satfinite";
  if (shape.saturates) types.pop_back();
  if (types.size() == 2) types.insert(types.begin() + 1, {"f16", "f16"});
  if (types.size() != 4 || types[1] != types[2]) return "the types";
  const PtxType d = parse_ptx_type(types[0]), c = parse_ptx_type(types[3]);
  into.type = parse_ptx_type(types[1]), into.type2 = d;
  into.flag2 = c == PtxType::f16;
  into.aux = shape.pack();
  return fits(shape, into.type, d) && fits(shape, into.type, c) && (!shape.saturates || d == PtxType::s32)
             ? ""
             : "the types in this shape";
}

uint64_t bits_of(const uint32_t* regs, uint32_t slot, PtxType type, int lane, int element) {
  const int bytes = ptx_type_bytes(type);
  if (bytes == 8) return reinterpret_cast<const WideLane*>(regs + slot * kWarpLanes)[lane];
  const int per_word = 4 / bytes;
  const uint32_t word = regs[slot * kWarpLanes + static_cast<uint32_t>(lane)];
  return bytes == 4 ? word : word >> (8 * bytes * (element % per_word)) & ((1u << (8 * bytes)) - 1);
}

double number_of(PtxType type, uint64_t bits) {
  const auto word = static_cast<uint32_t>(bits);
  switch (type) {
    case PtxType::f64: return std::bit_cast<double>(bits);
    case PtxType::f32: return std::bit_cast<float>(word);
    case PtxType::s32: return static_cast<int32_t>(word);
    default: return mma_element(type, word, 0);
  }
}

/// One sum: in double for f64, exactly for integers, else in float, a product after the other.
uint64_t rounded(PtxType type, double sum, bool saturates) {
  switch (type) {
    case PtxType::f64: return std::bit_cast<uint64_t>(sum);
    case PtxType::f16: return float_to_half(static_cast<float>(sum));
    case PtxType::s32:
      if (saturates) sum = std::clamp<double>(sum, INT32_MIN, INT32_MAX);
      return static_cast<uint32_t>(static_cast<int64_t>(sum));
    default: return std::bit_cast<uint32_t>(static_cast<float>(sum));
  }
}

}  // namespace

std::string decode_fragments(const Opcode& op, Instruction& into) {
  FragmentShape shape;
  const std::string text(op.parts[6]);
  if (std::sscanf(text.c_str(), "m%dn%dk%d", &shape.m, &shape.n, &shape.k) != 3) return "the shape";
  return into.op == Op::wmma ? read_product(op, shape, into) : read_access(op, shape, into);
}

/// The lanes' common address and stride; elements that are contiguous move 16 bytes at once.
template <class F>
void Cohort::each_run(Warp& warp, const Instruction& i, uint32_t address_slot, F f) {
  const FragmentShape shape = FragmentShape::unpack(i.aux);
  const auto which = static_cast<Fragment>(i.vector);
  const int lines = shape.is_column ? shape.columns(which) : shape.rows(which);
  const int length = shape.is_column ? shape.rows(which) : shape.columns(which);
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint64_t begin = lane_address(warp, i, address_slot, 0, i.offset);
  const uint64_t stride = i.flag ? lanes(warp, operands[i.num_operands - 1])[0] : static_cast<uint32_t>(length);
  const int per_run = std::min(length, 16 / i.width);
  for (int line = 0; line < lines; ++line)
    for (int at = 0; at < length; at += per_run) {
      Place place{i.space, begin + (static_cast<uint64_t>(line) * stride + static_cast<uint64_t>(at)) * i.width};
      f(place, static_cast<uint32_t>(per_run * i.width), shape.is_column ? at : line, shape.is_column ? line : at);
    }
}

/// Finds the bytes of a run and tells the checks of it.
void Cohort::reach_run(Warp& warp, const Instruction& i, Place& place, uint32_t bytes, bool is_write) {
  const Site site{&warp, i.line, 0};
  place.space = space_of(i, place.address);
  if (place.space == PtxSpace::shared) {
    auto narrow = static_cast<uint32_t>(place.address);
    place.cta = cta_of(cta_of(warp), narrow, site);
    place.address = narrow;
    place.at = shared(*place.cta, narrow, bytes, bytes, site);
    if (place.at == refused_ || !tracks_shared()) return;
    if (is_write) shared_write(*place.cta, narrow, bytes, collective(warp, site));
    else shared_read(*place.cta, narrow, bytes, collective(warp, site));
    return;
  }
  place.at = place.space == PtxSpace::global  ? global(warp, place.address, bytes, bytes, site, is_write)
             : place.space == PtxSpace::local ? local(warp, place.address, bytes, site)
                                              : param(warp, place.address, bytes, site, is_write);
  if (place.at != refused_) note_access(warp, i, place, bytes, site, is_write);
}

void Cohort::wmma_load(Warp& warp, const Instruction& i) {
  const FragmentShape shape = FragmentShape::unpack(i.aux);
  const auto which = static_cast<Fragment>(i.vector);
  const uint32_t* operands = warp.grid->program->operands(i);
  const int columns = shape.columns(which);
  std::array<uint64_t, kMaxElements> matrix = {};
  each_run(warp, i, operands[i.num_destinations], [&](Place place, uint32_t bytes, int row, int column) {
    reach_run(warp, i, place, bytes, false);
    for (uint32_t e = 0; e < bytes / i.width; ++e) {
      const int r = row + (shape.is_column ? static_cast<int>(e) : 0),
                c = column + (shape.is_column ? 0 : static_cast<int>(e));
      std::memcpy(&matrix[static_cast<size_t>(r * columns + c)], place.at + e * i.width, i.width);
    }
  });
  const int per_register = i.width == 8 ? 1 : 4 / i.width;
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int r = 0; r < i.num_destinations; ++r) {
      uint64_t word = 0;
      for (int e = 0; e < per_register; ++e) {
        const int position = shape.position(which, i.type, lane, r * per_register + e);
        word |= matrix[static_cast<size_t>(position)] << (8 * i.width * e % 64);
      }
      if (i.width == 8) wide_lanes(warp, operands[r])[lane] = word;
      else lanes(warp, operands[r])[lane] = static_cast<uint32_t>(word);
    }
}

void Cohort::wmma_store(Warp& warp, const Instruction& i) {
  const FragmentShape shape = FragmentShape::unpack(i.aux);
  const uint32_t* operands = warp.grid->program->operands(i);
  const int per_register = i.width == 8 ? 1 : 4 / i.width, columns = shape.columns(Fragment::c);
  std::array<uint64_t, kMaxElements> matrix = {};
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int e = 0; e < shape.elements(Fragment::c, i.type); ++e)
      matrix[static_cast<size_t>(shape.position(Fragment::c, i.type, lane, e))] =
          bits_of(warp.regs, operands[1 + e / per_register], i.type, lane, e);
  ++events_;
  each_run(warp, i, operands[0], [&](Place place, uint32_t bytes, int row, int column) {
    reach_run(warp, i, place, bytes, true);
    for (uint32_t e = 0; e < bytes / i.width; ++e) {
      const int r = row + (shape.is_column ? static_cast<int>(e) : 0),
                c = column + (shape.is_column ? 0 : static_cast<int>(e));
      std::memcpy(place.at + e * i.width, &matrix[static_cast<size_t>(r * columns + c)], i.width);
    }
  });
}

void Cohort::wmma(Warp& warp, const Instruction& i) {
  const FragmentShape shape = FragmentShape::unpack(i.aux);
  const uint32_t* operands = warp.grid->program->operands(i) + i.num_destinations;
  const PtxType type_c = i.flag2 ? PtxType::f16 : i.type2 == PtxType::f16 ? PtxType::f32 : i.type2;
  std::array<double, kMaxElements> matrix[3];
  for (const Fragment which : {Fragment::a, Fragment::b, Fragment::c}) {
    const PtxType type = which == Fragment::c ? type_c : i.type;
    const int per_register = std::max(1, 4 / ptx_type_bytes(type));
    for (int lane = 0; lane < kWarpLanes; ++lane)
      for (int e = 0; e < shape.elements(which, type); ++e)
        matrix[static_cast<size_t>(which)][static_cast<size_t>(shape.position(which, type, lane, e))] =
            number_of(type, bits_of(warp.regs, operands[e / per_register], type, lane, e));
    operands += shape.registers(which, type);
  }
  ++counters_.mma;
  const bool is_float = i.type2 == PtxType::f32 || i.type2 == PtxType::f16;
  std::array<uint64_t, kMaxElements> result = {};
  for (int row = 0; row < shape.m; ++row)
    for (int column = 0; column < shape.n; ++column) {
      double sum = matrix[2][static_cast<size_t>(row * shape.n + column)];
      for (int k = 0; k < shape.k; ++k) {
        sum += matrix[0][static_cast<size_t>(row * shape.k + k)] * matrix[1][static_cast<size_t>(k * shape.n + column)];
        if (is_float) sum = static_cast<float>(sum);
      }
      result[static_cast<size_t>(row * shape.n + column)] = rounded(i.type2, sum, shape.saturates);
    }
  const int bytes = ptx_type_bytes(i.type2), per_register = bytes == 8 ? 1 : 4 / bytes;
  const uint32_t* to = warp.grid->program->operands(i);
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int r = 0; r < i.num_destinations; ++r) {
      uint64_t word = 0;
      for (int e = 0; e < per_register; ++e)
        word |= result[static_cast<size_t>(shape.position(Fragment::c, i.type2, lane, r * per_register + e))]
                << (8 * bytes * e % 64);
      if (bytes == 8) wide_lanes(warp, to[r])[lane] = word;
      else lanes(warp, to[r])[lane] = static_cast<uint32_t>(word);
    }
}

}  // namespace seqtile::sim
