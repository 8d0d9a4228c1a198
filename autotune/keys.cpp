// autotune/keys.cpp -- see keys.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/keys.h"

#include "jit/base/hash.h"
#include "seqtile/compiler.h"

namespace seqtile::autotune {
namespace {

/// Threads of the host do not matter on a GPU: a decision of one machine holds on a machine with more cores.
std::string key_text(Workload workload, bool is_gpu) {
  if (is_gpu) workload.threads = 1;
  return workload.json();
}

/// A GPU that loads cubins takes cubins of any assembler, and PTX. The key leaves the assembler out, so that a store
/// filled on a machine with ptxas serves a machine without ptxas.
std::string artifact_toolchain(const Target& target) {
  if (!target.loads_cubins) return toolchain_version(target);
  return std::string(toolchain_version()) + ", sm_" + std::to_string(target.gpu.compute_capability);
}

}  // namespace

Fields machine_of(const DeviceInfo& device) {
  Fields machine;
  for (const auto& [name, value] : device.facts) machine.set(name, value);
  machine.set("device_kind", device.kind);
  return machine;
}

cache::TuningKey make_key(const OpDef& op, const Workload& workload, const DeviceInfo& device,
                          const std::string& policy) {
  Fields env = machine_of(device);
  env.set("policy", policy);
  env.set("toolchain", std::string(toolchain_version()));
  return {device.kind, device.name,      env.json(),
          op.name,     op.source_hash(), key_text(workload, device.kind == "cuda" || device.kind == "sim"),
          op.version};
}

ArtifactKey make_artifact_key(const OpDef& op, const Workload& workload, const Config& config, const Target& target) {
  // A kernel may size its tiles by the caches, so that its code depends on their sizes.
  Fields manifest{{"operation", op.name},
                  {"source_hash", op.source_hash()},
                  {"workload", key_text(workload, target.is_gpu())},
                  {"config", config.json()},
                  {"target", target.name},
                  {"triple", target.triple},
                  {"cpu", target.cpu},
                  {"features", target.features},
                  {"l1_bytes", target.l1_bytes},
                  {"l2_bytes", target.l2_bytes},
                  {"l3_bytes", target.l3_bytes},
                  {"toolchain", artifact_toolchain(target)}};
  std::string text = manifest.json();
  return {sha256_hex(text), std::move(text)};
}

}  // namespace seqtile::autotune
