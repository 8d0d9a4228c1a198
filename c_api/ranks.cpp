// c_api/ranks.cpp -- seqtile.h: fabrics and channels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include <fmt/format.h>

#include "c_api/objects.h"
#include "c_api/status.h"
#include "seqtile/abi.h"

namespace seqtile::c_api {
namespace {

/// Errors: invalid_argument on a number that is not above 0, or is too large for a clock.
std::chrono::nanoseconds timeout_of(double seconds) {
  constexpr double kMost = 1e9;
  if (!(seconds > 0 && seconds <= kMost))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("timeout_seconds is {}; give a number above 0, at most {}", seconds, kMost));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace
}  // namespace seqtile::c_api

using namespace seqtile;
using c_api::guarded;
using c_api::required;

seqtile_status seqtile_fabric_open_threads(int32_t world_size, int32_t threads, seqtile_fabric** fabrics) {
  return guarded([&] {
    required(fabrics, "fabrics");
    if (world_size >= 1 && world_size <= channel::kMaxRanks) std::fill_n(fabrics, world_size, nullptr);
    std::vector<std::unique_ptr<seqtile_fabric>> made;
    for (auto& rank : make_thread_fabric(world_size, threads))
      made.push_back(std::make_unique<seqtile_fabric>(std::move(rank), threads));
    for (size_t i = 0; i < made.size(); ++i) fabrics[i] = made[i].release();
  });
}

seqtile_status seqtile_world_make(int32_t world_size, int32_t* descriptor) {
  return guarded([&] {
    required(descriptor, "descriptor") = -1;
    *descriptor = make_process_world(world_size);
  });
}

seqtile_status seqtile_fabric_join(int32_t descriptor, int32_t rank, int32_t threads, double timeout_seconds,
                                   seqtile_fabric** fabric) {
  return guarded([&] {
    required(fabric, "fabric") = nullptr;
    *fabric =
        new seqtile_fabric(join_process_fabric(descriptor, rank, threads, c_api::timeout_of(timeout_seconds)), threads);
  });
}

seqtile_status seqtile_fabric_describe(seqtile_fabric* fabric, char** json) {
  return guarded([&] {
    required(json, "json") = nullptr;
    const Fabric& it = *required(fabric, "fabric").it;
    const nlohmann::ordered_json text{{"kind", it.kind()}, {"rank", it.rank()}, {"world_size", it.world_size()}};
    *json = c_api::new_text(text.dump());
  });
}

void seqtile_fabric_retain(seqtile_fabric* fabric) { c_api::retain(fabric); }
void seqtile_fabric_release(seqtile_fabric* fabric) { c_api::release(fabric); }

seqtile_status seqtile_channel_open(seqtile_fabric* fabric, int64_t max_rows, double timeout_seconds,
                                    seqtile_channel** channel) {
  return guarded([&] {
    c_api::give(channel, "channel", [&] {
      const auto timeout = c_api::timeout_of(timeout_seconds);
      const auto& rank = required(fabric, "fabric").it;
      rank->set_timeout(timeout);
      const ChannelOptions options{.capacity = max_rows, .timeout = timeout};
      return c_api::ChannelParts{rank, std::make_shared<Channel>(*rank, options)};
    });
  });
}

seqtile_status seqtile_channel_check(seqtile_channel* channel) {
  return guarded([&] { required(channel, "channel").it.channel->check(); });
}

seqtile_status seqtile_channel_reset(seqtile_channel* channel) {
  return guarded([&] { required(channel, "channel").it.channel->reset(); });
}

void seqtile_channel_retain(seqtile_channel* channel) { c_api::retain(channel); }
void seqtile_channel_release(seqtile_channel* channel) { c_api::release(channel); }
