// jit/sim/memory/bulk_copies.cpp -- the tensor memory accelerator: bulk and tensor loads, stores and reductions.
// SPDX-License-Identifier: Apache-2.0
//
// A load arrives a rotation or more after its issue; a store reads its source when its group is waited for, and its
// data is in global memory only behind a wait without .read. Each copy is an event of a pseudo-thread of its CTA: loads
// by their mbarrier, stores by their warp group, so that waiting for one says nothing about another. A copy touches
// whole rows of the swizzle in shared memory: a range that the swizzle does not leave.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"
#include "jit/sim/memory/atomic_ops.h"

namespace seqtile::sim {
namespace {

constexpr uint32_t kTensorAlign = 128;  ///< of shared memory

/// The part of a box's row that lies inside the tensor: bytes [first, last), from `global` on.
struct BoxRow {
  uint32_t offset;  ///< of the row in the box
  uint32_t first, last;
  uint64_t global;
};

uint32_t row_bytes(const TensorMap& map) {
  return map.box[0] * static_cast<uint32_t>(tensor_element_bytes(map.element));
}
/// With element strides a box has fewer elements than its extent says.
uint32_t box_count(const TensorMap& map, uint32_t d) { return (map.box[d] + map.step[d] - 1) / map.step[d]; }

/// At most what 32 bits hold, which no shared memory has.
uint32_t box_bytes(const TensorMap& map) {
  uint64_t bytes = row_bytes(map);
  for (uint32_t d = 1; d < map.rank; ++d) bytes *= box_count(map, d);
  return static_cast<uint32_t>(std::min<uint64_t>(bytes, ~0u));
}

template <class F>
void each_row(const TensorMap& map, const std::array<int32_t, 5>& at, F f) {
  const int64_t element = tensor_element_bytes(map.element), box = map.box[0];
  const int64_t begin = std::clamp<int64_t>(-int64_t{at[0]}, 0, box);
  const int64_t end = std::clamp<int64_t>(int64_t{map.size[0]} - at[0], begin, box);
  uint32_t index[5] = {}, offset = 0;
  while (true) {
    bool is_inside = end > begin;
    uint64_t address = map.base + static_cast<uint64_t>((at[0] + begin) * element);
    for (uint32_t d = 1; d < map.rank; ++d) {
      const int64_t position = int64_t{at[d]} + int64_t{index[d]} * map.step[d];
      is_inside &= position >= 0 && position < int64_t{map.size[d]};
      address += static_cast<uint64_t>(position) * map.stride[d - 1];
    }
    f(BoxRow{offset, is_inside ? static_cast<uint32_t>(begin * element) : 0,
             is_inside ? static_cast<uint32_t>(end * element) : 0, address});
    offset += row_bytes(map);
    uint32_t d = 1;
    for (; d < map.rank && ++index[d] == box_count(map, d); ++d) index[d] = 0;
    if (d >= map.rank) return;
  }
}

/// Calls f(byte of the box in shared memory, byte of the row, bytes) for the 16-byte chunks of a row's inner part.
template <class F>
void each_chunk(const TensorMap& map, uint32_t address, const BoxRow& row, F f) {
  for (uint32_t c = row.first & ~15u; c < row.last; c += 16) {
    const uint32_t low = std::max(c, row.first), high = std::min(c + 16, row.last);
    f(swizzled(address + row.offset + c, map.swizzle) - address + (low - c), low, high - low);
  }
}

/// Fills a box with what elements outside of the tensor read as: zero, or NaN if the map says so.
void fill_box(std::byte* box, const TensorMap& map, uint32_t bytes) {
  uint32_t word = 0;
  if (map.fill_nan != 0)
    word = tensor_element_bytes(map.element) == 4 ? 0x7fffffff
           : map.element == TensorElement::bf16   ? 0x7fc07fc0
                                                  : 0x7e007e00;
  for (uint32_t at = 0; at < bytes; at += 4) std::memcpy(box + at, &word, 4);
}

PtxType type_of(TensorElement element) {
  static constexpr PtxType kTypes[] = {PtxType::u8,  PtxType::u16, PtxType::u32,  PtxType::s32,
                                       PtxType::f16, PtxType::f32, PtxType::bf16, PtxType::f32,
                                       PtxType::u64, PtxType::s64, PtxType::f64};
  return kTypes[static_cast<size_t>(element)];
}

}  // namespace

/// The map at an address; `rank` 0 takes any. No map after a report.
TensorMap Cohort::tensor_map(Warp& warp, uint64_t address, const Site& site, uint32_t rank) {
  TensorMap map;
  const std::byte* from = nullptr;
  if (address & kParamWindow) {
    const uint64_t offset = address - kParamWindow, size = warp.grid->params.size();
    if (offset < size && sizeof(TensorMap) <= size - offset) from = warp.grid->params.data() + offset;
  } else if (const Region* region = context_.memory.find(address)) {
    if (region->contains(address, sizeof(TensorMap))) from = region->begin + (address - region->address());
  }
  if (from != nullptr && address % 64 == 0) std::memcpy(&map, from, sizeof map);
  if (!map.is_map()) {
    report(ReportKind::tensor_map, site, "the address holds no tensor map");
    return {};
  }
  if (rank == 0 || map.rank == rank) return map;
  report(ReportKind::tensor_map, site, fmt::format("the map has {} dimensions, the instruction {}", map.rank, rank));
  return {};
}

void Cohort::prefetch_map(Warp& warp, const Instruction& i, uint32_t mask) {
  const int lane = std::countr_zero(mask);
  tensor_map(warp, lane_address(warp, i, i.slot[0], lane, i.offset), {&warp, i.line, lane}, 0);
}

/// The pseudo-thread for copies that complete on the mbarrier at `address`.
uint32_t Cohort::load_thread(int cta, uint32_t address) {
  std::vector<uint32_t>& known = ctas_[cta].copy_barriers;
  const auto found = std::find(known.begin(), known.end(), address);
  const auto index = static_cast<uint32_t>(found - known.begin());
  if (found == known.end()) known.push_back(address);
  return copy_thread(cta, index % (kCopyThreads - kStoreThreads));
}

uint32_t Cohort::store_thread(const Warp& warp) const {
  return copy_thread(warp.cta, kCopyThreads - kStoreThreads + static_cast<uint32_t>(warp.index / 4) % kStoreThreads);
}

/// Tensor: [to], [map, coordinates], [barrier](, mask); plain: [to], [from], bytes, [barrier](, mask).
void Cohort::bulk_load(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* o = warp.grid->program->operands(i);
  const bool is_tensor = i.op == Op::tensor_load;
  const uint32_t rank = is_tensor ? i.vector : 0, barrier_at = is_tensor ? 2 + rank : 3;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    BulkLoad job{};
    job.cta = warp.cta, job.warp = warp.id, job.lane = lane, job.is_tensor = is_tensor;
    job.pc = static_cast<uint32_t>(&i - warp.grid->program->code.data());
    job.to = static_cast<uint32_t>(lane_address(warp, i, o[0], lane, i.offset));
    job.from_shared = i.flag2;
    job.from = i.flag2 ? lanes(warp, o[1])[lane] : uint64_t{wide_lanes(warp, o[1])[lane]};
    job.from += static_cast<uint64_t>(i.offset2);
    for (uint32_t d = 0; d < rank; ++d) job.at[d] = static_cast<int32_t>(lanes(warp, o[2 + d])[lane]);
    if (!is_tensor) job.bytes = lanes(warp, o[2])[lane];
    job.barrier = lanes(warp, o[barrier_at])[lane] + static_cast<uint32_t>(i.offset3);
    job.targets = i.flag ? lanes(warp, o[barrier_at + 1])[lane] & 0xffff : 0;
    if (is_tensor && !tensor_map(warp, job.from, site, rank).is_map()) continue;
    if (!is_tensor && (job.bytes % 16 != 0 || job.from % 16 != 0)) {
      report(ReportKind::misaligned, site, "bulk copies need multiples of 16 bytes");
      continue;
    }
    check_barriers_of(job, site);
    if (tracks_shared()) {
      job.issued = snapshot(warp);
      job.thread = load_thread(warp.cta, job.barrier & kSharedOffsetMask);
      job.time = ++ctas_[warp.cta].copy_time;
      if (races()) note_load(job, site);
    }
    loads_.push_back(std::move(job));
  }
  ++events_;
}

