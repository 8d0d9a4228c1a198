// jit/sim/async_copies.cpp -- cp.async and the bulk copies of the tensor memory accelerator.
// SPDX-License-Identifier: Apache-2.0
//
// Data moves as late as the text allows: a cp.async at its wait, a bulk load a rotation or more after its issue, a bulk
// store when its group is waited for. So whoever looks too early sees old data, and whoever overwrites a source that is
// still being read spoils the result, as on a device on a bad day.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "jit/sim/address.h"
#include "jit/sim/cohort.h"

namespace seqtile::sim {

void Cohort::copy_async(Warp& warp, const Instruction& i, uint32_t mask) {
  Cta& cta = cta_of(warp);
  CopyOp op;
  op.pc = static_cast<uint32_t>(&i - warp.grid->program->code.data());
  if (races()) op.issued = snapshot(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const uint32_t size = lanes(warp, i.slot[2])[lane];
    if (size != 4 && size != 8 && size != 16) {
      report(ReportKind::out_of_bounds, site, fmt::format("cp.async of {} bytes: 4, 8 or 16", size));
      continue;
    }
    const auto to = static_cast<uint32_t>(lane_address(warp, i, i.slot[0], lane, i.offset));
    const uint64_t from = wide_lanes(warp, i.slot[1])[lane] + static_cast<uint64_t>(i.offset2);
    uint32_t bytes = size;
    if (i.num_operands > 3) bytes = std::min(size, lanes(warp, i.slot[3])[lane]);
    if (shared(cta, to, size, site) == refused_) continue;
    if (tracks_shared()) shared_copy_issue(cta, to, size, warp, site);
    op.lanes.push_back({to, bytes, from, static_cast<uint8_t>(size), static_cast<uint8_t>(lane)});
  }
  warp.copies.push_back(std::move(op));
}

void Cohort::copy_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  const bool is_all = i.num_operands == 0;
  if (is_all && !warp.copies.empty()) warp.copy_groups.push_back(std::exchange(warp.copies, {}));
  land_copies(warp, is_all ? 0 : lanes(warp, i.slot[0])[std::countr_zero(mask)]);
}

void Cohort::land_copies(Warp& warp, size_t keep_groups) {
  while (warp.copy_groups.size() > keep_groups) {
    for (const CopyOp& op : warp.copy_groups.front()) land_copy(warp, op);
    warp.copy_groups.pop_front();
  }
}

void Cohort::land_copy(Warp& warp, const CopyOp& op) {
  Cta& cta = cta_of(warp);
  const Instruction& i = code(warp, op.pc);
  for (const CopyLane& lane : op.lanes) {
    const Site site{&warp, i.line, lane.lane};
    std::byte* const to = cta.shared.data() + (lane.to - kSharedBase);
    if (lane.bytes > 0) {
      // the source must be aligned to the whole size
      const std::byte* const from = global(warp, lane.from, std::bit_ceil(lane.bytes), site, false);
      std::memcpy(to, from, lane.bytes);
      if (from != refused_) {
        if (checks_initialised_) note_poison_read(warp, lane.from, lane.bytes, site);
        if (races()) global_access(warp, lane.from, lane.bytes, {false, false, false, Scope::cta}, *op.issued, site);
        if (context_.options.profile) count_sectors(lane.from, lane.bytes);
      }
    }
    if (lane.bytes < lane.size) std::memset(to + lane.bytes, 0, lane.size - lane.bytes);
    if (tracks_shared()) shared_copy_land(cta, lane.to, lane.size, warp, site);
  }
}

/// The copies so far arrive on the mbarrier when they are done; here: at once, after the data.
void Cohort::copy_arrive(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!warp.copies.empty()) warp.copy_groups.push_back(std::exchange(warp.copies, {}));
  land_copies(warp, 0);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    Mbarrier* barrier = find_mbarrier(warp, cta_of(warp), lane_address(warp, i, i.slot[0], lane, i.offset), site,
                                      races() ? &warp.clock : nullptr);
    if (barrier == nullptr || !i.flag) continue;
    --barrier->pending;
    if (races()) join(barrier->clock, warp.clock);
    check_mbarrier(*barrier, site);
  }
  if (races()) publish(warp);
  ++events_;
}

