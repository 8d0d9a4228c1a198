// autotune/keys.cpp -- the keys of tuning records and of binaries.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuner.h"
#include "jit/base/hash.h"
#include "jit/compiler.h"

namespace seqtile::autotune {

cache::TuningKey make_key(const OpDef& op, const Workload& workload, const DeviceInfo& device,
                          const std::string& policy) {
  Fields env;
  for (const auto& [name, value] : device.facts) env.set(name, value);
  env.set("device_kind", device.kind);
  env.set("policy", policy);
  env.set("toolchain", std::string(toolchain_version()));
  return {device.kind, device.name, env.json(), op.name, op.source_hash(), workload.json()};
}

ArtifactKey make_artifact_key(const OpDef& op, const Workload& workload, const Config& config, const Target& target) {
  // Kernels may size their tiles by the caches, so these belong to what the bytes depend on.
  Fields manifest{{"operation", op.name},        {"source_hash", op.source_hash()},
                  {"workload", workload.json()}, {"config", config.json()},
                  {"target", target.name},       {"triple", target.triple},
                  {"cpu", target.cpu},           {"features", target.features},
                  {"l1_bytes", target.l1_bytes}, {"l2_bytes", target.l2_bytes},
                  {"l3_bytes", target.l3_bytes}, {"toolchain", toolchain_version(target)}};
  std::string text = manifest.json();
  return {sha256_hex(text), std::move(text)};
}

}  // namespace seqtile::autotune