/// The mbarriers that a load will complete on must be visible to it when it is issued.
void Cohort::check_barriers_of(const BulkLoad& job, const Site& site) {
  Cta& own = ctas_[job.cta];
  const uint32_t offset = job.barrier & kSharedOffsetMask, rank = job.barrier >> kRankShift;
  const auto size = static_cast<uint32_t>(own.grid->cluster_size());
  if (job.targets == 0 && rank == 0) check_init_fence(own, offset, site);
  for (uint32_t r = 0; r < size; ++r)
    if ((job.targets >> r & 1) != 0 || (job.targets == 0 && rank == r + 1))
      check_init_fence(ctas_[own.first_in_cluster + static_cast<int>(r)], offset, site);
}

void Cohort::deliver(const BulkLoad& job) {
  Warp& warp = warps_[job.warp];
  Cta& own = ctas_[job.cta];
  const Site site{&warp, code(warp, job.pc).line, job.lane};
  Clock clock;
  if (tracks_shared()) {
    clock = *job.issued;
    clock[job.thread] = job.time;
  }
  const auto to_one = [&](Cta& target, uint32_t to, uint32_t barrier_address) {
    const uint32_t bytes = deliver_bytes(job, target, to, clock, site);
    Mbarrier* barrier = find_mbarrier(target, barrier_address, site, races() ? &clock : nullptr);
    if (barrier == nullptr) return;
    if (&target != &own && races()) join(target.remote, clock);
    barrier->tx -= bytes;
    if (races()) join(barrier->clock, clock);
    check_mbarrier(*barrier, site);
  };
  if (job.targets == 0) {
    uint32_t to = job.to, barrier = job.barrier;
    Cta* const target = cta_of(own, to, site);
    if (cta_of(own, barrier, site) != target)
      report(ReportKind::mbarrier, site, "the data and the mbarrier are in different CTAs");
    to_one(*target, to, barrier);
  } else {
    for (int rank = 0; rank < own.grid->cluster_size(); ++rank)
      if (job.targets >> rank & 1)
        to_one(ctas_[own.first_in_cluster + rank], job.to & kSharedOffsetMask, job.barrier & kSharedOffsetMask);
    if (job.targets >> own.grid->cluster_size() != 0)
      report(ReportKind::out_of_bounds, site, "the multicast mask names a CTA that the cluster does not have");
  }
  ++events_;
}