const TensorMap* Cohort::tensor_map(Warp& warp, uint64_t address, const Site& site, int rank) {
  const TensorMap* map = nullptr;
  if (address & kParamWindow) {
    const uint64_t offset = address - kParamWindow;
    if (offset + sizeof(TensorMap) <= warp.grid->params.size() && offset % 64 == 0)
      map = reinterpret_cast<const TensorMap*>(warp.grid->params.data() + offset);
  } else if (context_.memory.find(address) != nullptr && address % 64 == 0) {
    map = reinterpret_cast<const TensorMap*>(address);
  }
  if (map == nullptr || map->magic != TensorMap::kMagic) {
    report(ReportKind::tensor_map, site, "the address holds no tensor map");
    return nullptr;
  }
  if (map->rank == static_cast<uint32_t>(rank)) return map;
  report(ReportKind::tensor_map, site, fmt::format("the map has {} dimensions, the instruction {}", map->rank, rank));
  return nullptr;
}

/// Calls f(shared address, global address or 0 outside of the tensor) for every 16 bytes of a box; returns its bytes.
template <class F>
uint32_t Cohort::each_chunk(const TensorMap& map, const std::array<int32_t, 5>& at, uint32_t shared_address, F f) {
  const auto element = static_cast<uint32_t>(tensor_element_bytes(map.element));
  uint32_t index[5] = {}, bytes = 0;
  while (true) {
    uint64_t address = map.base;
    bool is_inside = true;
    for (uint32_t d = 0; d < map.rank; ++d) {
      const int64_t position = int64_t{at[d]} + int64_t{index[d]} * map.step[d];
      is_inside &= position >= 0 && position < int64_t{map.size[d]};
      address += static_cast<uint64_t>(position * static_cast<int64_t>(d == 0 ? element : map.stride[d - 1]));
    }
    // a chunk may begin inside and end outside: the elements beyond are not the tensor's
    const int64_t left = (int64_t{map.size[0]} - at[0] - index[0]) * element;
    f(swizzled(shared_address + bytes, map.swizzle), is_inside ? address : 0,
      static_cast<uint32_t>(std::min<int64_t>(left, 16)));
    bytes += 16;
    uint32_t d = 0;
    for (index[0] += 16 / element; index[d] >= map.box[d];) {
      index[d] = 0;
      if (++d == map.rank) return bytes;
      ++index[d];
    }
  }
}

/// Tensor: [to], [map, coordinates], [barrier](, mask); plain: [to], [from], bytes, [barrier](, mask).
void Cohort::bulk_load(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* o = warp.grid->program->operands(i);
  const bool is_tensor = i.op == Op::tensor_load;
  const uint32_t rank = is_tensor ? i.vector : 0, barrier_at = is_tensor ? 2 + rank : 3;
  Cta& cta = cta_of(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    BulkLoad job{};
    job.cta = warp.cta, job.warp = warp.id, job.lane = lane, job.is_tensor = is_tensor;
    job.pc = static_cast<uint32_t>(&i - warp.grid->program->code.data());
    job.to = static_cast<uint32_t>(lane_address(warp, i, o[0], lane, i.offset));
    job.from_shared = i.flag2;
    job.from = i.flag2 ? lanes(warp, o[1])[lane] : uint64_t{wide_lanes(warp, o[1])[lane]};
    for (uint32_t d = 0; d < rank; ++d) job.at[d] = static_cast<int32_t>(lanes(warp, o[2 + d])[lane]);
    if (!is_tensor) job.bytes = lanes(warp, o[2])[lane];
    job.barrier = lanes(warp, o[barrier_at])[lane];
    job.targets = i.flag ? lanes(warp, o[barrier_at + 1])[lane] & 0xffff : 0;
    if (is_tensor && tensor_map(warp, job.from, site, static_cast<int>(rank)) == nullptr) continue;
    if (!is_tensor && (job.bytes % 16 != 0 || job.from % 16 != 0)) {
      report(ReportKind::misaligned, site, "bulk copies need multiples of 16 bytes");
      continue;
    }
    if (tracks_shared()) {
      job.issued = snapshot(warp);
      job.time = ++cta.copy_time;
    }
    loads_.push_back(std::move(job));
  }
  ++events_;
}

