// kernels/seqpar/prepare.cpp -- see prepare.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/prepare.h"

#include <sstream>

#include <fmt/format.h>

#include "jit/fabric/core/agreement.h"
#include "kernels/seqpar/exchange/identity.h"
#include "seqtile/error.h"

namespace seqtile::kernels::seqpar {
namespace {

fabric::Arguments arguments_of(const autotune::Workload& workload, std::span<const std::string_view> shares,
                               int64_t op_id) {
  fabric::Arguments arguments{{"operation", workload.operation}};  // first: it says more than its arguments
  const autotune::Fields common = common_arguments(workload, shares);
  for (const auto& [name, value] : common.values())
    if (name != "operation")
      arguments.emplace_back(name, std::visit([](const auto& v) { return fmt::format("{}", v); }, value));
  arguments.emplace_back("the number of operations before it", std::to_string(op_id));
  return arguments;
}

/// A line for each run of buckets with the same choice: how many, and what.
std::string encode(const Handle::Choices& choices) {
  std::string text;
  for (size_t i = 0, end = 0; i < choices.size(); i = end) {
    while (end < choices.size() && choices[end] == choices[i]) ++end;
    text += fmt::format("{} {}\n", end - i, choices[i] ? choices[i]->json() : "");
  }
  return text;
}

Handle::Choices decode(const std::string& text) {
  Handle::Choices choices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    const std::string json = line.substr(space + 1);
    choices.insert(choices.end(), std::stoul(line),
                   json.empty() ? std::nullopt : std::optional(autotune::Config::parse(json)));
  }
  return choices;
}

/// Rank 0's, or the own ones where a peer cannot tell the difference.
Handle::Choices settle(const autotune::Workload& workload, const Handle::Choices& own, Handle::Choices first) {
  if (ranks_of(workload).share_a_launch()) return first;
  for (size_t i = 0; i < std::min(own.size(), first.size()); ++i)
    if (own[i] && first[i] && look_alike(*own[i], *first[i])) first[i] = own[i];
  return first;
}

/// Errors: invalid_argument where the operation is for another world size or kind of fabric than the channel's.
void check_channel(const autotune::Workload& workload, const Channel& channel) {
  const auto [world_size, fabric] = ranks_of(workload);
  if (world_size == 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is no operation over ranks", workload.operation));
  if (world_size != channel.fabric().world_size())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: world_size is {}, the channel's fabric has {} ranks", workload.operation, world_size,
                            channel.fabric().world_size()));
  const std::string kind = channel.fabric().kind();
  if (fabric != kind)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: fabric is {}, the channel's is {}; it is part of the key of what was tuned",
                            workload.operation, fabric, kind));
}

/// Collective: room in the channel for calls of the operation, now and when the channel grows.
void make_room(const Handle& handle, Channel& channel, int64_t op_id) {
  const auto needs_of = [workload = handle.workload(), on_rank = handle.operation().on_rank](int64_t max_rows) {
    return on_rank(workload, 0, max_rows).channel;
  };
  ChannelOptions needs;
  const auto problem = fabric::problem_in([&] { needs = needs_of(channel.options().capacity); });
  fabric::agree(channel.fabric(), "a fused operation",
                {{"bytes of staging", std::to_string(needs.staging_bytes)},
                 {"flags of each rank", std::to_string(needs.flags_per_source)}},
                problem);
  if (needs.staging_bytes > channel.options().staging_bytes ||
      needs.flags_per_source > channel.options().flags_per_source)
    channel.reserve(needs);
  channel.note_needs(op_id, needs_of);
}

}  // namespace

Handle prepare_on_all(Engine& engine, const autotune::Workload& workload, std::span<const std::string_view> shares,
                      Channel& channel, int64_t op_id) {
  Fabric& fabric = channel.fabric();
  Handle own, settled;
  const auto unprepared = fabric::problem_in([&] {
    check_channel(workload, channel);
    own = engine.prepare(workload);
  });
  fabric::agree(fabric, "a fused operation", arguments_of(workload, shares, op_id), unprepared);
  make_room(own, channel, op_id);
  const Handle::Choices choices = own.choices();
  const std::string first = fabric.all_gather(fabric.rank() == 0 ? encode(choices) : "").front();
  const auto unsettled = fabric::problem_in([&] { settled = own.fixed(settle(workload, choices, decode(first))); });
  fabric::agree(fabric, "a fused operation", {}, unsettled);
  return settled;
}

ChannelOptions channel_options(const autotune::Registry& registry, const std::vector<autotune::Workload>& operations,
                               int64_t capacity) {
  ChannelOptions options;
  options.capacity = capacity;
  for (const autotune::Workload& workload : operations) {
    const autotune::OpDef& op = registry.find(workload.operation);
    if (!op.on_rank) throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is no operation over ranks", op.name));
    const ChannelOptions needs = op.on_rank(op.normalize(workload), 0, capacity).channel;
    options.staging_bytes = std::max(options.staging_bytes, needs.staging_bytes);
    options.flags_per_source = std::max(options.flags_per_source, needs.flags_per_source);
  }
  return options;
}

}  // namespace seqtile::kernels::seqpar