/// Moves the data of a load to one CTA and returns its bytes, those outside of the tensor included.
uint32_t Cohort::deliver_bytes(const BulkLoad& job, Cta& to, uint32_t address, const Clock& clock, const Site& site) {
  Warp& warp = warps_[job.warp];
  const SharedAccess access{job.thread, clock, site, AccessKind::async};
  const TensorMap map = job.is_tensor ? tensor_map(warp, job.from, site, code(warp, job.pc).vector) : TensorMap();
  if (job.is_tensor && !map.is_map()) return 0;
  const uint32_t bytes = map.is_map() ? box_bytes(map) : job.bytes;
  std::byte* const box = shared(to, address, bytes, map.is_map() ? kTensorAlign : 16, site);
  if (box == refused_) return bytes;
  // A multicast reads global memory once for all of its targets.
  const int first = ctas_[job.cta].first_in_cluster + std::countr_zero(job.targets);
  const bool is_counted = context_.options.profile && (job.targets == 0 || &to == &ctas_[first]);
  const auto read_global = [&](uint64_t from, uint32_t count, uint32_t align) -> const std::byte* {
    const std::byte* source = global(warp, from, count, align, site, false);
    if (source == refused_) return nullptr;
    if (checks_initialised_) note_poison_read(warp, from, count, site);
    if (races()) global_access(warp, from, count, {false, false, Scope::cta}, clock, site);
    if (is_counted) count_sectors(from, count);
    return source;
  };
  if (map.is_map()) {
    fill_box(box, map, bytes);
    each_row(map, job.at, [&](const BoxRow& row) {
      if (row.first == row.last) return;
      const auto align = static_cast<uint32_t>(tensor_element_bytes(map.element));
      const std::byte* source = read_global(row.global, row.last - row.first, align);
      if (source == nullptr) return;
      each_chunk(map, address, row, [&](uint32_t at, uint32_t from, uint32_t count) {
        std::memcpy(box + at, source + (from - row.first), count);
      });
    });
  } else if (job.from_shared) {
    Cta& own = ctas_[job.cta];
    const auto from = static_cast<uint32_t>(job.from);
    const std::byte* source = shared(own, from, bytes, 16, site);
    if (source == refused_) return bytes;
    if (tracks_shared()) shared_read(own, from, bytes, access);
    std::memcpy(box, source, bytes);
  } else if (const std::byte* source = read_global(job.from, bytes, 16)) {
    std::memcpy(box, source, bytes);
  }
  if (tracks_shared()) shared_write(to, address, bytes, access);
  return bytes;
}