void Cohort::deliver(const BulkLoad& job) {
  Warp& warp = warps_[job.warp];
  Cta& own = ctas_[job.cta];
  const Site site{&warp, code(warp, job.pc).line, job.lane};
  Clock clock;
  if (tracks_shared()) {
    clock = *job.issued;
    clock[copy_thread(job.cta)] = job.time;
  }
  const auto to_one = [&](Cta& target, uint32_t to, uint32_t barrier_address) {
    BulkLoad here = job;
    here.to = to;
    const uint32_t bytes = deliver_bytes(here, target, warp, clock, site);
    Mbarrier* barrier = find_mbarrier(warp, target, barrier_address, site, races() ? &clock : nullptr);
    if (barrier == nullptr) return;
    if (&target != &own && races()) join(target.remote, clock);
    barrier->tx -= bytes;
    if (races()) join(barrier->clock, clock);
    check_mbarrier(*barrier, site);
  };
  if (job.targets == 0) {
    uint32_t to = job.to, barrier = job.barrier;
    Cta* target = cta_of(own, to, site);
    cta_of(own, barrier, site);
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

uint32_t Cohort::deliver_bytes(const BulkLoad& job, Cta& to, Warp& warp, const Clock& clock, const Site& site) {
  const auto move = [&](uint32_t address, uint64_t from, uint32_t bytes, uint32_t fill_word) {
    std::byte* const at = shared(to, address, 16, site);
    uint32_t fill[4] = {fill_word, fill_word, fill_word, fill_word};
    std::memcpy(at, fill, 16);
    if (from != 0) {
      const std::byte* source = global(warp, from, std::bit_ceil(bytes), site, false);
      std::memcpy(at, source, bytes);
      if (source != refused_) {
        if (checks_initialised_) note_poison_read(warp, from, bytes, site);
        if (races()) global_access(warp, from, bytes, {false, false, false, Scope::cta}, clock, site);
        if (context_.options.profile) count_sectors(from, bytes);
      }
    }
    if (at != refused_ && tracks_shared()) shared_write(to, address, 16, copy_thread(job.cta), clock, site, true);
  };
  if (job.is_tensor) {
    const TensorMap* map = tensor_map(warp, job.from, site, code(warp, job.pc).vector);
    if (map == nullptr) return 0;
    const uint32_t nan = map->element == TensorElement::f32 || map->element == TensorElement::tf32 ? 0x7fffffff
                         : map->element == TensorElement::bf16                                     ? 0x7fc07fc0
                                                                                                   : 0x7e007e00;
    return each_chunk(*map, job.at, job.to, [&](uint32_t address, uint64_t from, uint32_t bytes) {
      move(address, from, bytes, map->fill_nan != 0 ? nan : 0);
    });
  }
  for (uint32_t at = 0; at < job.bytes; at += 16) {
    if (!job.from_shared) {
      move(job.to + at, job.from + at, 16, 0);
      continue;
    }
    Cta& own = ctas_[job.cta];
    const auto from = static_cast<uint32_t>(job.from) + at;
    std::byte chunk[16];
    std::memcpy(chunk, shared(own, from, 16, site), 16);
    if (tracks_shared())
      shared_read(own, from, 16, static_cast<uint32_t>(warp.id), clock, site, true),
          shared_write(to, job.to + at, 16, copy_thread(job.cta), clock, site, true);
    std::memcpy(shared(to, job.to + at, 16, site), chunk, 16);
  }
  return job.bytes;
}

/// Tensor: [map, coordinates], [from]; plain: [to], [from], bytes.
void Cohort::bulk_store(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* o = warp.grid->program->operands(i);
  const bool is_tensor = i.op == Op::tensor_store;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    BulkStore job{};
    job.map = wide_lanes(warp, o[0])[lane];
    job.pc = static_cast<uint32_t>(&i - warp.grid->program->code.data());
    job.lane = lane;
    const uint32_t from_at = is_tensor ? 1 + i.vector : 1;
    for (uint32_t d = 0; is_tensor && d < i.vector; ++d) job.at[d] = static_cast<int32_t>(lanes(warp, o[1 + d])[lane]);
    job.from = lanes(warp, o[from_at])[lane] + static_cast<uint32_t>(i.offset2);
    if (!is_tensor) job.bytes = lanes(warp, o[2])[lane];
    if (tracks_shared()) job.issued = snapshot(warp);
    const Site site{&warp, i.line, lane};
    if (is_tensor && tensor_map(warp, job.map, site, i.vector) == nullptr) continue;
    warp.bulk.push_back(std::move(job));
  }
}

void Cohort::bulk_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  // groups belong to threads; the machine knows one list per warp, that of the lane that issued
  const uint32_t keep = lanes(warp, i.slot[0])[std::countr_zero(mask)];
  const auto is_issuer = [&](const std::vector<BulkStore>& group) {
    return group.empty() || (mask >> group.front().lane & 1) != 0;
  };
  while (warp.bulk_groups.size() > keep && is_issuer(warp.bulk_groups.front())) {
    for (const BulkStore& job : warp.bulk_groups.front()) finish_store(warp, job);
    warp.bulk_groups.pop_front();
  }
}

