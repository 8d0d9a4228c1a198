// kernels/seqpar/exchange/transfer.cpp -- see transfer.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/transfer.h"

#include <algorithm>
#include <bit>

#include "jit/base/cdiv.h"

namespace seqtile::kernels::seqpar {

namespace {

constexpr int64_t kChunk = 256;

}  // namespace

std::vector<int64_t> push_programs(const Setting& s) {
  if (s.target.is_gpu()) return {8, 1};
  return s.threads > 1 ? std::vector<int64_t>{s.threads, 1} : std::vector<int64_t>{1};
}

Transfer transfer_of(const autotune::Config& config) {
  const std::string way = config.get_string("transfer", "push");
  return way == "pull" ? Transfer::pull : way == "join" ? Transfer::join : Transfer::push;
}

TransferSchedule TransferSchedule::from(const autotune::Config& c) {
  return {c.get_int("chunk_rows"), c.get_int("push_programs"), transfer_of(c), c.get_string("order", "") == "serial"};
}

int64_t rows_of_chunk(int64_t row_bytes, int64_t bytes) {
  const int64_t rows = std::max<int64_t>(bytes / row_bytes, 1);
  return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows))), 8, 4096);
}

bool may_pull(const Target& target, int world_size) { return !target.is_gpu() && world_size > 2; }

ExchangeShape with_transfer(ExchangeShape gather, Transfer way) {
  gather.phases[0].is_pulled = way == Transfer::pull, gather.phases[0].is_joined = way == Transfer::join;
  return gather;
}

const Protocol& protocol_of_gather(Transfer way) {
  return way == Transfer::pull ? pulled_gather_protocol() : gather_protocol();
}

// Who waits for all needs no small chunks; rows are pulled as by default else: a search has room for tiles too.
std::vector<autotune::Config> transfer_schedules(const autotune::Config& tile, const std::vector<const char*>& orders,
                                                 const std::vector<int64_t>& programs, bool may_pull,
                                                 int64_t chunk_unit) {
  std::vector<autotune::Config> configs;
  const auto add = [&](const std::string& order, int64_t chunk_rows, int64_t num_programs, bool is_pulled) {
    autotune::Config config = tile;
    config.set("chunk_rows", round_up(chunk_rows, chunk_unit));
    config.set("push_programs", num_programs);
    if (!order.empty()) config.set("order", order);
    if (is_pulled) config.set("transfer", std::string("pull"));
    configs.push_back(std::move(config));
  };
  constexpr int64_t kSmallChunk = 64;
  for (const std::string order : orders) {
    add(order, kChunk, programs[0], false);
    if (order == "serial") continue;
    for (const int64_t count : programs)
      for (const int64_t chunk_rows : {kChunk, kSmallChunk})
        if (count != programs[0] || chunk_rows != kChunk) add(order, chunk_rows, count, false);
  }
  if (may_pull) add(orders[0], kChunk, programs[0], true);
  return configs;
}

autotune::Config joined_schedule(autotune::Config tile, int64_t push_programs) {
  tile.set("chunk_rows", kChunk);
  tile.set("push_programs", push_programs);
  tile.set("transfer", std::string("join"));
  return tile;
}

CopyTile copy_tile(int64_t row_columns) {
  constexpr int64_t kElements = 4096, kMostRows = 8, kLeastColumns = kElements / kMostRows;
  if (row_columns == kDynamic) return {kMostRows, kLeastColumns};
  const auto width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(row_columns)));
  const int64_t columns = std::clamp(width, kLeastColumns, kElements);
  return {kElements / columns, columns};
}

void copy_rows(KernelBuilder& b, Var from, Var to, Var first, Var end, Operand columns) {
  const CopyTile tile = copy_tile(from.type().shape[1]);
  Var source = b.slice(from, {0, 0}, {end, columns}), target = b.slice(to, {0, 0}, {end, columns});
  b.for_each(first, end, tile.rows, [&](Var row) {
    b.for_each(0, columns, tile.columns, [&](Var column) {
      b.store(target, {row, column}, b.load(source, {row, column}, {tile.rows, tile.columns}));
    });
  });
}

