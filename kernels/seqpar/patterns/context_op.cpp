// kernels/seqpar/patterns/context_op.cpp -- see context_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/context_op.h"

#include <algorithm>

#include "kernels/attention/attention_backward.h"
#include "kernels/op/row_kernel.h"
#include "kernels/seqpar/patterns/product_tiles.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::OpDef;
using autotune::Workload;

namespace {

constexpr const char* kPlainFields[] = {"heads", "kv_heads", "head_dim", "causal", "scale"};

/// A rank's rows of what is known of the whole sequence.
int64_t rows_of_rank(const Workload& w, int64_t length) {
  return std::max<int64_t>(1, most_rows(layout_of(w), length, world_size_of(w)));
}

std::vector<Config> schedules_of(const Workload& w, const Config& tile, const Target& target) {
  return transfer_schedules(tile, {"", "serial"}, push_programs(target, w.threads), may_pull(target, world_size_of(w)),
                            tile.get_int("block_n"));
}

/// On GPUs those that leave room; where none does those of longer sequences, and all where there are none either.
std::vector<Config> tiles_for(const ContextTiles& tiles, const Workload& w, int64_t length, const Target& target) {
  constexpr int64_t kMostRows = 64;
  const Workload plain = plain_workload(tiles.plain, w);
  const int64_t own_rows = rows_of_rank(w, length);
  const auto tiles_of = [&](int64_t rows) {
    return tiles.plain.config_space(plain, rows, portable(target)).enumerate();
  };
  for (int64_t rows = own_rows; target.is_gpu() && rows <= std::max(own_rows, kMostRows); rows *= 2) {
    std::vector<Config> roomy = tiles_of(rows);
    std::erase_if(roomy, [&](const Config& tile) { return !tiles.leaves_room(w, tile, target); });
    if (!roomy.empty()) return roomy;
  }
  return tiles_of(own_rows);
}

Config default_tile(const ContextTiles& tiles, const Workload& w, int64_t length, const Target& target) {
  const Workload plain = plain_workload(tiles.plain, w);
  const Config best = tiles.plain.default_config(plain, rows_of_rank(w, length), portable(target));
  const std::vector<Config> all = tiles_for(tiles, w, length, target);
  if (std::ranges::find(all, best) != all.end()) return best;
  const auto us = [&](const Config& tile) { return context_predicted_us(tiles.plain, w, tile, length, target); };
  return std::ranges::min(all, {}, us);
}

}  // namespace

Workload plain_workload(const OpDef& plain, const Workload& w) {
  Workload attention{plain.name, w.dtype, w.threads, {}};
  for (const char* name : kPlainFields)
    if (const auto found = w.fields.values().find(name); found != w.fields.values().end())
      attention.fields.set(name, found->second);
  return plain.normalize(attention);
}

Workload normalize_context(const Workload& given, std::initializer_list<const char*> flags) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  FieldReader fields(reader);
  AttentionBackward().fields(fields);  // has those that all attention has, and no others
  reader.choice("layout", {"contiguous", "zigzag"});
  for (const char* flag : flags) reader.flag(flag);
  return reader.finish();
}

bool fill_context_arg(const autotune::Problem& p, size_t arg, const ExchangeShape& exchange, uint64_t seed) {
  if (fill_sequence_arg(p, arg)) return true;
  return fill_channel_arg(p, arg, exchange, longest_rank(*p.workload), seed);
}

autotune::ConfigSpace context_space(const ContextTiles& tiles, const Workload& w, int64_t length,
                                    const Target& target) {
  autotune::ConfigSpace space;
  const Config best = default_tile(tiles, w, length, target);
  for (const Config& tile : tiles_for(tiles, w, length, target)) {
    std::vector<Config> configs = schedules_of(w, tile, target);
    if (tile != best) configs.resize(1);
    for (Config& config : configs) space.add(std::move(config));
  }
  return space;
}

Config context_default(const ContextTiles& tiles, const Workload& w, int64_t length, const Target& target) {
  return schedules_of(w, default_tile(tiles, w, length, target), target).front();
}

double context_predicted_us(const OpDef& plain, const Workload& w, const Config& config, int64_t length,
                            const Target& target) {
  return autotune::predicted_us(plain, plain_workload(plain, w), config, length, portable(target)) / world_size_of(w);
}

std::vector<int64_t> plain_symbols(int64_t length) { return {length, length, length, 1}; }

}  // namespace seqtile::kernels::seqpar
