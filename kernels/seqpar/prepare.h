// kernels/seqpar/prepare.h -- prepares one operation on all ranks: static arguments agree, plans look alike.
// SPDX-License-Identifier: Apache-2.0
//
// What a configuration puts on the wire must be the same on every rank, whatever their caches hold. So rank 0's choices
// for all buckets go to every rank; where a rank's own one looks the same it stays, as it is tuned for the rank's
// shape; else rank 0's takes its place. Calls are served by these alone from then on.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/fabric.h"

namespace seqtile::kernels::seqpar {

/// Collective, between calls; `op_id` is the operation's on the channel, which gets the room that the operation needs.
/// `shares`: the fields by which ranks may differ.
/// Errors, the same on all ranks: invalid_argument (a static argument is not rank 0's; the operation is for another
/// fabric), or as Engine::prepare and Channel::reserve.
Handle prepare_on_all(Engine& engine, const autotune::Workload& workload, std::span<const std::string_view> shares,
                      Channel& channel, int64_t op_id);

/// Needs of a channel for calls of these operations with up to `capacity` rows of all ranks. Errors: invalid_argument
/// on an operation that the registry lacks or that is not one over ranks.
ChannelOptions channel_options(const autotune::Registry& registry, const std::vector<autotune::Workload>& operations,
                               int64_t capacity);

}  // namespace seqtile::kernels::seqpar