void copy_parts(KernelBuilder& b, const std::vector<Part>& parts, Var to, Var rows, Var first, Var end) {
  for (const Part& part : parts) {
    Var columns = b.size(part.from, 1);
    const bool is_first = part.column.is_literal() && std::get<int64_t>(part.column.literal()) == 0;
    copy_rows(b, part.from, is_first ? to : b.slice(to, {0, part.column}, {rows, columns}), first, end, columns);
  }
}

namespace {

// Once to the own segment, and of ranks of other nodes to each; then the flags of all.
void keep_chunks(KernelBuilder& b, Exchange& ex, int num_receivers, Var program, const TransferSchedule& schedule,
                 const std::function<void(Var peer, Var chunk)>& copy) {
  Var self = ex.rank(), chunks = ex.num_chunks(0, self, self);
  const auto for_each_peer = [&](const std::function<void(Var peer)>& body) {
    b.for_each(0, num_receivers, 1, [&](Var i) { body(ex.peer(i)); });
  };
  b.when(ex.is_aborted(), nullptr, [&] {
    b.for_each(program, chunks, schedule.push_programs, [&](Var chunk) {
      copy(self, chunk);
      for_each_peer([&](Var peer) { b.when(ex.is_remote(peer), [&] { copy(peer, chunk); }); });
      for_each_peer([&](Var peer) { ex.publish(0, peer, chunk); });
    });
  });
}

}  // namespace

void push_chunks(KernelBuilder& b, Exchange& ex, int num_receivers, Var program, const TransferSchedule& schedule,
                 const std::function<void(Var peer, Var chunk)>& copy) {
  if (ex.is_pulled(0)) return keep_chunks(b, ex, num_receivers, program, schedule, copy);
  // Alone, a rank takes the protocol's steps in no turn of the loop.
  const int64_t peers = num_receivers, divisor = std::max<int64_t>(peers, 1);
  Var chunks = b.max(ex.most_chunks(0), 1);
  b.when(ex.is_aborted(), nullptr, [&] {
    b.for_each(program, chunks * peers, schedule.push_programs, [&](Var job) {
      Var chunk = job / divisor, peer = ex.peer(job % divisor);
      b.when(chunk < ex.num_chunks(0, peer, ex.rank()), [&] {
        copy(peer, chunk);
        ex.publish(0, peer, chunk);
      });
    });
  });
}

void push_rows(KernelBuilder& b, Exchange& ex, int num_receivers, Var program, const TransferSchedule& schedule,
               const std::function<std::vector<Part>(Var peer)>& parts) {
  push_chunks(b, ex, num_receivers, program, schedule, [&](Var peer, Var chunk) {
    Var rows = ex.segment_rows(0, peer, ex.rank());
    const std::vector<Part> from = parts(peer);
    Var to = ex.target(0, peer, rows);
    Var first = chunk * schedule.chunk_rows, end = b.min(first + schedule.chunk_rows, rows);
    copy_parts(b, from, to, rows, first, end);
  });
}

Var await_rows_of_all(KernelBuilder& b, Exchange& ex, int num_senders, Var tile) {
  Var good = b.compare(Compare::eq, tile, tile), none = b.constant(DType::i64, int64_t{0});
  return b.for_loop(0, num_senders, 1, {good}, [&](Var i, std::vector<Var> before) {
    Var source = ex.peer(i);
    Var come = ex.await(0, source, none, ex.num_chunks(0, ex.rank(), source), tile);
    return std::vector{b.logical_and(before[0], come)};
  })[0];
}

Var may_begin(KernelBuilder& b, Exchange& ex, const TransferSchedule& schedule, Var tile, Var has_rows) {
  if (!schedule.is_serial) return has_rows;
  return b.if_then(
      has_rows, [&] { return std::vector{await_rows_of_all(b, ex, ex.world_size() - 1, tile)}; },
      [&] { return std::vector{has_rows}; })[0];
}

}  // namespace seqtile::kernels::seqpar