void Cohort::finish_store(Warp& warp, const BulkStore& job) {
  const Instruction& i = code(warp, job.pc);
  Cta& cta = cta_of(warp);
  const Site site{&warp, i.line, job.lane};
  const auto move = [&](uint32_t from, uint64_t to, uint32_t bytes, PtxType type) {
    const std::byte* source = shared(cta, from, 16, site);
    if (source != refused_ && tracks_shared())
      shared_read(cta, from, 16, static_cast<uint32_t>(warp.id), *job.issued, site, true);
    if (to == 0) return;
    std::byte* at = global(warp, to, std::bit_ceil(bytes), site, true);
    if (at == refused_) return;
    note_write(warp, to, bytes, site);
    if (races()) global_access(warp, to, bytes, {true, i.flag, i.flag, Scope::gpu}, warp.clock, site);
    if (context_.options.profile) count_sectors(to, bytes);
    if (i.flag) reduce_into(warp, at, source, bytes, type);
    else std::memcpy(at, source, bytes);
  };
  if (i.op == Op::tensor_store) {
    static constexpr PtxType kTypes[] = {PtxType::u8,  PtxType::u16, PtxType::u32,  PtxType::s32,
                                         PtxType::f16, PtxType::f32, PtxType::bf16, PtxType::f32};
    const TensorMap* map = tensor_map(warp, job.map, site, i.vector);
    if (map == nullptr) return;
    each_chunk(*map, job.at, job.from, [&](uint32_t from, uint64_t to, uint32_t bytes) {
      move(from, to, bytes, kTypes[static_cast<size_t>(map->element)]);
    });
  } else {
    for (uint32_t at = 0; at < job.bytes; at += 16) move(job.from + at, job.map + at, 16, i.type);
  }
  ++events_;
}

void Cohort::reduce_into(Warp&, std::byte* to, const std::byte* from, uint32_t bytes, PtxType type) {
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (context_.is_parallel) lock.lock();
  const auto width = static_cast<uint32_t>(ptx_type_bytes(type));
  for (uint32_t b = 0; b + width <= bytes; b += width) {
    uint32_t old = 0, value = 0;
    std::memcpy(&old, to + b, width);
    std::memcpy(&value, from + b, width);
    uint32_t sum = old + value;
    if (type == PtxType::f32) sum = std::bit_cast<uint32_t>(std::bit_cast<float>(old) + std::bit_cast<float>(value));
    if (type == PtxType::f16) sum = float_to_half(half_to_float(old) + half_to_float(value));
    if (type == PtxType::bf16) sum = float_to_bf16(bf16_to_float(old) + bf16_to_float(value));
    std::memcpy(to + b, &sum, width);
  }
}

}  // namespace seqtile::sim
