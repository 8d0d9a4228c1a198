// kernels/seqpar/exchange/identity.cpp -- see identity.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/identity.h"

#include <algorithm>

#include <fmt/format.h>

#include "jit/abi/channel_block.h"
#include "jit/base/hash.h"
#include "seqtile/abi.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {
namespace {

/// The parameters of a configuration that peers see.
constexpr const char* kWireParameters[] = {"chunk_rows", "reduction", "transfer"};

std::string wire_of(const autotune::Config& config) {
  std::string text;
  for (const char* name : kWireParameters)
    if (const auto found = config.values().find(name); found != config.values().end())
      text += std::visit([&](const auto& value) { return fmt::format(" {}={}", name, value); }, found->second);
  return text;
}

}  // namespace

autotune::Fields common_arguments(const autotune::Workload& w, std::span<const std::string_view> shares) {
  const bool have_one_launch = ranks_of(w).share_a_launch();
  const auto is_share = [&](std::string_view name) { return std::ranges::find(shares, name) != shares.end(); };
  autotune::Fields common{{"operation", w.operation}, {"dtype", std::string(dtype_name(w.dtype))}};
  for (const auto& [name, value] : w.fields.values())
    if (have_one_launch || !is_share(name)) common.set(name, value);
  const auto is_there = [&](const char* weight) { return w.fields.get_int(weight, 0) > 0 ? 1 : 0; };
  if (is_share("n2")) common.set("weights", int64_t{1} + is_there("n2") + is_there("n3"));
  return common;
}

bool look_alike(const autotune::Config& a, const autotune::Config& b) { return wire_of(a) == wire_of(b); }

int64_t identity_of(const autotune::Fields& common_arguments, const autotune::Config& config) {
  const std::string text = common_arguments.json() + wire_of(config);
  const auto hash = static_cast<int64_t>(std::stoull(sha256_hex(text).substr(0, 15), nullptr, 16));
  return hash >> channel::kOpIdBits << channel::kOpIdBits;
}

}  // namespace seqtile::kernels::seqpar