/// Tensor: [map, coordinates], [from]; plain: [to], [from], bytes.
void Cohort::bulk_store(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* o = warp.grid->program->operands(i);
  const bool is_tensor = i.op == Op::tensor_store;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    BulkStore job{};
    job.to = lane_address(warp, i, o[0], lane, i.offset);
    job.pc = static_cast<uint32_t>(&i - warp.grid->program->code.data());
    job.lane = lane;
    job.type = i.type;
    const uint32_t from_at = is_tensor ? 1 + i.vector : 1;
    for (uint32_t d = 0; is_tensor && d < i.vector; ++d) job.at[d] = static_cast<int32_t>(lanes(warp, o[1 + d])[lane]);
    job.from = lanes(warp, o[from_at])[lane] + static_cast<uint32_t>(i.offset2);
    if (!is_tensor) job.bytes = lanes(warp, o[2])[lane];
    if (!is_tensor && (job.bytes % 16 != 0 || job.to % 16 != 0))
      report(ReportKind::misaligned, site, "bulk copies need multiples of 16 bytes");
    else if (plan_store(warp, job, site)) warp.bulk.push_back(std::move(job));
  }
}

/// Finds the pieces of global memory that a store will write, and tells the checks what it reads; false after a report.
bool Cohort::plan_store(Warp& warp, BulkStore& job, const Site& site) {
  Cta& cta = cta_of(warp);
  const Instruction& i = code(warp, job.pc);
  const TensorMap map = i.op == Op::tensor_store ? tensor_map(warp, job.to, site, i.vector) : TensorMap();
  if (i.op == Op::tensor_store && !map.is_map()) return false;
  const uint32_t bytes = map.is_map() ? box_bytes(map) : job.bytes;
  if (shared(cta, job.from, bytes, map.is_map() ? kTensorAlign : 16, site) == refused_) return false;
  if (map.is_map()) {
    job.type = type_of(map.element);
    each_row(map, job.at, [&](const BoxRow& row) {
      each_chunk(map, job.from, row, [&](uint32_t at, uint32_t from, uint32_t count) {
        job.pieces.push_back({row.global + (from - row.first), job.from + at, count});
      });
    });
  } else {
    for (uint32_t at = 0; at < bytes; at += 16) job.pieces.push_back({job.to + at, job.from + at, 16});
  }
  if (!tracks_shared()) return true;
  job.time = ++cta.copy_time;
  Clock clock = *snapshot(warp);
  clock[store_thread(warp)] = job.time;
  const SharedAccess access{store_thread(warp), clock, site, AccessKind::async};
  if (job.pieces.size() * 16 == bytes) shared_read(cta, job.from, bytes, access);
  else
    for (const BulkPiece& piece : job.pieces) shared_read(cta, piece.from, piece.bytes, access);
  return true;
}

