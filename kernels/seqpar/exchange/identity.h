// kernels/seqpar/exchange/identity.h -- what ranks must have in common before they communicate.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string_view>

#include "seqtile/op.h"

namespace seqtile::kernels::seqpar {

/// The static arguments that all ranks must give alike, operation and dtype among them. A rank's share of the weights,
/// the fields `shares`, may differ from its peers' shares where they do not share a launch, and so may its threads.
autotune::Fields common_arguments(const autotune::Workload& w, std::span<const std::string_view> shares);
/// Two configurations of an operation put the same on the wire, whatever else differs.
bool look_alike(const autotune::Config& a, const autotune::Config& b);
/// A number for all that ranks must have in common, and for all that a configuration puts on the wire. Its low bits are
/// 0, for the operation's number on the channel.
int64_t identity_of(const autotune::Fields& common_arguments, const autotune::Config& config);

}  // namespace seqtile::kernels::seqpar
