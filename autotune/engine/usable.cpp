// autotune/engine/usable.cpp -- see usable.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/usable.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "autotune/call_sizes.h"
#include "autotune/kernel_name.h"
#include "autotune/keys.h"
#include "jit/base/machine_memory.h"
#include "jit/compiler.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

/// Distance, in buckets, within which a bucket's space must have the configuration: three octaves. A merged record has
/// a neighbour's winner, which may be absent from the space of the record's own bucket.
constexpr int64_t kReach = 24;

std::string refusal_of_bucket(const cache::Record& record) {
  if (record.bucket_version != kBucketVersion)
    return fmt::format("its buckets are those of version {}, this release has version {}", record.bucket_version,
                       kBucketVersion);
  const bool is_on_ladder = record.lo >= 1 && record.lo <= kMaxLength;
  if (!is_on_ladder || bucket(record.lo) != Bucket{record.lo, record.hi})
    return fmt::format("there is no bucket {}..{}", record.lo, record.hi);
  return {};
}

std::string refusal_of_times(const cache::Record& record) {
  for (const double time : {record.median_us, record.p20_us, record.p80_us, record.default_us})
    if (!std::isfinite(time) || time < 0) return fmt::format("it says {} us, which is no time", time);
  return {};
}

}  // namespace

std::optional<Config> parse_config(const std::string& json) {
  try {
    return Config::parse(json);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<cache::Record> usable_records(const OpDef& op, const Workload& workload, const Target& target,
                                          cache::TuningStore& store, const cache::TuningKey& key) {
  std::vector<cache::Record> records = store.records(key);
  Usability usable(op, workload, target);
  std::erase_if(records, [&](const cache::Record& record) { return !usable.judge(record).is_usable(); });
  return records;
}

Usability::Usability(const OpDef& op, Workload workload, const Target& target)
    : op_(op),
      workload_(std::move(workload)),
      target_(target),
      schema_(op.schema(workload_)),
      layout_(schema_, target.is_gpu()) {}

Judgement Usability::judge(const cache::Record& record) {
  Judgement judgement;
  std::string& refusal = judgement.refusal;
  if (refusal = refusal_of_bucket(record); !refusal.empty()) return judgement;
  if (refusal = refusal_of_times(record); !refusal.empty()) return judgement;
  const auto config = parse_config(record.config_json);
  if (!config) {
    refusal = "its configuration is no JSON object of numbers and texts, each name once";
    return judgement;
  }
  judgement.config = *config;
  refusal = this->refusal(*config, record.hi);
  return judgement;
}

std::string Usability::refusal(const Config& config, int64_t length) {
  Known& about = known(config);
  if (!about.refusal.empty()) return about.refusal;
  const std::string of_space = refusal_of_space(config, about, bucket_index(length));
  return of_space.empty() ? refusal_of_memory(about, bucket(length).hi) : of_space;
}

Judgement Usability::judge(const cache::Record& record, Device& device, ArtifactStore& artifacts) {
  Judgement judgement = judge(record);
  if (!judgement.is_usable()) return judgement;
  std::optional<std::string>& lack = known(judgement.config).lack;
  if (!lack) lack = find_lack(judgement.config, device, artifacts);
  judgement.lack = *lack;
  return judgement;
}

/// Findings about the configuration that hold at every length.
Usability::Known& Usability::known(const Config& config) {
  const auto [place, is_new] = known_.try_emplace(config.json());
  Known& about = place->second;
  if (!is_new) return about;
  try {
    op_.grid(workload_, config);
    if (op_.workspaces) about.workspaces = op_.workspaces(workload_, config);
  } catch (const std::exception& error) {  // the operation may not know the configuration and throw anything
    about.refusal = fmt::format("its configuration does not fit the operation: {}", error.what());
    return about;
  }
  if (num_slots(about) > kMaxSlots)
    about.refusal =
        fmt::format("its configuration needs {} argument slots, the limit is {}", num_slots(about), kMaxSlots);
  return about;
}

/// Empty if the space of a bucket within reach has the configuration, else the refusal of the bucket's own space.
std::string Usability::refusal_of_space(const Config& config, Known& known, int64_t index) const {
  const auto is_near = [&](int64_t other) { return std::abs(other - index) <= kReach; };
  if (std::ranges::any_of(known.legal_at, is_near)) return {};
  const auto refusal = [&](int64_t at) -> std::optional<std::string> {
    try {
      return op_.config_space(workload_, bucket_at(at).hi, target_).refusal(config);
    } catch (const std::exception& error) {  // a constraint of the operation may throw anything
      return error.what();
    }
  };
  const auto own = refusal(index);
  if (!own) known.legal_at.push_back(index);
  for (int64_t step = 1; own && step <= kReach; ++step)
    for (const int64_t other : {index - step, index + step}) {
      if (other < 0 || other > bucket_index(kMaxLength) || refusal(other)) continue;
      known.legal_at.push_back(other);
      return {};
    }
  return own ? "its configuration is not in the space: " + *own : "";
}

std::string Usability::refusal_of_memory(const Known& known, int64_t length) const {
  if (known.workspaces.empty()) return {};
  const auto symbols = call_symbols(op_, workload_, schema_, length);
  double bytes = 0;
  for (const Workspace& workspace : known.workspaces)
    bytes += static_cast<double>(workspace.elements.value(symbols)) * static_cast<double>(dtype_bytes(workspace.dtype));
  const double limit = target_.is_gpu() ? static_cast<double>(target_.gpu.memory_bytes) : machine_bytes();
  if (bytes <= limit) return {};
  return fmt::format("its configuration needs {:.0f} bytes of scratch memory, the device has {:.0f}", bytes, limit);
}

std::string Usability::find_lack(const Config& config, Device& device, ArtifactStore& artifacts) {
  auto binary = artifacts.load(artifact_key(config));
  if (!binary) return "no binary for its configuration";
  if (const std::string problem = misfit(config, *binary); !problem.empty()) return "its binary " + problem;
  try {
    const std::string stage = binary->stage;
    device.load(std::move(*binary));
    ++stages_[stage];
    return {};
  } catch (const Error& error) {
    return std::string("its binary does not load: ") + error.what();
  }
}

std::string Usability::misfit(const Config& config, const KernelBinary& binary) {
  if (!is_made_for(binary, target_))
    return fmt::format("is {} for {}, not for {}", binary.stage, binary.target, target_.name);
  const std::string name = kernel_name(op_, workload_, config, target_);
  if (binary.symbol != name) return fmt::format("is that of {}, not of {}", binary.symbol, name);
  const Known& about = known(config);
  if (!about.refusal.empty()) return "has no call: " + about.refusal;
  if (static_cast<int64_t>(binary.num_slots) != num_slots(about))
    return fmt::format(
        "takes {} argument slots, the schema with {} workspaces gives {}; a kernel's parameters must be the schema's "
        "tensors, the workspaces, the scalars",
        binary.num_slots, about.workspaces.size(), num_slots(about));
  if (target_.is_gpu() && binary.gpu.shared_bytes > target_.shared_bytes)
    return fmt::format("needs {} bytes of shared memory, a block of {} may have {}", binary.gpu.shared_bytes,
                       target_.name, target_.shared_bytes);
  return {};
}

KernelBinary Usability::build(const Config& config) {
  KernelBinary binary = compile(*build_kernel(op_, workload_, config, target_), target_);
  if (const std::string problem = misfit(config, binary); !problem.empty())
    throw Error(ErrorCode::invalid_argument, "kernel " + binary.symbol + " " + problem);
  return binary;
}

int64_t octave_end(const Bucket& bucket) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bucket.hi)));
}

ArtifactKey Usability::artifact_key(const Config& config) const {
  return make_artifact_key(op_, workload_, config, target_);
}

}  // namespace seqtile::autotune