/// Groups belong to threads, so every lane closes one.
void Cohort::bulk_commit(Warp& warp, uint32_t mask) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    BulkGroup group{std::countr_zero(left), {}};
    for (BulkStore& job : warp.bulk)
      if (job.lane == group.lane) group.stores.push_back(std::move(job));
    std::erase_if(warp.bulk, [&](const BulkStore& job) { return job.lane == group.lane; });
    warp.bulk_groups.push_back(std::move(group));
  }
}

/// With .read the sources may be overwritten afterwards, without it the data has arrived.
void Cohort::bulk_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const uint32_t keep = lanes(warp, i.slot[0])[lane];
    uint32_t open = 0;
    for (const BulkGroup& group : warp.bulk_groups) open += group.lane == lane;
    for (BulkGroup& group : warp.bulk_groups) {
      if (group.lane != lane || open-- <= keep) continue;
      for (BulkStore& job : group.stores) i.flag2 ? read_store(warp, job) : finish_store(warp, job);
      if (!i.flag2) group.lane = -1;
    }
  }
  std::erase_if(warp.bulk_groups, [](const BulkGroup& group) { return group.lane < 0; });
}

void Cohort::read_store(Warp& warp, BulkStore& job) {
  if (job.is_read) return;
  job.is_read = true;
  const Cta& cta = cta_of(warp);
  job.data.reserve(job.pieces.size() * 16);
  for (const BulkPiece& piece : job.pieces) {
    const std::byte* from = cta.shared.data() + (piece.from - kSharedBase);
    job.data.insert(job.data.end(), from, from + piece.bytes);
  }
  if (!tracks_shared()) return;
  uint32_t& known = warp.clock[store_thread(warp)];
  known = std::max(known, job.time);
  warp.snapshot = nullptr;
}

void Cohort::finish_store(Warp& warp, BulkStore& job) {
  read_store(warp, job);
  const Instruction& i = code(warp, job.pc);
  const Site site{&warp, i.line, job.lane};
  const std::byte* data = job.data.data();
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (i.flag && context_.is_parallel) lock.lock();
  for (const BulkPiece& piece : job.pieces) {
    const auto align = static_cast<uint32_t>(ptx_type_bytes(job.type));
    std::byte* to = global(warp, piece.to, piece.bytes, std::max(align, 1u), site, true);
    if (to != refused_) {
      note_write(warp, piece.to, piece.bytes, site);
      if (races()) global_access(warp, piece.to, piece.bytes, {true, i.flag, Scope::gpu}, warp.clock, site);
      if (context_.options.profile) count_sectors(piece.to, piece.bytes);
      if (!i.flag) std::memcpy(to, data, piece.bytes);
      else reduce_into(to, data, piece.bytes, i.atomic, job.type);
    }
    data += piece.bytes;
  }
  ++events_;
}

void Cohort::reduce_into(std::byte* to, const std::byte* from, uint32_t bytes, AtomicOp op, PtxType type) {
  const auto width = static_cast<uint32_t>(ptx_type_bytes(type));
  for (uint32_t b = 0; b + width <= bytes; b += width) {
    uint64_t old = 0, value = 0;
    std::memcpy(&old, to + b, width);
    std::memcpy(&value, from + b, width);
    const uint64_t result = apply_atomic(op, type, old, value, 0);
    std::memcpy(to + b, &result, width);
  }
}

}  // namespace seqtile::sim
